//! The addresses of the Kubernetes API.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use super::ViewError;
use crate::api_server::LocalProxy;
use crate::declaration::{Declaration, Document};
use crate::node::Node;
use crate::role::Role;

/// The API as one host sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Api {
    /// The address to which its name resolves.
    pub address: Ipv4Addr,
    /// `true` if nodes without a control plane have their own proxy.
    pub proxied: bool,
    /// The addresses of the control planes that have joined, by name.
    pub servers: BTreeMap<String, Ipv4Addr>,
}

/// The API as a host sees it: the name resolves to the VIP; without one, to the first host, or, if
/// nodes have a proxy, to the proxy, and on a control plane that has joined to its own API server.
///
/// # Errors
/// The cluster has no first host yet.
pub(super) fn seen_by(declaration: &Declaration, node: Option<&Node>) -> Result<Api, ViewError> {
    let (vip, joined) = (declaration.cluster.api_server.vip, joined(declaration)?);
    let proxied = match declaration.cluster.api_server.local_proxy {
        LocalProxy::Auto => vip.is_none() && joined.len() > 1,
        LocalProxy::Always => true,
        LocalProxy::Never => false,
    };
    let best = vip.or(joined.first().map(|(_, address)| *address));
    let best = best.ok_or(ViewError::NoBootstrap)?;
    let own = node.and_then(|node| {
        let name = node.metadata.name.as_str();
        let own = joined.iter().find(|(joined, _)| *joined == name);
        let elsewhere = !node.has(Role::ControlPlane) && node.runs_containers();
        own.map(|(_, address)| *address)
            .or(elsewhere.then_some(Ipv4Addr::LOCALHOST))
    });
    Ok(Api {
        address: own.filter(|_| proxied).unwrap_or(best),
        proxied,
        servers: (joined.into_iter())
            .map(|(name, address)| (name.to_owned(), address))
            .collect(),
    })
}

/// Returns whether hosts without a control plane have their own proxy, to which the API's name
/// resolves.
#[must_use]
pub fn has_proxies(declaration: &Declaration) -> bool {
    seen_by(declaration, None).is_ok_and(|api| api.proxied)
}

/// The addresses at which the API server answers, the best one first: the VIP, then each
/// control-plane host that has joined.
///
/// # Errors
/// The cluster has no first host yet.
pub fn api_addresses(declaration: &Declaration) -> Result<Vec<Ipv4Addr>, ViewError> {
    let own = joined(declaration)?.into_iter().map(|(_, address)| address);
    let vip = declaration.cluster.api_server.vip;
    Ok(vip.into_iter().chain(own).collect())
}

/// The control-plane hosts that have joined, the first host first. The first host is the first one
/// with an API.
fn joined(declaration: &Declaration) -> Result<Vec<(&str, Ipv4Addr)>, ViewError> {
    let first = |node: &Node| node.has(Role::Bootstrap);
    let mut hosts: Vec<&Document<Node>> = declaration
        .nodes
        .values()
        .filter(|node| node.serves_api())
        .collect();
    // Stable: hosts of the same rank stay in the order of their names.
    hosts.sort_by_key(|node| !first(node));
    let own: Vec<_> = hosts
        .iter()
        .filter_map(|node| Some((node.metadata.name.as_str(), node.control_plane()?)))
        .collect();
    if own.is_empty() {
        return Err(ViewError::NoBootstrap);
    }
    Ok(own)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test's panic is its report")]
mod tests {
    use std::collections::BTreeMap;

    use halite_document::{DocumentSource, yaml};
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::node::{ResolvedMember, ResolvedNode};
    use crate::role::BOOTSTRAP_ROLES;

    const PLANE: &[Role] = &[Role::ControlPlane, Role::Etcd];

    fn document<T>(value: T) -> Document<T> {
        let source = DocumentSource::new("f", "a: 1\n", yaml::parse("f", "a: 1\n").unwrap());
        Document { value, source }
    }

    fn host(name: &str, address: &str, roles: &[Role], joined: bool) -> Node {
        let address: Ipv4Addr = address.parse().unwrap();
        let mut node = Node::new(name, Some(address), roles);
        node.resolved = Some(ResolvedNode {
            control_plane: address,
            workload_plane: address,
            vrrp_priority: None,
            etcd: joined.then(|| ResolvedMember {
                member: name.to_owned(),
                initial_cluster: format!("{name}=https://{address}:2380"),
                cluster_id: None,
                member_id: None,
            }),
            joined: false,
            bundle: None,
            kubernetes: None,
        });
        node
    }

    fn declaration(api_server: Value, nodes: Vec<Node>) -> Declaration {
        let cluster = serde_json::from_value(json!({
            "apiVersion": "halite/v1", "kind": "Cluster", "metadata": {"name": "prod"},
            "networks": {"controlPlane": {"cidrs": ["10.0.0.0/24"]}},
            "apiServer": api_server, "kubernetes": {"version": "1.36"},
        }));
        let nodes: BTreeMap<_, _> = nodes
            .into_iter()
            .map(|node| (node.metadata.name.parse().unwrap(), document(node)))
            .collect();
        Declaration {
            cluster: document(cluster.unwrap()),
            nodes,
            custom: Map::new(),
        }
    }

    fn addresses(vip: Option<&str>, nodes: Vec<Node>) -> Result<Vec<String>, ViewError> {
        let declaration = declaration(json!({"vip": vip, "localProxy": "never"}), nodes);
        let all = api_addresses(&declaration)?;
        assert_eq!(seen_by(&declaration, None).unwrap().address, all[0]);
        Ok(all.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn the_name_leads_to_a_proxy_where_nothing_else_outlives_a_control_plane() {
        let planes = || {
            vec![
                host("b-cp", "10.0.0.10", PLANE, true),
                host("c-cp", "10.0.0.12", PLANE, false),
                host("cp-1", "10.0.0.11", &BOOTSTRAP_ROLES, false),
                host("r", "10.0.0.20", &[Role::Registry], false),
                host("w", "10.0.0.21", &[Role::Worker], false),
            ]
        };
        let one = || planes().split_off(1);
        let (vip, here) = ("10.0.0.100", "127.0.0.1");
        for (api_server, nodes, on_b, on_c, on_first, on_w, on_r) in [
            (
                json!({}),
                planes(),
                "10.0.0.10",
                "10.0.0.11",
                "10.0.0.11",
                here,
                "10.0.0.11",
            ),
            (
                json!({}),
                one(),
                "",
                "10.0.0.11",
                "10.0.0.11",
                "10.0.0.11",
                "10.0.0.11",
            ),
            (json!({"vip": vip}), planes(), vip, vip, vip, vip, vip),
            (
                json!({"vip": vip, "localProxy": "always"}),
                planes(),
                "10.0.0.10",
                vip,
                "10.0.0.11",
                here,
                vip,
            ),
            (
                json!({"localProxy": "always"}),
                one(),
                "",
                "10.0.0.11",
                "10.0.0.11",
                here,
                "10.0.0.11",
            ),
        ] {
            let said = api_server.to_string();
            let declaration = declaration(api_server, nodes);
            for (name, wanted) in [
                ("b-cp", on_b),
                ("c-cp", on_c),
                ("cp-1", on_first),
                ("w", on_w),
                ("r", on_r),
            ] {
                let node = declaration.nodes.get(name);
                if let Some(node) = node {
                    let seen = seen_by(&declaration, Some(node)).unwrap();
                    assert_eq!(seen.address.to_string(), wanted, "{name} with {said}");
                    assert!(!seen.servers.contains_key("c-cp"), "{seen:?}");
                }
            }
        }
    }

    #[test]
    fn the_name_never_leads_to_a_host_that_has_not_joined() {
        let nodes = || {
            vec![
                host("a-cp", "10.0.0.9", PLANE, false),
                host("b-cp", "10.0.0.10", PLANE, true),
                host("cp-1", "10.0.0.11", &BOOTSTRAP_ROLES, false),
                host("w", "10.0.0.21", &[Role::Worker], true),
            ]
        };
        assert_eq!(
            addresses(None, nodes()).unwrap(),
            ["10.0.0.11", "10.0.0.10"]
        );
        assert_eq!(
            addresses(Some("10.0.0.100"), nodes()).unwrap(),
            ["10.0.0.100", "10.0.0.11", "10.0.0.10"]
        );
    }

    #[test]
    fn the_first_host_counts_before_its_addresses_are_recorded() {
        let nodes = vec![
            host("a-cp", "10.0.0.9", PLANE, false),
            Node::new("cp-1", Some([10, 0, 0, 11].into()), &BOOTSTRAP_ROLES),
        ];
        assert_eq!(addresses(None, nodes).unwrap(), ["10.0.0.11"]);
    }

    #[test]
    fn hosts_that_joined_stay_when_the_first_one_is_gone() {
        let nodes = vec![
            host("b-cp", "10.0.0.10", PLANE, true),
            host("c-cp", "10.0.0.8", PLANE, true),
        ];
        assert_eq!(addresses(None, nodes).unwrap(), ["10.0.0.10", "10.0.0.8"]);
        assert_eq!(addresses(None, Vec::new()), Err(ViewError::NoBootstrap));
    }
}
