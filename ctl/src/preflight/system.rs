//! Checks of the system: who, what, when.

use super::facts::TOOLS;
use super::{Facts, Installed, Verdict};

/// Systems that the first host of a cluster can have: every bundle has packages for them.
const SYSTEMS: [(&str, &str); 1] = [("debian", "12")];
/// kubeadm's own floor (`NumCPU`).
const CPUS: usize = 2;
/// kubeadm's own floor (`Mem`), MiB.
const MEMORY: u64 = 1700;
/// kube-proxy's nftables mode asks for it.
const KERNEL_NFTABLES: (u32, u32) = (5, 13);
/// The oldest that Kubernetes is tested with.
const KERNEL: (u32, u32) = (4, 19);
const DAY: i64 = 24 * 60 * 60;
/// A bundle that is older is not installed anew: rather the clock is wrong.
const BUNDLE_LIFE: i64 = 20 * 365 * DAY;

pub(super) fn root(facts: &Facts) -> Verdict {
    if facts.uid == 0 {
        return Verdict::Good;
    }
    Verdict::bad(
        "this does not run as root",
        "run it as root, for example with sudo",
    )
}

pub(super) fn systemd(facts: &Facts) -> Verdict {
    if facts.systemd {
        return Verdict::Good;
    }
    Verdict::bad(
        "systemd is not this host's init",
        "boot the host with systemd",
    )
}

pub(super) fn operating_system(facts: &Facts) -> Verdict {
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
            "install {} there; hosts of another system can be added to it, if the bundle has packages for them",
            known.join(" or ")
        ),
    )
}

pub(super) fn architecture(facts: &Facts) -> Verdict {
    if facts.architecture == "x86_64" {
        return Verdict::Good;
    }
    Verdict::bad(
        format!("the bundle's programs do not run on {}", facts.architecture),
        "take an x86_64 host",
    )
}

pub(super) fn kernel(facts: &Facts) -> Verdict {
    let mut numbers = facts
        .kernel
        .split(['.', '-'])
        .map_while(|part| part.parse::<u32>().ok());
    let have = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let (wanted, why) = if facts.wanted.nftables {
        (
            KERNEL_NFTABLES,
            "for kube-proxy's nftables mode; older ones need `kubeProxy: {mode: iptables}`",
        )
    } else {
        (KERNEL, "for Kubernetes")
    };
    if have >= wanted {
        return Verdict::Good;
    }
    Verdict::bad(
        format!("the kernel {} is too old", facts.kernel),
        format!("{}.{} is needed {why}", wanted.0, wanted.1),
    )
}

pub(super) fn cpus(facts: &Facts) -> Verdict {
    if facts.cpus >= CPUS {
        return Verdict::Good;
    }
    Verdict::bad(
        format!("the host has {} processor", facts.cpus),
        format!("a control plane needs {CPUS}"),
    )
}

pub(super) fn memory(facts: &Facts) -> Verdict {
    if facts.memory >= MEMORY {
        return Verdict::Good;
    }
    Verdict::bad(
        format!("the host has {} MiB of memory", facts.memory),
        format!("a control plane needs {MEMORY} MiB"),
    )
}

pub(super) fn tools(facts: &Facts) -> Verdict {
    let missing: Vec<&str> = TOOLS
        .into_iter()
        .filter(|tool| !facts.tools.contains(*tool))
        .collect();
    if missing.is_empty() {
        return Verdict::Good;
    }
    Verdict::bad(
        format!("programs are missing: {}", missing.join(", ")),
        "install the packages that have them",
    )
}

/// On a host of this cluster it was our own installation that was cut off, or that still goes on:
/// the states finish it.
pub(super) fn packages(facts: &Facts) -> Verdict {
    if !facts.dpkg_interrupted || facts.installed == Installed::This {
        return Verdict::Good;
    }
    Verdict::bad(
        "an installation of packages was interrupted",
        "run: dpkg --configure -a",
    )
}

pub(super) fn host_name(facts: &Facts) -> Verdict {
    let name = facts.name.as_str();
    if name == "localhost" || name.starts_with("localhost.") {
        return Verdict::bad(
            "the host is called localhost",
            "hostnamectl set-hostname NAME, or give one with --name",
        );
    }
    if let Err(error) = halite_proto::identity::check_name(name) {
        return Verdict::bad(
            error.to_string(),
            "hostnamectl set-hostname NAME, or give one with --name",
        );
    }
    if name == halite_proto::identity::MASTER_ID {
        return Verdict::bad(
            "`master` stands for the master itself",
            "give the host another name with --name",
        );
    }
    if name == facts.host_name {
        return Verdict::Good;
    }
    Verdict::warning(
        format!(
            "the host is called {}, and {name} in the cluster",
            facts.host_name
        ),
        "that works; equal names are easier to find",
    )
}

pub(super) fn machine_id(facts: &Facts) -> Verdict {
    let good =
        facts.machine_id.len() == 32 && facts.machine_id.bytes().all(|b| b.is_ascii_hexdigit());
    if good {
        return Verdict::Good;
    }
    Verdict::bad(
        "/etc/machine-id holds no id",
        "run: systemd-machine-id-setup",
    )
}

/// Certificates of a host whose clock is wrong are not valid anywhere else.
pub(super) fn clock(facts: &Facts) -> Verdict {
    let Some(built) = facts.built else {
        return Verdict::Good;
    };
    let hint = "set the clock, for example with timedatectl set-time";
    let shown = |seconds: i64| {
        jiff::Timestamp::from_second(seconds)
            .map_or_else(|_| seconds.to_string(), |time| time.to_string())
    };
    if facts.now < built - DAY {
        let message = format!(
            "the clock says {}, which is before the bundle was made ({})",
            shown(facts.now),
            shown(built)
        );
        return Verdict::bad(message, hint);
    }
    if facts.now > built + BUNDLE_LIFE {
        return Verdict::bad(format!("the clock says {}", shown(facts.now)), hint);
    }
    Verdict::Good
}

pub(super) fn bundle(facts: &Facts) -> Verdict {
    if facts.bundle.is_empty() {
        return Verdict::Good;
    }
    Verdict::bad(
        format!("the bundle is damaged:\n{}", facts.bundle.join("\n")),
        "copy it again from its source; `ctl bundle verify` reads every file",
    )
}

pub(super) fn other_cluster(facts: &Facts) -> Verdict {
    match &facts.installed {
        Installed::Other(name) => Verdict::bad(
            format!("/etc/halite/cluster.yaml is that of the cluster `{name}`"),
            "this host belongs to another cluster; take a bare one",
        ),
        Installed::Nothing | Installed::This => Verdict::Good,
    }
}

pub(super) fn other_kubernetes(facts: &Facts) -> Verdict {
    if facts.kubernetes.is_empty() || facts.installed != Installed::Nothing {
        return Verdict::Good;
    }
    Verdict::bad(
        format!(
            "there is a Kubernetes already: {}",
            facts.kubernetes.join(", ")
        ),
        "take a bare host, or remove that (for one made with kubeadm: kubeadm reset)",
    )
}
