//! The bundles that the hosts of the cluster use, as the master knows them.

use std::collections::BTreeMap;

use halite_api::{KeyState, NodeStatus};
use halite_names::BundleVersion;
use halite_proto::ids::MinionId;

use crate::cli::Global;
use crate::client;

/// The bundles from which the hosts got their content.
#[derive(Debug, Default)]
pub struct Hosts {
    /// The bundle of the last successful highstate of each host.
    last: BTreeMap<MinionId, BundleVersion>,
    /// All bundles from which each host may have content: later highstates may have failed halfway.
    any: BTreeMap<MinionId, Vec<BundleVersion>>,
    /// Accepted hosts whose bundles the master does not know.
    unknown: Vec<MinionId>,
}

/// Asks the master for the hosts' bundles.
///
/// # Errors
/// The master does not answer.
pub async fn hosts(global: &Global) -> anyhow::Result<Hosts> {
    Ok(from_nodes(client::status(global).await?.nodes))
}

/// Reads the hosts' bundles from the state of the hosts.
pub fn from_nodes(nodes: Vec<NodeStatus>) -> Hosts {
    let mut hosts = Hosts::default();
    for node in nodes {
        if let Some(bundle) = node.bundle {
            hosts.last.insert(node.name.clone(), bundle);
        }
        match node.bundles {
            Some(any) => {
                hosts.any.insert(node.name, any);
            }
            None if node.key == Some(KeyState::Accepted) => hosts.unknown.push(node.name),
            None => {}
        }
    }
    hosts
}

impl Hosts {
    /// The hosts whose last successful highstate used a bundle.
    pub fn with(&self, version: &BundleVersion) -> Vec<MinionId> {
        self.last
            .iter()
            .filter(|(_, bundle)| *bundle == version)
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// The reason not to remove a bundle; `None` if it may be removed.
    pub fn need(&self, version: &BundleVersion) -> Option<String> {
        let users = self.any.iter().filter(|(_, any)| any.contains(version));
        let users: Vec<&str> = users.map(|(name, _)| name.as_str()).collect();
        let what = match (users.is_empty(), self.unknown.is_empty()) {
            (false, _) => format!(
                "these hosts still use the bundle {version}; nothing was removed: {}",
                users.join(", ")
            ),
            (true, false) => format!(
                "the bundles of these hosts are not known; nothing was removed: {} (`ctl key delete` \
                forgets hosts that no longer exist)",
                self.unknown.join(", ")
            ),
            (true, true) => return None,
        };
        Some(format!(
            "{what}. `ctl highstate` moves them to the bundle in use; --force removes this one anyway"
        ))
    }
}
