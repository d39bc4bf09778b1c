//! Nodes: names, addresses, roles.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use halite_document::source::join;
use halite_names::{MASTER, NODE_NAME_MAX};

use super::Check;
use crate::declaration::Document;
use crate::network;
use crate::node::Node;
use crate::role::Role;

pub(super) fn check(check: &mut Check<'_>) {
    for node in check.declaration.nodes.values() {
        name(check, node);
        addresses(check, node);
        roles(check, node);
        labels(check, node);
    }
    duplicate_addresses(check);
    whole(check);
    own_address(check);
}

fn name(check: &mut Check<'_>, node: &Document<Node>) {
    const PATH: &str = "metadata.name";
    let name = &node.metadata.name;
    if name == MASTER {
        check.node(
            node,
            PATH,
            "no node may be called `master`",
            "it denotes the master as a target of states",
        );
    }
    // A host of an earlier version without a kubelet keeps its name.
    let is_limited = node.resolved.is_none() || node.runs_containers();
    if is_limited && name.len() > NODE_NAME_MAX {
        check.node(
            node,
            PATH,
            format!("the name has {} characters", name.len()),
            format!(
                "at most {NODE_NAME_MAX}: the certificate of a kubelet contains it, whose name has at most 64"
            ),
        );
    }
    let file = node.source.file.rsplit('/').next().unwrap_or_default();
    if file.strip_suffix(".yaml").is_some_and(|stem| stem != name) {
        check.node(
            node,
            PATH,
            format!("the file is called {file}, but declares the node `{name}`"),
            format!("rename the file to {name}.yaml, or the node"),
        );
    }
    if name == "localhost" || name.starts_with("localhost.") {
        check.node(
            node,
            PATH,
            format!("every host calls itself `{name}`"),
            "give each host a name of its own, for example worker-1",
        );
    }
    if name.parse::<Ipv4Addr>().is_ok() {
        check.node(
            node,
            PATH,
            format!("`{name}` is an address, not a name"),
            "for example worker-1",
        );
    }
}

fn addresses(check: &mut Check<'_>, node: &Document<Node>) {
    let networks = &check.declaration.cluster.networks;
    let control_sound = check.sound("networks.controlPlane.cidrs");
    let inside = |address: Ipv4Addr, cidrs: &[ipnet::Ipv4Net]| {
        cidrs.iter().any(|cidr| cidr.contains(&address))
    };
    if let Some(address) = node.address {
        match networks.control_plane.cidrs.iter().find(|cidr| cidr.contains(&address)) {
            None if control_sound => check.node(
                node,
                "address",
                format!("{address} is outside the control-plane networks"),
                "give the host's address in one of networks.controlPlane.cidrs, or add its network there",
            ),
            Some(cidr) if network::is_edge(*cidr, address) => check.node(
                node,
                "address",
                format!("{address} is the network's own or its broadcast address ({cidr})"),
                "take one between them",
            ),
            _ => {}
        }
    }
    let workload = networks.workload_cidrs();
    let workload_sound = control_sound && check.sound("networks.workloadPlane.cidrs");
    if let Some(address) = node.workload_address {
        match workload.iter().find(|cidr| cidr.contains(&address)) {
            None if workload_sound => check.node(
                node,
                "workloadAddress",
                format!("{address} is outside the workload-plane networks"),
                "give the host's address in one of networks.workloadPlane.cidrs, or add its network there",
            ),
            Some(cidr) if network::is_edge(*cidr, address) => check.node(
                node,
                "workloadAddress",
                format!("{address} is the network's own or its broadcast address ({cidr})"),
                "take one between them",
            ),
            _ => {}
        }
    }
    let Some(resolved) = &node.resolved else {
        return;
    };
    if node
        .workload_address
        .is_some_and(|address| address != resolved.workload_plane)
    {
        check.node(
            node,
            "workloadAddress",
            format!("this node was added with {}", resolved.workload_plane),
            "the tunnels of other hosts end there: put it back, or remove the node and add it again",
        );
    }
    if node
        .address
        .is_some_and(|address| address != resolved.control_plane)
    {
        check.node(
            node,
            "address",
            format!("this node was added with {}", resolved.control_plane),
            "its certificates and etcd name that address: put it back, or remove the node and add it again",
        );
    }
    let planes = [
        (
            "resolved.controlPlane",
            resolved.control_plane,
            networks.control_plane.cidrs.as_slice(),
            "control-plane",
        ),
        (
            "resolved.workloadPlane",
            resolved.workload_plane,
            networks.workload_cidrs(),
            "workload-plane",
        ),
    ];
    for (path, address, cidrs, what) in planes {
        let sound = control_sound && check.sound("networks.workloadPlane.cidrs");
        if sound && !inside(address, cidrs) {
            check.node(
                node,
                path,
                format!("the recorded address {address} is outside the {what} networks"),
                "put back the network that it was chosen from",
            );
        }
    }
}

fn roles(check: &mut Check<'_>, node: &Document<Node>) {
    for (index, role) in node.roles.iter().enumerate() {
        if node.roles[..index].contains(role) {
            check.node(
                node,
                &format!("roles[{index}]"),
                format!("the role `{role}` is listed twice"),
                "remove one",
            );
        }
    }
    let needs = [
        (
            Role::Bootstrap,
            Role::ControlPlane,
            "the first host runs the first control plane",
        ),
        (
            Role::Bootstrap,
            Role::Registry,
            "the first host holds the bundle and serves it",
        ),
    ];
    for (role, needed, why) in needs {
        if node.has(role) && !node.has(needed) {
            check.node(
                node,
                "roles",
                format!("`{role}` without `{needed}`: {why}"),
                format!("add `{needed}`"),
            );
        }
    }
}

fn labels(check: &mut Check<'_>, node: &Document<Node>) {
    for key in node.labels.keys() {
        let path = join("labels", key);
        if key.starts_with("node-role.kubernetes.io/") {
            check.node(
                node,
                &path,
                format!("the label `{key}` follows from the roles"),
                "declare the role instead",
            );
        } else if key == "kubernetes.io/hostname" {
            check.node(
                node,
                &path,
                format!("the label `{key}` is the kubelet's own"),
                "remove it",
            );
        }
    }
    let taints = node.taints.as_deref().unwrap_or_default();
    for (index, taint) in taints.iter().enumerate() {
        if taints[..index]
            .iter()
            .any(|earlier| (&earlier.key, &earlier.effect) == (&taint.key, &taint.effect))
        {
            check.node(
                node,
                &format!("taints[{index}]"),
                format!(
                    "there are two taints `{}` with the effect {}",
                    taint.key, taint.effect
                ),
                "remove one; Kubernetes keeps one per key and effect",
            );
        }
    }
}

fn duplicate_addresses(check: &mut Check<'_>) {
    let mut taken: BTreeMap<Ipv4Addr, &str> = BTreeMap::new();
    for node in check.declaration.nodes.values() {
        let name = node.metadata.name.as_str();
        let mut own = vec![
            ("address", node.address),
            ("workloadAddress", node.workload_address),
        ];
        if let Some(resolved) = &node.resolved {
            own.push(("resolved.controlPlane", Some(resolved.control_plane)));
            own.push(("resolved.workloadPlane", Some(resolved.workload_plane)));
        }
        for (path, address) in own {
            let Some(address) = address.filter(|_| node.source.is_sound(path)) else {
                continue;
            };
            match taken.get(&address) {
                Some(other) if *other != name => check.node(
                    node,
                    path,
                    format!("the node `{other}` has the address {address} too"),
                    "each host needs its own",
                ),
                _ => {
                    taken.insert(address, name);
                }
            }
        }
    }
}

/// Checks rules about all nodes together.
fn whole(check: &mut Check<'_>) {
    let declaration = check.declaration;
    let nodes = || {
        declaration
            .nodes
            .values()
            .filter(|node| node.source.is_sound("roles"))
    };
    if declaration.nodes.is_empty() {
        return;
    }
    let mut with = nodes().filter(|node| node.has(Role::Bootstrap));
    let Some(first) = with.next() else {
        let resolved = declaration.cluster.resolved.as_ref();
        let has_master = resolved.is_some_and(|resolved| resolved.master.is_some());
        if nodes().count() == declaration.nodes.len() && !has_master {
            check.cluster(
                "",
                "no node has the role `bootstrap`",
                "the first host's document is written by `ctl bootstrap`; put it back into nodes/",
            );
        }
        return;
    };
    for further in with {
        let at = further
            .roles
            .iter()
            .position(|have| *have == Role::Bootstrap)
            .unwrap_or_default();
        check.node(
            further,
            &format!("roles[{at}]"),
            format!(
                "the node `{}` already has the role `bootstrap`",
                first.metadata.name
            ),
            "only the first host has this role; remove it here",
        );
    }
}

/// On one of the cluster's hosts, checks that it has the address in its document.
fn own_address(check: &mut Check<'_>) {
    let Some(host) = check.context.host else {
        return;
    };
    let Some(node) = check.declaration.nodes.get(host.name.as_str()) else {
        return;
    };
    let have: Vec<Ipv4Addr> = host.usable().map(|(_, address)| address).collect();
    let listed = have
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ");
    if let Some(address) = node.address
        && !have.contains(&address)
    {
        let message = format!("this host does not have the address {address}; it has: {listed}");
        check.node(node, "address", message, "give the host's own address");
    } else if let Some(resolved) = &node.resolved
        && !have.contains(&resolved.control_plane)
    {
        let message = format!(
            "this host has lost its address {}; it has: {listed}",
            resolved.control_plane
        );
        check.node(
            node,
            "resolved.controlPlane",
            message,
            "give it back to the host; certificates and etcd name it",
        );
    }
}
