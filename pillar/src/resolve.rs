//! Chooses the values that the documents leave open, once, and records them, so that a later repair
//! uses the same values.

mod plain_secrets;
mod record;
mod version;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use halite_document::Problem;
use ipnet::Ipv4Net;

use crate::cluster::Cluster;
use crate::declaration::{Declaration, Document};
use crate::etcd::Placement;
use crate::host_facts::{HostFacts, is_made_by_a_program};
use crate::node::{Node, ResolvedMember, ResolvedNode, node_block};
use crate::role::Role;
use crate::roles::with_roles;

pub use plain_secrets::without_secret_values;
pub use record::{cluster_block, record};
pub use version::with_kubernetes_version;

/// The evidence that an address reported by a host is its own. A host may report the address of
/// another machine, which the other hosts would then trust.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// This program runs on the host itself.
    OnTheHost,
    /// The host's connection comes from this address, if it has one.
    Connection(Option<Ipv4Addr>),
}

/// Chooses the addresses of a node from its host's reported ones: for each plane the first network
/// of the list in which the host has an address. A recorded address is kept, and a declared
/// `address` is the control plane's. Another node's address is never chosen, and one for the
/// control plane only with evidence.
///
/// # Errors
/// The host has no suitable address in one of the planes.
fn addresses(
    declaration: &Declaration,
    node: &Document<Node>,
    host: &HostFacts,
    evidence: Evidence,
) -> Result<ResolvedNode, Problem> {
    if let Some(resolved) = &node.resolved {
        return Ok(resolved.clone());
    }
    let cluster = &declaration.cluster;
    let networks = &cluster.networks;
    let taken = taken(declaration, &node.metadata.name);
    let control_plane = match node.address {
        Some(address) => address,
        None => {
            let own = candidates(cluster, &networks.control_plane.cidrs, host);
            if own.is_empty() {
                return Err(nowhere(
                    cluster,
                    "networks.controlPlane.cidrs",
                    "control-plane",
                    host,
                ));
            }
            proven(node, host, &free(node, host, own, &taken)?, evidence)?
        }
    };
    let workload = networks.workload_cidrs();
    // One address for both planes, if it fits.
    let workload_plane = if let Some(address) = node.workload_address {
        address
    } else if networks.workload_plane.is_none()
        || workload.iter().any(|c| c.contains(&control_plane))
    {
        control_plane
    } else {
        let own = candidates(cluster, workload, host);
        if own.is_empty() {
            return Err(nowhere(
                cluster,
                "networks.workloadPlane.cidrs",
                "workload-plane",
                host,
            ));
        }
        free(node, host, own, &taken)?[0]
    };
    Ok(ResolvedNode {
        control_plane,
        workload_plane,
        etcd: None,
        joined: false,
        vrrp_priority: None,
        bundle: None,
        kubernetes: None,
    })
}

/// The addresses of the other nodes, with their names.
fn taken<'a>(declaration: &'a Declaration, name: &str) -> BTreeMap<Ipv4Addr, &'a str> {
    let others = declaration.nodes.iter().filter(|(other, _)| *other != name);
    others
        .flat_map(|(other, node)| {
            let resolved = node.resolved.iter();
            let resolved = resolved.flat_map(|found| [found.control_plane, found.workload_plane]);
            resolved
                .chain(node.address)
                .chain(node.workload_address)
                .map(move |address| (address, other.as_str()))
        })
        .collect()
}

/// The addresses of the host in the networks, in the order of the networks. The VIP is never the
/// host's own address, even on the host that holds it now.
fn candidates(cluster: &Cluster, cidrs: &[Ipv4Net], host: &HostFacts) -> Vec<Ipv4Addr> {
    let own: Vec<Ipv4Addr> = host
        .usable()
        .filter(|(interface, _)| !is_made_by_a_program(interface))
        .map(|(_, address)| address)
        .filter(|a| Some(*a) != cluster.api_server.vip)
        .collect();
    cidrs
        .iter()
        .flat_map(|cidr| own.iter().filter(|address| cidr.contains(*address)))
        .copied()
        .collect()
}

/// The addresses that no other node has; at least one.
fn free(
    node: &Document<Node>,
    host: &HostFacts,
    mut own: Vec<Ipv4Addr>,
    taken: &BTreeMap<Ipv4Addr, &str>,
) -> Result<Vec<Ipv4Addr>, Problem> {
    let conflict = own
        .iter()
        .find_map(|address| Some((*address, *taken.get(address)?)));
    own.retain(|address| !taken.contains_key(address));
    match conflict {
        Some((address, other)) if own.is_empty() => Err(Problem::in_file(
            &node.source.file,
            format!(
                "the host `{}` reports the address {address}, which belongs to the node `{other}`",
                host.name
            ),
        )
        .hint("give one of the two hosts another address; is one a copy of the other?")),
        _ => Ok(own),
    }
}

/// The free address that is proven to be the host's.
fn proven(
    node: &Document<Node>,
    host: &HostFacts,
    free: &[Ipv4Addr],
    evidence: Evidence,
) -> Result<Ipv4Addr, Problem> {
    let from = match evidence {
        Evidence::OnTheHost => return Ok(free[0]),
        Evidence::Connection(Some(peer)) if peer.is_loopback() || free.contains(&peer) => {
            // The master's host itself connects to its own address.
            return Ok(if peer.is_loopback() { free[0] } else { peer });
        }
        Evidence::Connection(Some(peer)) => format!("comes from {peer}"),
        Evidence::Connection(None) => "is not open".to_owned(),
    };
    Err(Problem::in_file(
        &node.source.file,
        format!(
            "the host `{}` reports the control-plane address {}, but its connection to the master {from}",
            host.name, free[0]
        ),
    )
    .hint(format!(
        "if the address is right, confirm it: write `address: {}` into this document",
        free[0]
    )))
}

fn nowhere(cluster: &Document<Cluster>, path: &str, what: &str, host: &HostFacts) -> Problem {
    let have = host
        .usable()
        .map(|(_, address)| address.to_string())
        .collect::<Vec<_>>()
        .join(", ");
    cluster
        .source
        .problem(
            path,
            format!(
                "the host `{}` has no address in a {what} network; it has: {have}",
                host.name
            ),
        )
        .hint("add the network of one of these addresses, or give the host an address")
}

/// The outcome of resolving one node: its addresses, and the text to write back.
pub struct Resolved {
    /// The node document's text with its `resolved` block; `None` if the text already has this
    /// block.
    pub node_text: Option<String>,
    /// The chosen addresses.
    pub addresses: ResolvedNode,
}

/// Resolves one node of a declaration and records it there. A host that has its addresses but no
/// priority for the virtual address yet gets the one that it has been using.
///
/// # Errors
/// The node does not exist, its host has no suitable address, or the record cannot be written into
/// its text.
pub fn node(
    declaration: &mut Declaration,
    name: &str,
    host: &HostFacts,
    evidence: Evidence,
) -> Result<Resolved, Problem> {
    let Some(node) = declaration.nodes.get(name) else {
        return Err(Problem::in_file("", format!("there is no node `{name}`")));
    };
    let chosen = addresses(declaration, node, host, evidence)?;
    let addresses = ResolvedNode {
        vrrp_priority: declaration.vrrp_priority(name).or(chosen.vrrp_priority),
        ..chosen
    };
    if node.resolved.as_ref() == Some(&addresses) {
        return Ok(Resolved {
            node_text: None,
            addresses,
        });
    }
    let text = record(
        &node.source.file,
        node.source.text(),
        &node_block(&addresses),
    )?;
    if let Some(node) = declaration.nodes.get_mut(name) {
        node.value.resolved = Some(addresses.clone());
    }
    Ok(Resolved {
        node_text: Some(text),
        addresses,
    })
}

/// The text of a node document with the record of the joining etcd member; `None` if it has that
/// record. Another record is replaced: it belongs to a member that left before it ever started.
///
/// # Errors
/// The node does not exist, its addresses are not chosen yet, or the record cannot be written into
/// its text.
pub fn member(
    declaration: &Declaration,
    name: &str,
    member: &ResolvedMember,
) -> Result<Option<String>, Problem> {
    let (node, resolved) = resolved_node(declaration, name)?;
    if resolved.etcd.as_ref() == Some(member) {
        return Ok(None);
    }
    let block = node_block(&ResolvedNode {
        etcd: Some(member.clone()),
        ..resolved.clone()
    });
    record(&node.source.file, node.source.text(), &block).map(Some)
}

/// The text of a node document with the record that its control plane runs, or that its etcd member
/// has its vote; `None` if it has that record.
///
/// # Errors
/// The node does not exist, its addresses are not chosen yet, or the record cannot be written into
/// its text.
pub fn joined(declaration: &Declaration, name: &str) -> Result<Option<String>, Problem> {
    let (node, resolved) = resolved_node(declaration, name)?;
    if resolved.joined {
        return Ok(None);
    }
    let block = node_block(&ResolvedNode {
        joined: true,
        ..resolved.clone()
    });
    record(&node.source.file, node.source.text(), &block).map(Some)
}

/// The text of a node document with other roles, and without Halite's records about the removed
/// ones: the etcd member, the control plane and its priority for the virtual address.
///
/// # Errors
/// The node does not exist, or its text is not a document in block style with roles.
pub fn with_other_roles(
    declaration: &Declaration,
    name: &str,
    roles: &[Role],
) -> Result<String, Problem> {
    let Some(node) = declaration.nodes.get(name) else {
        return Err(Problem::in_file("", format!("there is no node `{name}`")));
    };
    let file = &node.source.file;
    let text = with_roles(file, node.source.text(), roles)?;
    let Some(resolved) = &node.resolved else {
        return Ok(text);
    };
    let mut left = resolved.clone();
    left.etcd = left.etcd.filter(|_| roles.contains(&Role::Etcd));
    let serves = roles.contains(&Role::ControlPlane);
    // The record is about the previous part of the host, so it means nothing for the new one.
    left.joined &=
        node.has(Role::ControlPlane) == serves && (serves || roles.contains(&Role::Etcd));
    if !serves {
        left.vrrp_priority = None;
    }
    if left == *resolved {
        return Ok(text);
    }
    record(file, &text, &node_block(&left))
}

/// The text of a node document with its priority for the virtual address, if it competes for it and
/// has its addresses; `None` otherwise, or if it has that record.
///
/// # Errors
/// The record cannot be written into its text.
pub fn priority(declaration: &Declaration, name: &str) -> Result<Option<String>, Problem> {
    let (Ok((node, resolved)), Some(priority)) = (
        resolved_node(declaration, name),
        declaration.vrrp_priority(name),
    ) else {
        return Ok(None);
    };
    if resolved.vrrp_priority == Some(priority) {
        return Ok(None);
    }
    let block = node_block(&ResolvedNode {
        vrrp_priority: Some(priority),
        ..resolved.clone()
    });
    record(&node.source.file, node.source.text(), &block).map(Some)
}

/// A node with its chosen addresses.
fn resolved_node<'a>(
    declaration: &'a Declaration,
    name: &str,
) -> Result<(&'a Document<Node>, &'a ResolvedNode), Problem> {
    let Some(node) = declaration.nodes.get(name) else {
        return Err(Problem::in_file("", format!("there is no node `{name}`")));
    };
    let Some(resolved) = &node.resolved else {
        let problem = format!("the addresses of `{name}` are not chosen yet");
        return Err(Problem::in_file(&node.source.file, problem)
            .hint("they are chosen when the minion of this host connects for the first time"));
    };
    Ok((node, resolved))
}

/// The text of a node document without Halite's records, and without the role of the host that
/// founded the cluster: the host that takes this place joins. `None` if it has neither.
///
/// # Errors
/// The node does not exist, or its text is not a document in block style.
pub fn without_record(declaration: &Declaration, name: &str) -> Result<Option<String>, Problem> {
    let Some(node) = declaration.nodes.get(name) else {
        return Err(Problem::in_file("", format!("there is no node `{name}`")));
    };
    let mut text = node.source.text().to_owned();
    if let Some(resolved) = &node.resolved {
        // Written once more, the record has exactly the text to remove.
        let block = node_block(resolved);
        text = record(&node.source.file, &text, &block)?.replacen(&block, "", 1);
    }
    if node.has(Role::Bootstrap) {
        let roles = node.roles.iter().copied();
        let further: Vec<Role> = roles.filter(|role| *role != Role::Bootstrap).collect();
        text = with_roles(&node.source.file, &text, &further)?;
    }
    Ok((text != node.source.text()).then_some(text))
}

/// The text of a node document without the record of an etcd member, for a cluster whose etcd
/// restarts with the member of the first host, which gets the role if it has given up its member.
/// `None` if there is nothing to change.
///
/// # Errors
/// The text is not a document in block style.
pub fn without_member(
    declaration: &Declaration,
    node: &Document<Node>,
) -> Result<Option<String>, Problem> {
    let Some(resolved) = &node.resolved else {
        return Ok(None);
    };
    let is_dedicated = declaration.cluster.etcd.placement == Placement::Dedicated;
    let founds = is_dedicated && node.has(Role::Bootstrap);
    let mut without = resolved.clone();
    without.etcd = None;
    // Without a control plane, or on the first host, the record is about the member.
    without.joined &= !founds && node.has(Role::ControlPlane);
    let (file, mut text) = (&node.source.file, node.source.text().to_owned());
    if without != *resolved {
        text = record(file, &text, &node_block(&without))?;
    }
    if founds && !node.has(Role::Etcd) {
        let roles: Vec<Role> = node.roles.iter().copied().chain([Role::Etcd]).collect();
        text = with_roles(file, &text, &roles)?;
    }
    Ok((text != node.source.text()).then_some(text))
}
