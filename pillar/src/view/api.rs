//! The addresses of the Kubernetes API.

use std::net::Ipv4Addr;

use super::ViewError;
use crate::declaration::{Declaration, Document};
use crate::node::Node;
use crate::role::Role;

/// The addresses at which the API server answers, the best one first: the VIP, then each
/// control-plane host that has joined. A host has joined once its etcd member is recorded; a host
/// that is only declared, or has only its addresses, may still be bare, so it is not among them.
/// The first host is the first one with an API.
///
/// # Errors
/// The cluster has no first host yet.
pub fn api_addresses(declaration: &Declaration) -> Result<Vec<Ipv4Addr>, ViewError> {
    let first = |node: &Node| node.has(Role::Bootstrap);
    let mut hosts: Vec<&Document<Node>> = declaration
        .nodes
        .values()
        .filter(|node| node.has(Role::ControlPlane) && node.is_member())
        .collect();
    // Stable: hosts of the same rank stay in the order of their names.
    hosts.sort_by_key(|node| !first(node));
    let own: Vec<Ipv4Addr> = hosts
        .iter()
        .filter_map(|node| node.control_plane())
        .collect();
    if own.is_empty() {
        return Err(ViewError::NoBootstrap);
    }
    Ok(declaration
        .cluster
        .api_server
        .vip
        .into_iter()
        .chain(own)
        .collect())
}

/// The address to which the API's name leads.
///
/// # Errors
/// The cluster has no first host yet.
pub fn api_address(declaration: &Declaration) -> Result<Ipv4Addr, ViewError> {
    api_addresses(declaration)?
        .first()
        .copied()
        .ok_or(ViewError::NoBootstrap)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test's panic is its report")]
mod tests {
    use std::collections::BTreeMap;

    use halite_document::{Source, yaml};
    use serde_json::{Map, json};

    use super::*;
    use crate::node::{ResolvedMember, ResolvedNode};
    use crate::role::BOOTSTRAP_ROLES;

    const PLANE: &[Role] = &[Role::ControlPlane, Role::Etcd];

    fn document<T>(value: T) -> Document<T> {
        let source = Source::new("f", "a: 1\n", yaml::parse("f", "a: 1\n").unwrap());
        Document { value, source }
    }

    fn host(name: &str, address: &str, roles: &[Role], joined: bool) -> Node {
        let address: Ipv4Addr = address.parse().unwrap();
        let mut node = Node::new(name, Some(address), roles);
        node.resolved = Some(ResolvedNode {
            control_plane: address,
            workload_plane: address,
            etcd: joined.then(|| ResolvedMember {
                member: name.to_owned(),
                initial_cluster: format!("{name}=https://{address}:2380"),
            }),
            bundle: None,
            kubernetes: None,
        });
        node
    }

    fn addresses(vip: Option<&str>, nodes: Vec<Node>) -> Result<Vec<String>, ViewError> {
        let cluster = serde_json::from_value(json!({
            "apiVersion": "halite/v1", "kind": "Cluster", "metadata": {"name": "prod"},
            "networks": {"controlPlane": {"cidrs": ["10.0.0.0/24"]}},
            "apiServer": {"vip": vip}, "kubernetes": {"version": "1.36"},
        }));
        let nodes: BTreeMap<_, _> = nodes
            .into_iter()
            .map(|node| (node.metadata.name.parse().unwrap(), document(node)))
            .collect();
        let declaration = Declaration {
            cluster: document(cluster.unwrap()),
            nodes,
            custom: Map::new(),
        };
        let all = api_addresses(&declaration)?;
        assert_eq!(api_address(&declaration).unwrap(), all[0]);
        Ok(all.iter().map(ToString::to_string).collect())
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
