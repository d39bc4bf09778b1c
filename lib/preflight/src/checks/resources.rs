//! Checks of disks, swap and cgroups.

use std::collections::BTreeMap;

use super::Verdict;
use crate::node_facts::{ExistingCluster, NodeFacts};

/// The free space that the bootstrap needs, in MiB: images and etcd, packages, configuration.
const FREE: [(&str, u64); 3] = [("/var/lib", 4096), ("/usr", 1024), ("/etc", 16)];
/// The same for the directories in /var/lib, which may be on file systems of their own: images,
/// etcd, the bundle, and the files of pods. The sum is that of /var/lib.
const FILLED: [(&str, u64); 4] = [
    ("/var/lib/containerd", 2048),
    ("/var/lib/etcd", 256),
    ("/var/lib/halite", 1536),
    ("/var/lib/kubelet", 256),
];
/// The number of files in the unpacked images.
const INODES: u64 = 50_000;
/// The cgroup controllers that the kubelet requires.
const CONTROLLERS_V1: [&str; 6] = ["cpu", "cpuacct", "cpuset", "devices", "memory", "pids"];
const CONTROLLERS_V2: [&str; 4] = ["cpu", "cpuset", "memory", "pids"];
/// File systems that cannot hold an overlay's upper directory.
const UNSUITABLE: [&str; 6] = ["overlay", "nfs", "nfs4", "vfat", "fuse", "squashfs"];

pub(super) fn file_systems(facts: &NodeFacts) -> Verdict {
    if facts.file_systems.contains("overlay") {
        return Verdict::Good;
    }
    Verdict::bad(
        "the kernel has no overlay file system",
        "boot a kernel that supports it, or install its modules",
    )
}

pub(super) fn disk(facts: &NodeFacts) -> Verdict {
    let by_place = filled(facts);
    let is_known = by_place.is_some();
    let short: Vec<String> = FREE
        .iter()
        .filter(|(place, _)| *place != "/var/lib" || !is_known)
        .filter_map(|(place, needed)| {
            let free = facts.free.get(*place)?;
            (free < needed).then(|| format!("{place} has {free} MiB free, {needed} MiB are needed"))
        })
        .chain(by_place.unwrap_or_default())
        .collect();
    if short.is_empty() {
        return Verdict::Good;
    }
    too_little_space(
        facts,
        short.join("\n"),
        "free space there, or mount a larger disk",
    )
}

/// The directories that are too small, in groups on one file system; `None` if they are not known.
fn filled(facts: &NodeFacts) -> Option<Vec<String>> {
    let mut disks: BTreeMap<u64, (Vec<&str>, u64, u64)> = BTreeMap::new();
    for (place, needed) in FILLED {
        let found = facts.places.iter().find(|found| found.path == place)?;
        let disk = disks
            .entry(found.device)
            .or_insert((Vec::new(), 0, found.free));
        disk.0.push(place);
        disk.1 += needed;
    }
    let short = disks
        .into_values()
        .filter(|(_, needed, free)| free < needed);
    let text = |(places, needed, free): (Vec<&str>, u64, u64)| {
        // All on one file system, as on most hosts.
        let (places, verb) = match places.len() {
            4 => ("/var/lib".to_owned(), "has"),
            1 => (places.concat(), "has"),
            _ => (places.join(", "), "have"),
        };
        format!("{places} {verb} {free} MiB free, {needed} MiB are needed")
    };
    Some(short.map(text).collect())
}

/// The kubelet's own thresholds, which apply where its configuration has none
/// (`pkg/kubelet/apis/config/v1beta1/defaults_linux.go`).
const EVICTION: [(&str, &str); 2] = [("nodefs.available", "10%"), ("imagefs.available", "15%")];

/// Compares free space with the kubelet's eviction thresholds. A node below one is Ready, but runs
/// only critical pods.
pub(super) fn disk_pressure(facts: &NodeFacts) -> Verdict {
    let short: Vec<String> = facts
        .watched
        .iter()
        .filter_map(|watched| {
            let signal = format!("{}.available", watched.signal);
            let limit = match &facts.requirements.eviction {
                // A declared mapping replaces all defaults.
                Some(declared) => declared.get(&signal).map(String::as_str),
                None => EVICTION.iter().find(|(name, _)| *name == signal).map(|(_, limit)| *limit),
            }?;
            // An invalid quantity is a problem of the documents.
            let needed = threshold(limit, watched.size)?;
            (watched.free < needed).then(|| {
                format!(
                    "{} has {} MiB free; the kubelet runs no pods below {needed} MiB ({signal} {limit})",
                    watched.place, watched.free
                )
            })
        })
        .collect();
    if short.is_empty() {
        return Verdict::Good;
    }
    let hint =
        "free space there, mount a larger disk, or set `kubelet: {config: {evictionHard: {...}}}`";
    too_little_space(facts, short.join("\n"), hint)
}

/// Converts a threshold to MiB: a percentage of the size, or a quantity in Kubernetes' notation.
fn threshold(limit: &str, size: u64) -> Option<u64> {
    if let Some(percent) = limit.strip_suffix('%') {
        let percent: f64 = percent.parse().ok()?;
        // Sizes in MiB are exact in an f64 up to zebibytes.
        return Some((size as f64 * percent / 100.0) as u64);
    }
    const UNITS: [(&str, f64); 8] = [
        ("Ki", 1024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("Ti", 1_099_511_627_776.0),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
    ];
    let (number, unit) = UNITS
        .iter()
        .find_map(|(suffix, factor)| Some((limit.strip_suffix(suffix)?, *factor)))
        .unwrap_or((limit, 1.0));
    Some((number.parse::<f64>().ok()? * unit / 1_048_576.0) as u64)
}

/// Makes the verdict for missing space. On a host of this cluster, the cluster itself already uses
/// most of the space, and a repair must not stop because of that.
fn too_little_space(facts: &NodeFacts, message: String, hint: &str) -> Verdict {
    if facts.existing == ExistingCluster::This {
        return Verdict::warning(message, hint);
    }
    Verdict::bad(message, hint)
}

pub(super) fn inodes(facts: &NodeFacts) -> Verdict {
    match facts.inodes {
        Some(free) if free < INODES => too_little_space(
            facts,
            format!("/var/lib has {free} free inodes, {INODES} are needed"),
            "create a file system with more inodes there",
        ),
        _ => Verdict::Good,
    }
}

pub(super) fn writable(facts: &NodeFacts) -> Verdict {
    if facts.read_only.is_empty() {
        return Verdict::Good;
    }
    Verdict::bad(
        format!("read-only: {}", facts.read_only.join(", ")),
        "mount them for writing",
    )
}

pub(super) fn executable(facts: &NodeFacts) -> Verdict {
    // No program runs from the configuration directory.
    let places: Vec<&str> = facts
        .no_exec
        .iter()
        .map(String::as_str)
        .filter(|place| *place != "/etc")
        .collect();
    if places.is_empty() {
        return Verdict::Good;
    }
    Verdict::bad(
        format!("programs cannot run from: {}", places.join(", ")),
        "mount them without `noexec`; CNI plugins and containers run from there",
    )
}

pub(super) fn container_storage(facts: &NodeFacts) -> Verdict {
    let kind = facts.container_fs.as_str();
    if UNSUITABLE.contains(&kind) || kind.starts_with("fuse.") {
        return Verdict::bad(
            format!("/var/lib/containerd is on {kind}, which cannot hold containers"),
            "mount ext4 or xfs there",
        );
    }
    if facts.container_fs_untyped {
        return Verdict::bad(
            format!(
                "/var/lib/containerd is on {kind} without types of directory entries, which overlayfs needs"
            ),
            "make the file system again, with `mkfs.xfs -n ftype=1` or `mkfs.ext4`",
        );
    }
    Verdict::Good
}

pub(super) fn swap(facts: &NodeFacts) -> Verdict {
    if facts.swaps.is_empty() {
        return Verdict::Good;
    }
    let message = format!("swap is on: {}", facts.swaps.join(", "));
    if facts.requirements.manage_swap {
        return Verdict::warning(
            message,
            "it will be turned off, now and at every boot (host.manageSwap)",
        );
    }
    if facts.requirements.fail_swap_on {
        return Verdict::bad(
            message,
            "turn it off, or set `kubelet: {config: {failSwapOn: false}}`",
        );
    }
    Verdict::Good
}

pub(super) fn cgroup_version(facts: &NodeFacts) -> Verdict {
    match (facts.cgroup_version, facts.requirements.fail_cgroup_v1) {
        (2, _) | (1, false) => Verdict::Good,
        (1, true) => Verdict::bad(
            "the host has cgroup v1, which the kubelet refuses",
            "boot with cgroup v2, or set `kubelet: {config: {failCgroupV1: false}}`",
        ),
        _ => Verdict::bad(
            "no cgroups are mounted at /sys/fs/cgroup",
            "boot with cgroup v2",
        ),
    }
}

pub(super) fn cgroup_controllers(facts: &NodeFacts) -> Verdict {
    let needed: &[&str] = match facts.cgroup_version {
        1 => &CONTROLLERS_V1,
        2 => &CONTROLLERS_V2,
        _ => return Verdict::Good,
    };
    let missing: Vec<&str> = needed
        .iter()
        .filter(|name| !facts.cgroup_controllers.contains(**name))
        .copied()
        .collect();
    if missing.is_empty() {
        return Verdict::Good;
    }
    Verdict::bad(
        format!("cgroup controllers are missing: {}", missing.join(", ")),
        "enable them on the kernel's command line, for example cgroup_enable=memory",
    )
}

pub(super) fn kernel_log(facts: &NodeFacts) -> Verdict {
    if facts.kernel_log {
        return Verdict::Good;
    }
    Verdict::bad(
        "/dev/kmsg is missing; the kubelet does not start without it",
        "run: mknod /dev/kmsg c 1 11",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_read_as_the_kubelet_reads_them() {
        for (limit, mib) in [
            ("10%", 1000),
            ("12.5%", 1250),
            ("100Mi", 100),
            ("1Gi", 1024),
            ("1048576", 1),
            ("2M", 1),
        ] {
            assert_eq!(threshold(limit, 10_000), Some(mib), "{limit}");
        }
        assert_eq!(threshold("much", 10_000), None);
    }
}
