//! Warnings: valid declarations that are probably mistakes. They refuse nothing.

use halite_document::Problem;

use crate::backup::Backup;
use crate::declaration::{Declaration, Document};
use crate::etcd::Placement;
use crate::node::Node;
use crate::role::Role;

/// The warnings about valid documents.
#[must_use]
pub fn warnings(declaration: &Declaration) -> Vec<Problem> {
    members(declaration)
        .into_iter()
        .chain(copies(declaration))
        .collect()
}

/// An even number of etcd members: one member more than the next smaller cluster, but the same
/// number may fail.
fn members(declaration: &Declaration) -> Option<Problem> {
    let nodes = declaration.nodes.values();
    let members: Vec<_> = nodes.filter(|node| node.has(Role::Etcd)).collect();
    let last = members.last()?;
    let count = members.len();
    if !count.is_multiple_of(2) {
        return None;
    }
    // More than half must serve.
    let (more, less) = (count + 1, count - 1);
    let message = match (count - 1) / 2 {
        0 => format!("{count} members of etcd, none may fail"),
        spare => format!("{count} members of etcd, {spare} may fail, as of {less}"),
    };
    let spare = more / 2;
    let placement = declaration.cluster.etcd.placement;
    let gives_away = |node: &&Document<Node>| node.has(Role::Bootstrap);
    if placement == Placement::Dedicated && members.iter().any(gives_away) {
        // Once they have joined, the first host gives up its member.
        return None;
    }
    let roles = match placement {
        Placement::Dedicated => "role etcd",
        Placement::Stacked | Placement::External => "roles control-plane and etcd",
    };
    let hint = format!("with {more} members {spare} may fail: give one more host the {roles}");
    Some(last.source.problem("roles", message).hint(hint))
}

/// More hosts with a backup than hosts that make one. The default is two, so a cluster of one host
/// has not asked for more by that.
fn copies(declaration: &Declaration) -> Option<Problem> {
    let copies = declaration.cluster.backup.copies;
    let hosts = declaration.backup_hosts().len();
    if copies <= Backup::default().copies || hosts >= copies as usize {
        return None;
    }
    let message = format!(
        "{copies} hosts should hold a backup, but only {hosts} make one: the master's host and its standbys"
    );
    let hint = "give more hosts the role control-plane, or name them in `master.standbys`";
    let source = &declaration.cluster.source;
    Some(source.problem("backup.copies", message).hint(hint))
}
