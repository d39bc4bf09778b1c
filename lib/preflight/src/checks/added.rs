//! Checks of a host that is added: against the master and the other hosts.

use super::Verdict;
use crate::node_facts::{ExistingCluster, NodeFacts};
use crate::part::{Added, ClusterPart, Interface};
use crate::vip::WhoAnswers;

/// The differences of the clocks, in seconds, above which there is a warning, and a refusal.
/// Certificates are valid from the master's time; leases of etcd and nodes last seconds.
const CLOCK_NOTABLE: i64 = 2;
const CLOCK_WRONG: i64 = 30;
/// The latencies of etcd's disk in microseconds above which there is a warning, and a refusal.
const FSYNC_SLOW: u64 = 10_000;
const FSYNC_TOO_SLOW: u64 = 200_000;

/// Judges a host that is being added; passes any other host.
fn of(facts: &NodeFacts, judge: impl FnOnce(&Added) -> Verdict) -> Verdict {
    match &facts.part {
        ClusterPart::First => Verdict::Good,
        ClusterPart::Added(added) => judge(added),
    }
}

/// Checks the host name: a copied machine often keeps the original's name.
pub(super) fn unique_name(facts: &NodeFacts) -> Verdict {
    of(facts, |added| {
        let mut others = added.others.iter();
        let name = &facts.host_name;
        if *name == facts.name || !others.any(|other| other.name == *name) {
            return Verdict::Good;
        }
        Verdict::bad(
            format!("the host is called {name}, like another host of the cluster"),
            format!("hostnamectl set-hostname {}", facts.name),
        )
    })
}

pub(super) fn unique_machine_id(facts: &NodeFacts) -> Verdict {
    of(facts, |added| {
        let same = |id: &str| !id.is_empty() && id == facts.machine_id;
        let mut others = added.others.iter();
        let Some(other) = others.find(|other| same(&other.machine_id)) else {
            return Verdict::Good;
        };
        Verdict::bad(
            format!("/etc/machine-id is the same as on {}", other.name),
            "the host is a copy: rm /etc/machine-id && systemd-machine-id-setup, then reboot it",
        )
    })
}

/// Compares the clock with the master's. The host read its own between the query and the answer.
pub(super) fn clock(facts: &NodeFacts) -> Verdict {
    of(facts, |added| {
        let (asked, answered) = added.clock;
        let (behind, ahead) = (asked - facts.now, facts.now - answered);
        let (seconds, direction) = match behind > ahead {
            true => (behind, "behind"),
            false => (ahead, "ahead of"),
        };
        let message = format!("the clock is {seconds} s {direction} the master's");
        let hint = "set it, for example with `timedatectl set-time`, and declare `time.servers`";
        match seconds {
            CLOCK_WRONG.. => Verdict::bad(message, hint),
            CLOCK_NOTABLE.. => Verdict::warning(message, hint),
            _ => Verdict::Good,
        }
    })
}

pub(super) fn peers(facts: &NodeFacts) -> Verdict {
    if facts.unreachable.is_empty() {
        return Verdict::Good;
    }
    Verdict::bad(
        format!("cannot reach:\n{}", facts.unreachable.join("\n")),
        "open these ports between the hosts; a firewall in the network, or a wrong route",
    )
}

/// Compares the MTUs in each plane: packets larger than the smaller one are lost silently.
pub(super) fn mtu(facts: &NodeFacts) -> Verdict {
    of(facts, |added| {
        let own = added.addresses.and_then(|address| {
            let mtu = *facts.mtus.get(&address)?;
            Some(Interface { address, mtu })
        });
        let mut differing = added.others.iter().flat_map(|other| {
            let pairs = own.pairs(other.interfaces);
            let differing = pairs.filter(|(_, own, its)| own.mtu != its.mtu);
            differing.map(move |(plane, own, its)| (plane, own, other, its))
        });
        let Some((plane, own, other, its)) = differing.next() else {
            return Verdict::Good;
        };
        Verdict::warning(
            format!(
                "the MTU in the {plane} is {} at {}, and {} at {} of {}",
                own.mtu, own.address, its.mtu, its.address, other.name
            ),
            "give all hosts of a network the same MTU: larger packets are lost otherwise",
        )
    })
}

/// Compares the Debian releases: `nft` of Debian 12 crashes on sets that `nft` of Debian 13 has
/// made, and the hosts share one image of kube-proxy (kubernetes/kubernetes#136786).
pub(super) fn packet_filter(facts: &NodeFacts) -> Verdict {
    of(facts, |added| {
        if !facts.requirements.nftables || facts.os != "debian" || !added.runs_containers {
            return Verdict::Good;
        }
        let mut others = added.others.iter();
        let other = others.find_map(|other| {
            let version = other.debian.as_ref()?;
            (*version != facts.os_version).then_some((&other.name, version))
        });
        let Some((name, version)) = other else {
            return Verdict::Good;
        };
        Verdict::bad(
            format!(
                "the host has Debian {}, and {name} has Debian {version}: the older `nft`, of firewalld or of kube-proxy's image, \
                 crashes on rules of the newer one",
                facts.os_version
            ),
            "declare `kubeProxy: {mode: iptables}` before hosts of both releases run containers",
        )
    })
}

/// Checks that the VIP is not the host's own address, which would answer for the cluster.
pub(super) fn vip(facts: &NodeFacts) -> Verdict {
    of(facts, |added| match added.vip {
        // On a host of this cluster keepalived may hold it.
        Some(vip) if facts.addresses.contains(&vip) && facts.existing != ExistingCluster::This => {
            Verdict::bad(
                format!("the VIP {vip} is an address of this host"),
                "remove it there, or choose a free address for apiServer.vip",
            )
        }
        _ => Verdict::Good,
    })
}

/// Checks the answer at the VIP: another machine there would receive the hosts' API requests.
pub(super) fn vip_answers(facts: &NodeFacts) -> Verdict {
    of(facts, |added| {
        let vip = added.vip.map_or_else(String::new, |vip| vip.to_string());
        match &facts.vip_holder {
            None | Some(WhoAnswers::ThisCluster) => Verdict::Good,
            Some(WhoAnswers::Nothing(reason)) => Verdict::warning(
                format!("no API server answers at the VIP {vip}: {reason}"),
                "`ctl health` names the host that holds it; a firewall in the network, or a load balancer that does not exist yet",
            ),
            Some(WhoAnswers::Another(reason)) => Verdict::bad(
                format!(
                    "the machine that answers at the VIP {vip} does not belong to this cluster: {reason}"
                ),
                "another machine has the address: remove it there, or choose a free one for apiServer.vip",
            ),
        }
    })
}

pub(super) fn etcd_disk(facts: &NodeFacts) -> Verdict {
    let Some(latency) = facts.fsync_p99_us else {
        return Verdict::Good;
    };
    let message = format!(
        "a small write to the disk of /var/lib/etcd takes {} ms (99th percentile)",
        latency.div_ceil(1000)
    );
    if latency > FSYNC_TOO_SLOW {
        return Verdict::bad(
            message,
            "on such a disk, etcd keeps losing its leader: mount a faster disk at /var/lib/etcd",
        );
    }
    if latency > FSYNC_SLOW {
        return Verdict::warning(
            message,
            "etcd recommends at most 10 ms: use an SSD, or a separate disk at /var/lib/etcd",
        );
    }
    Verdict::Good
}
