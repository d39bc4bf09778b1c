//! `ctl node list` and `ctl node show`.

use anyhow::bail;
use halite_api::{NodeList, NodeStatus, to_value};

use super::inspect;
use crate::cli::{Global, ShowNode};
use crate::client;
use crate::output::{Screen, list as listed, or_dash, table, yes_no};

/// Runs `ctl node list`.
///
/// # Errors
/// The master does not answer or refuses.
pub async fn list(global: &Global, screen: &mut Screen) -> anyhow::Result<u8> {
    let nodes = client::status(global).await?.nodes;
    let nodes = NodeList { nodes };
    screen.answer(&to_value(&nodes), |_| inspect::node_table(&nodes.nodes))?;
    Ok(0)
}

/// Runs `ctl node show`.
///
/// # Errors
/// The master does not answer or refuses, or does not know the host.
pub async fn show(global: &Global, args: &ShowNode, screen: &mut Screen) -> anyhow::Result<u8> {
    let nodes = client::status(global).await?.nodes;
    let node = find(&nodes, args.name.as_str())?;
    screen.answer(&to_value(node), |_| one(node))?;
    Ok(0)
}

fn find<'a>(nodes: &'a [NodeStatus], name: &str) -> anyhow::Result<&'a NodeStatus> {
    if let Some(node) = nodes.iter().find(|node| node.name == name) {
        return Ok(node);
    }
    let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
    bail!(
        "cannot find the host {name}; the hosts are {}",
        names.join(", ")
    )
}

/// Formats the fields of a host.
pub fn one(node: &NodeStatus) -> String {
    let highstate = node.highstate.as_ref();
    table::fields(&[
        ("node", node.name.to_string()),
        ("declared", yes_no(node.declared)),
        ("roles", listed(&node.roles)),
        ("address", or_dash(node.address.as_ref())),
        ("key", or_dash(node.key.as_ref())),
        ("minion", inspect::minion(node)),
        ("minion version", or_dash(node.version.as_ref())),
        ("last seen", or_dash(node.last_seen)),
        (
            "kubernetes",
            or_dash(node.kubernetes.as_ref().map(inspect::kubernetes)),
        ),
        ("last highstate", or_dash(highstate.map(inspect::highstate))),
        ("job", or_dash(highstate.map(|last| &last.job))),
        (
            "error",
            or_dash(highstate.and_then(|last| last.error.as_ref())),
        ),
        ("uses the bundle", or_dash(node.uses.as_ref())),
        ("bundle", or_dash(node.bundle.as_ref())),
        (
            "bundles",
            listed(node.bundles.as_deref().unwrap_or_default()),
        ),
    ])
}

#[cfg(test)]
pub(super) mod tests {
    use halite_api::{HighstateResult, KeyState, KubernetesNode, LastHighstate};
    use halite_proto::ids::JobId;

    use super::*;

    /// A host about which nothing is known.
    pub(in crate::commands) fn node(name: &str) -> NodeStatus {
        NodeStatus {
            name: name.parse().unwrap(),
            declared: false,
            roles: Vec::new(),
            address: None,
            key: None,
            connected: false,
            version: None,
            last_seen: None,
            kubernetes: None,
            highstate: None,
            uses: None,
            bundle: None,
            bundles: None,
        }
    }

    #[test]
    fn a_host_is_found_by_its_name() {
        let nodes = [node("cp-1"), node("worker-1")];
        assert_eq!(find(&nodes, "cp-1").unwrap(), &nodes[0]);
        let error = find(&nodes, "cp-2").unwrap_err().to_string();
        assert!(error.contains("cp-1, worker-1"), "{error}");
    }

    #[test]
    fn a_host_is_shown_with_the_fields_that_it_has() {
        let worker = NodeStatus {
            declared: true,
            roles: vec!["worker".to_owned()],
            key: Some(KeyState::Accepted),
            connected: true,
            kubernetes: Some(KubernetesNode {
                ready: true,
                reasons: Vec::new(),
                kubelet: Some("v1.36.3".to_owned()),
            }),
            highstate: Some(LastHighstate {
                job: JobId::from_number(7),
                result: HighstateResult::Failed,
                ended: Some(halite_api::Time::from_millis(0)),
                error: Some("a package is missing".to_owned()),
            }),
            ..node("worker-1")
        };
        let expected = "\
node            worker-1
declared        yes
roles           worker
key             accepted
minion          connected
kubernetes      Ready v1.36.3
last highstate  failed 1970-01-01T00:00:00.000Z
job             00000000000000000007
error           a package is missing
";
        assert_eq!(one(&worker), expected);
    }
}
