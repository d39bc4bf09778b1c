//! Checks of documents, ports and name servers.

use super::{ExistingCluster, NodeFacts, Verdict};

/// kubeadm's `Port` checks and the components' health and metrics ports.
const KUBERNETES: [u16; 7] = [6443, 10248, 10249, 10250, 10256, 10257, 10259];
const ETCD: [u16; 3] = [2379, 2380, 2381];
const HALITE: [u16; 3] = [4550, 4551, 4552];

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

fn ports(facts: &NodeFacts, needed: &[u16]) -> Verdict {
    // On a second run, these are the ports of this cluster.
    if facts.existing == ExistingCluster::This {
        return Verdict::Good;
    }
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
        "stop it; `ss -lntp` shows which program it is",
    )
}

pub(super) fn ports_kubernetes(facts: &NodeFacts) -> Verdict {
    ports(facts, &KUBERNETES)
}

pub(super) fn ports_etcd(facts: &NodeFacts) -> Verdict {
    ports(facts, &ETCD)
}

pub(super) fn ports_halite(facts: &NodeFacts) -> Verdict {
    ports(facts, &HALITE)
}

/// Requires a name server: CoreDNS forwards other domains to it, and does not start without one.
pub(super) fn name_server(facts: &NodeFacts) -> Verdict {
    if !facts.name_servers.is_empty() {
        return Verdict::Good;
    }
    Verdict::bad(
        "/etc/resolv.conf names no name server, without which CoreDNS does not start",
        "add the site's `nameserver ADDRESS`",
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
        format!("another host answers at the VIP {vip}"),
        "choose a free address for apiServer.vip; if it is your own load balancer, set `keepalived: false`",
    )
}
