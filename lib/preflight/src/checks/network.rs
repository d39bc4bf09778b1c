//! Checks of documents, ports and name servers.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::Verdict;
use crate::node_facts::{ExistingCluster, NodeFacts};
use crate::part::{Added, ClusterPart, Planes};

/// kubeadm's `Port` checks and the components' health and metrics ports.
const API: u16 = 6443;
const CONTROL_PLANE: [u16; 3] = [API, 10257, 10259];
const NODE: [u16; 4] = [10248, 10249, 10250, 10256];
const ETCD: [u16; 3] = [2379, 2380, 2381];
const MASTER: [u16; 2] = [4550, 4552];
const BUNDLES: [u16; 1] = [4551];

/// Reports the problems of the documents, which were validated with the bundle and with this host's
/// addresses and routes.
pub(super) fn documents(facts: &NodeFacts) -> Verdict {
    if facts.documents.is_empty() {
        return Verdict::Good;
    }
    Verdict::bad(facts.documents.join("\n"), "")
}

pub(super) fn other_firewall(facts: &NodeFacts) -> Verdict {
    if facts.firewalls.is_empty() || !facts.requirements.manage_firewall {
        return Verdict::Good;
    }
    let units = facts.firewalls.join(", ");
    Verdict::bad(
        format!("another firewall is enabled: {units}"),
        "disable it (systemctl disable --now …), or keep it and set `host: {manageFirewall: false}`",
    )
}

/// The ports that a further role brings to a host that is already in the cluster. If `proxied`, the
/// host's own proxy listens on the API server's port until its control plane exists.
#[must_use]
pub fn gained_ports(control_plane: bool, etcd: bool, proxied: bool) -> BTreeSet<u16> {
    let planes = CONTROL_PLANE.iter().filter(|_| control_plane);
    let members = ETCD.iter().filter(|_| etcd);
    let own = |port: &u16| proxied && *port == API;
    planes
        .chain(members)
        .copied()
        .filter(|port| !own(port))
        .collect()
}

fn ports(facts: &NodeFacts, needed: &[(bool, &[u16])]) -> Verdict {
    // On a second run, these ports belong to this cluster.
    let is_own =
        |port: &u16| facts.existing == ExistingCluster::This && !roles(facts).gained.contains(port);
    let mut needed: Vec<u16> = needed
        .iter()
        .filter(|(is_needed, _)| *is_needed)
        .flat_map(|(_, ports)| ports.iter().copied())
        .filter(|port| !is_own(port))
        .collect();
    needed.sort_unstable();
    let taken: Vec<String> = needed
        .iter()
        .filter(|port| facts.listening.contains(port))
        .map(ToString::to_string)
        .collect();
    if taken.is_empty() {
        return Verdict::Good;
    }
    Verdict::bad(
        format!("something listens on TCP {}", taken.join(", ")),
        "stop that program; `ss -lntp` shows it",
    )
}

/// The parts of a first host: all of them.
static FIRST: Added = Added {
    runs_containers: true,
    control_plane: true,
    etcd: true,
    registry: true,
    clock: (0, 0),
    vip: None,
    addresses: Planes::UNKNOWN,
    others: Vec::new(),
    gained: BTreeSet::new(),
};

pub(super) fn roles(facts: &NodeFacts) -> &Added {
    match &facts.part {
        ClusterPart::First => &FIRST,
        ClusterPart::Added(added) => added,
    }
}

pub(super) fn ports_kubernetes(facts: &NodeFacts) -> Verdict {
    let roles = roles(facts);
    ports(
        facts,
        &[
            (roles.control_plane, &CONTROL_PLANE),
            (roles.runs_containers, &NODE),
        ],
    )
}

pub(super) fn ports_etcd(facts: &NodeFacts) -> Verdict {
    let runs_it = roles(facts).etcd && !facts.requirements.external_etcd;
    ports(facts, &[(runs_it, &ETCD)])
}

pub(super) fn ports_halite(facts: &NodeFacts) -> Verdict {
    let is_first = facts.part == ClusterPart::First;
    ports(
        facts,
        &[(is_first, &MASTER), (roles(facts).registry, &BUNDLES)],
    )
}

/// Reports leftovers of another pod network: the container runtime uses the first configuration
/// that it finds, and the plugin refuses an interface with an address of another network. The node
/// would be Ready, but its pods would reach nothing.
pub(super) fn other_pod_network(facts: &NodeFacts) -> Verdict {
    let traces = &facts.pod_network;
    // On a host of a cluster, these are the cluster's.
    let is_free = facts.existing == ExistingCluster::None && roles(facts).runs_containers;
    if traces.is_empty() || !is_free {
        return Verdict::Good;
    }
    let (mut names, mut commands) = (Vec::new(), Vec::new());
    if !traces.files.is_empty() {
        let files = traces.files.join(" ");
        names.push(format!("configuration {files}"));
        commands.push(format!("rm {files}"));
    }
    if !traces.interfaces.is_empty() {
        let links = traces.interfaces.join(" ");
        names.push(format!("interfaces {links}"));
        commands.push(format!(
            "for link in {links}; do ip link delete $link; done"
        ));
    }
    let message = format!("another pod network left its {}", names.join(", and "));
    let commands = commands.join("; ");
    if facts.requirements.own_pod_network {
        return Verdict::warning(
            message,
            format!(
                "this is fine if it is yours (`cni: {{plugin: none}}`); otherwise run: {commands}"
            ),
        );
    }
    Verdict::bad(message, format!("run: {commands}"))
}

/// Requires name servers that pods reach: CoreDNS forwards other domains to them, does not start
/// without one, and ends if one leads back to itself, as an address of loopback does in a pod.
pub(super) fn name_server(facts: &NodeFacts) -> Verdict {
    if facts.requirements.forwarders || !roles(facts).runs_containers {
        return Verdict::Good;
    }
    let file = facts
        .requirements
        .resolver
        .as_deref()
        .unwrap_or("/etc/resolv.conf");
    let hint = "add the site's `nameserver ADDRESS`, or declare the site's name servers: `dns: {forwarders: [ADDRESS]}`";
    if facts.name_servers.is_empty() {
        return Verdict::bad(
            format!("{file} names no name server, without which CoreDNS does not start"),
            hint,
        );
    }
    let is_local = |server: &&String| {
        let address = server.split('%').next().unwrap_or_default();
        address
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback() || address.is_unspecified())
    };
    let local: Vec<&str> = (facts.name_servers.iter().filter(is_local))
        .map(String::as_str)
        .collect();
    if local.is_empty() {
        return Verdict::Good;
    }
    Verdict::bad(
        format!(
            "{file} names {}, which is another address in each pod: CoreDNS would forward to itself, and end",
            local.join(", ")
        ),
        "declare the site's name servers: `dns: {forwarders: [ADDRESS]}`; or name a file with them: \
         `kubelet: {config: {resolvConf: PATH}}`",
    )
}

pub(super) fn vip(facts: &NodeFacts) -> Verdict {
    let Some(vip) = facts.requirements.vip else {
        return Verdict::Good;
    };
    if !facts.vip_answers
        || facts.addresses.contains(&vip)
        || facts.existing == ExistingCluster::This
    {
        return Verdict::Good;
    }
    Verdict::bad(
        format!("another host has the VIP {vip}"),
        "choose a free address for apiServer.vip; if it is your own load balancer, set `keepalived: false`",
    )
}
