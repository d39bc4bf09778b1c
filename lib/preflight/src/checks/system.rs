//! Checks of the system: user, operating system, hardware, names, clock.

use halite_names::{NodeName, NodeNameError};

use super::Verdict;
use crate::node_facts::{ExistingCluster, NodeFacts, TOOLS};
use crate::part::ClusterPart;

/// The operating systems of a first host. Every bundle has packages for them.
const SYSTEMS: [(&str, &str); 1] = [("debian", "12")];
/// The minimum number of processors, as in kubeadm (`NumCPU`).
const CPUS: usize = 2;
/// The minimum memory in MiB, as in kubeadm (`Mem`).
const MEMORY: u64 = 1700;
/// The oldest kernel for kube-proxy's nftables mode.
const KERNEL_NFTABLES: (u32, u32) = (5, 13);
/// The oldest kernel that Kubernetes is tested with.
const KERNEL: (u32, u32) = (4, 19);
const DAY: i64 = 24 * 60 * 60;
/// The maximum age of a bundle in seconds. With an older one, the clock is probably wrong.
const BUNDLE_LIFE: i64 = 20 * 365 * DAY;

pub(super) fn root(facts: &NodeFacts) -> Verdict {
    if facts.uid == 0 {
        return Verdict::Good;
    }
    Verdict::bad(
        "the program does not run as root",
        "run it as root, for example with sudo",
    )
}

pub(super) fn systemd(facts: &NodeFacts) -> Verdict {
    if facts.systemd {
        return Verdict::Good;
    }
    Verdict::bad(
        "systemd is not this host's init",
        "boot the host with systemd",
    )
}

pub(super) fn operating_system(facts: &NodeFacts) -> Verdict {
    if SYSTEMS.contains(&(facts.os.as_str(), facts.os_version.as_str())) {
        return Verdict::Good;
    }
    let known: Vec<String> = SYSTEMS
        .iter()
        .map(|(os, version)| format!("{os} {version}"))
        .collect();
    Verdict::bad(
        format!(
            "the first host of a cluster cannot be {} {}",
            facts.os, facts.os_version
        ),
        format!(
            "install {} on it; hosts with another system can be added later, if the bundle has packages for them",
            known.join(" or ")
        ),
    )
}

pub(super) fn architecture(facts: &NodeFacts) -> Verdict {
    if facts.architecture == "x86_64" {
        return Verdict::Good;
    }
    Verdict::bad(
        format!("the bundle's programs do not run on {}", facts.architecture),
        "use an x86_64 host",
    )
}

pub(super) fn kernel(facts: &NodeFacts) -> Verdict {
    let mut numbers = facts
        .kernel
        .split(['.', '-'])
        .map_while(|part| part.parse::<u32>().ok());
    let have = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let (minimum, reason) = if facts.requirements.nftables {
        (
            KERNEL_NFTABLES,
            "for kube-proxy's nftables mode; older ones need `kubeProxy: {mode: iptables}`",
        )
    } else {
        (KERNEL, "for Kubernetes")
    };
    if have >= minimum {
        return Verdict::Good;
    }
    Verdict::bad(
        format!("the kernel {} is too old", facts.kernel),
        format!("{}.{} is needed {reason}", minimum.0, minimum.1),
    )
}

/// Returns whether the host gets a control plane.
fn is_control_plane(facts: &NodeFacts) -> bool {
    match &facts.part {
        ClusterPart::First => true,
        ClusterPart::Added(added) => added.control_plane,
    }
}

pub(super) fn cpus(facts: &NodeFacts) -> Verdict {
    if facts.cpus >= CPUS || !is_control_plane(facts) {
        return Verdict::Good;
    }
    Verdict::bad(
        format!("the host has {} processor", facts.cpus),
        format!("a control plane needs {CPUS}"),
    )
}

pub(super) fn memory(facts: &NodeFacts) -> Verdict {
    if facts.memory >= MEMORY || !is_control_plane(facts) {
        return Verdict::Good;
    }
    Verdict::bad(
        format!("the host has {} MiB of memory", facts.memory),
        format!("a control plane needs {MEMORY} MiB"),
    )
}

pub(super) fn tools(facts: &NodeFacts) -> Verdict {
    // Debian's package tools; other distributions have their own.
    let debian = matches!(facts.os.as_str(), "debian" | "ubuntu");
    let missing: Vec<&str> = TOOLS
        .into_iter()
        .filter(|tool| debian || !matches!(*tool, "apt-get" | "dpkg"))
        .filter(|tool| !facts.tools.contains(*tool))
        .collect();
    if missing.is_empty() {
        return Verdict::Good;
    }
    Verdict::bad(
        format!("programs are missing: {}", missing.join(", ")),
        "install the packages that contain them",
    )
}

pub(super) fn host_name(facts: &NodeFacts) -> Verdict {
    let name = facts.name.as_str();
    if name == "localhost" || name.starts_with("localhost.") {
        return Verdict::bad(
            "the host is called localhost",
            "hostnamectl set-hostname NAME, or choose one with --name",
        );
    }
    match name.parse::<NodeName>() {
        Ok(name) if has_limited_name(facts) => {
            if let Err(error) = name.check_length() {
                return Verdict::bad(
                    error.to_string(),
                    "hostnamectl set-hostname NAME, or choose a shorter one with --name",
                );
            }
        }
        Ok(_) => {}
        Err(NodeNameError::Name(error)) => {
            return Verdict::bad(
                error.to_string(),
                "hostnamectl set-hostname NAME, or choose one with --name",
            );
        }
        Err(NodeNameError::Reserved) => {
            return Verdict::bad(
                "`master` is the name of the master itself",
                "give the host another name with --name",
            );
        }
    }
    if name == facts.host_name {
        return Verdict::Good;
    }
    Verdict::warning(
        format!(
            "the host is called {}, but {name} in the cluster",
            facts.host_name
        ),
        "that works; equal names are easier to find",
    )
}

/// Returns whether the host is new or runs a kubelet, whose certificate contains its name.
fn has_limited_name(facts: &NodeFacts) -> bool {
    match &facts.part {
        ClusterPart::First => true,
        ClusterPart::Added(added) => {
            added.runs_containers || facts.existing != ExistingCluster::This
        }
    }
}

pub(super) fn machine_id(facts: &NodeFacts) -> Verdict {
    let good =
        facts.machine_id.len() == 32 && facts.machine_id.bytes().all(|b| b.is_ascii_hexdigit());
    if good {
        return Verdict::Good;
    }
    Verdict::bad(
        "/etc/machine-id contains no id",
        "run: systemd-machine-id-setup",
    )
}

/// Checks the clock: certificates made on a host with a wrong clock are not valid on other hosts.
pub(super) fn clock(facts: &NodeFacts) -> Verdict {
    let Some(built) = facts.built else {
        return Verdict::Good;
    };
    let hint = "set the clock, for example with timedatectl set-time";
    let formatted = |seconds: i64| {
        jiff::Timestamp::from_second(seconds)
            .map_or_else(|_| seconds.to_string(), |time| time.to_string())
    };
    if facts.now < built - DAY {
        let message = format!(
            "the clock shows {}, which is before the bundle was built ({})",
            formatted(facts.now),
            formatted(built)
        );
        return Verdict::bad(message, hint);
    }
    if facts.now > built + BUNDLE_LIFE {
        return Verdict::bad(format!("the clock shows {}", formatted(facts.now)), hint);
    }
    Verdict::Good
}

pub(super) fn bundle(facts: &NodeFacts) -> Verdict {
    if facts.bundle.is_empty() {
        return Verdict::Good;
    }
    Verdict::bad(
        format!("the bundle is damaged:\n{}", facts.bundle.join("\n")),
        "copy it again from its source; `ctl bundle verify` reads every file",
    )
}

pub(super) fn other_cluster(facts: &NodeFacts) -> Verdict {
    match &facts.existing {
        ExistingCluster::Other(name) => Verdict::bad(
            format!("/etc/halite/cluster.yaml is the document of the cluster `{name}`"),
            "this host belongs to another cluster; use a bare host",
        ),
        ExistingCluster::None | ExistingCluster::This => Verdict::Good,
    }
}

pub(super) fn other_kubernetes(facts: &NodeFacts) -> Verdict {
    if facts.kubernetes.is_empty() || facts.existing != ExistingCluster::None {
        return Verdict::Good;
    }
    Verdict::bad(
        format!(
            "Kubernetes is already installed: {}",
            facts.kubernetes.join(", ")
        ),
        "use a bare host, or remove Kubernetes (kubeadm reset, if kubeadm installed it)",
    )
}
