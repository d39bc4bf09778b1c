//! The host that has the master, and the standbys that can take its place.

use std::net::Ipv4Addr;

use crate::declaration::{Declaration, Document};
use crate::node::Node;
use crate::role::Role;
use crate::standbys::{Auto, Standbys};

/// The maximum number of standbys: each change waits for them.
pub const MOST: usize = 2;

/// The file in the master's directory by which an operator confirms that there is no other master:
/// the master then acts without standbys and most minions until a standby follows. A promotion and
/// a restore write it.
pub const ACTS_ALONE: &str = "acts-alone";

/// The file in the master's directory that makes a host a standby: the addresses of the masters,
/// `HOST:PORT`, one on a line. The state tree writes it, and a promotion removes it.
pub const STANDBY_OF: &str = "standby-of";

/// The file next to it with the same addresses, which a promotion leaves.
pub const WAS_STANDBY_OF: &str = "was-standby-of";

/// The part of a host in the master's redundancy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MasterPart {
    /// It has the master.
    Master,
    /// It is a standby.
    Standby,
}

impl Declaration {
    /// The node that has the master: the recorded one, or else the first host.
    #[must_use]
    pub fn master_node(&self) -> Option<&Document<Node>> {
        let resolved = self.cluster.resolved.as_ref();
        let recorded = resolved.and_then(|resolved| resolved.master.as_deref());
        recorded
            .and_then(|name| self.nodes.get(name))
            .or_else(|| self.bootstrap_node())
    }

    /// The standbys, by name. A host without an address does not count yet. Among the control
    /// planes, the serving ones come before the ones that are only declared: a host that never
    /// joins takes no place from one that could have it.
    #[must_use]
    pub fn standbys(&self) -> Vec<&Document<Node>> {
        let master = self.master_node().map(|node| node.metadata.name.as_str());
        let declared = &self.cluster.master.standbys;
        let is_chosen = |node: &Document<Node>| match declared {
            Standbys::Chosen(Auto::Auto) => node.has(Role::ControlPlane),
            Standbys::Named(names) => names.contains(&node.metadata.name),
        };
        let others = self.nodes.values();
        let mut chosen: Vec<&Document<Node>> = others
            .filter(|node| Some(node.metadata.name.as_str()) != master)
            .filter(|node| is_chosen(node) && node.control_plane().is_some())
            .collect();
        // Stable: hosts of the same rank stay in the order of their names.
        chosen.sort_by_key(|node| !node.serves_api());
        chosen.truncate(MOST);
        chosen.sort_by_key(|node| &node.metadata.name);
        chosen
    }

    /// The part of a host; `None` for most.
    #[must_use]
    pub fn part(&self, name: &str) -> Option<MasterPart> {
        let is = |node: &Document<Node>| node.metadata.name == name;
        if self.master_node().is_some_and(is) {
            return Some(MasterPart::Master);
        }
        let is_standby = self.standbys().into_iter().any(is);
        is_standby.then_some(MasterPart::Standby)
    }

    /// The hosts that make backups of the cluster: the master's, and its standbys if more than one
    /// host must hold a backup.
    #[must_use]
    pub fn backup_hosts(&self) -> Vec<&Document<Node>> {
        let standbys = match self.cluster.backup.copies {
            0 | 1 => Vec::new(),
            _ => self.standbys(),
        };
        self.master_node().into_iter().chain(standbys).collect()
    }

    /// The addresses of the master and its standbys, the master's first.
    #[must_use]
    pub fn master_addresses(&self) -> Vec<Ipv4Addr> {
        let standbys = self.standbys();
        let all = self.master_node().into_iter().chain(standbys);
        all.filter_map(|node| node.control_plane()).collect()
    }
}
