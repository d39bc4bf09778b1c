//! The facts about a host that the checks use, and their collection, which changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::Path;

use rustix::fs::StatVfsMountFlags;
use serde::{Deserialize, Serialize};

use crate::packages::PackageTraces;
use crate::part::ClusterPart;
use crate::pod_network::PodNetworkTraces;
use crate::storage::FilledPlace;
use crate::vip::WhoAnswers;
use crate::{firewalls, neighbours, resolver, storage};

/// Programs that the states and daemons call before any package of the bundle is installed.
pub const TOOLS: [&str; 8] = [
    "apt-get",
    "dpkg",
    "getent",
    "mount",
    "sh",
    "systemctl",
    "systemd-run",
    "umount",
];
/// The directories into which the bootstrap writes.
pub const DIRECTORIES: [&str; 5] = ["/etc", "/opt", "/usr", "/usr/local", "/var/lib"];
/// Files of an installed Kubernetes.
const KUBERNETES: [&str; 5] = [
    "/etc/kubernetes/admin.conf",
    "/etc/kubernetes/kubelet.conf",
    "/var/lib/etcd/member",
    "/var/lib/kubelet/config.yaml",
    "/etc/rancher",
];
/// The package repository of the cluster, which the states of a host create before anything else
/// that a check could find.
pub const REPOSITORY: [&str; 2] = [
    "/etc/apt/sources.list.d/halite.list",
    "/etc/yum.repos.d/halite.repo",
];
/// The file systems that the kubelet watches, with a directory on each.
const WATCHED: [(&str, &str); 2] = [
    ("nodefs", "/var/lib/kubelet"),
    ("imagefs", "/var/lib/containerd"),
];
const MIB: u64 = 1024 * 1024;
/// The directory of containers.
const CONTAINERS: &str = "/var/lib/containerd";

/// The cluster whose configuration is on the host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExistingCluster {
    /// No cluster.
    #[default]
    None,
    /// This cluster: the run continues or repairs an earlier one.
    This,
    /// Another cluster, by its name.
    Other(String),
}

/// The part of the declaration that the checks depend on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRequirements {
    /// `true` if Halite turns swap off.
    pub manage_swap: bool,
    /// `true` if the kubelet refuses to run with swap on.
    pub fail_swap_on: bool,
    /// `true` if the kubelet refuses to run with cgroup v1.
    pub fail_cgroup_v1: bool,
    /// `true` if Halite installs firewalld.
    pub manage_firewall: bool,
    /// `true` if kube-proxy uses nftables.
    pub nftables: bool,
    /// `evictionHard` of the kubelet's configuration; `None` means the kubelet's defaults.
    pub eviction: Option<BTreeMap<String, String>>,
    /// The VIP, if keepalived manages one.
    pub vip: Option<Ipv4Addr>,
    /// `true` if etcd is not on the cluster's hosts.
    #[serde(default)]
    pub external_etcd: bool,
    /// `true` if the operator provides the pod network.
    #[serde(default)]
    pub own_pod_network: bool,
    /// `true` if the name servers of the cluster's DNS are declared: those of hosts do not matter.
    #[serde(default)]
    pub forwarders: bool,
    /// The declared file with the name servers of pods (`resolvConf` of the kubelet).
    #[serde(default)]
    pub resolver: Option<String>,
    /// The packages of the bundle that the host gets by their names: name to version.
    #[serde(default)]
    pub packages: BTreeMap<String, String>,
}

/// A file system that the kubelet watches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchedFileSystem {
    /// The kubelet's name for it: `nodefs`, `imagefs`.
    pub signal: String,
    /// A directory on the file system.
    pub place: String,
    /// Its size in MiB.
    pub size: u64,
    /// Its free space in MiB.
    pub free: u64,
}

impl Default for HostRequirements {
    fn default() -> Self {
        Self {
            manage_swap: true,
            fail_swap_on: true,
            fail_cgroup_v1: true,
            manage_firewall: true,
            nftables: true,
            eviction: None,
            vip: None,
            external_etcd: false,
            own_pod_network: false,
            forwarders: false,
            resolver: None,
            packages: BTreeMap::new(),
        }
    }
}

/// The facts about a host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeFacts {
    /// The host's part in the cluster.
    pub part: ClusterPart,
    /// The requirements of the declaration.
    pub requirements: HostRequirements,
    /// The problems of the documents.
    pub documents: Vec<String>,
    /// The effective user id.
    pub uid: u32,
    /// `true` if systemd is the host's init.
    pub systemd: bool,
    /// `ID` of os-release.
    pub os: String,
    /// `VERSION_ID` of os-release.
    pub os_version: String,
    /// The architecture, as `uname -m` prints it.
    pub architecture: String,
    /// The kernel's release, as `uname -r` prints it.
    pub kernel: String,
    /// The number of processors.
    pub cpus: usize,
    /// The total memory in MiB.
    pub memory: u64,
    /// The free space in MiB, by directory.
    pub free: BTreeMap<String, u64>,
    /// The directories below /var/lib that are filled. Empty from a minion of an earlier version.
    pub places: Vec<FilledPlace>,
    /// The file systems that the kubelet watches.
    pub watched: Vec<WatchedFileSystem>,
    /// The free inodes of /var/lib; `None` if its file system has no limit.
    pub inodes: Option<u64>,
    /// Directories on read-only file systems.
    pub read_only: Vec<String>,
    /// Directories on file systems that are mounted with `noexec`.
    pub no_exec: Vec<String>,
    /// The type of the file system of /var/lib/containerd, as in /proc/mounts.
    pub container_fs: String,
    /// `true` if the file system of /var/lib/containerd stores no types of entries.
    pub container_fs_untyped: bool,
    /// The file systems that the kernel supports, including its modules.
    pub file_systems: BTreeSet<String>,
    /// Swap devices in use.
    pub swaps: Vec<String>,
    /// The cgroup version: 1, 2, or 0 if cgroups are not mounted.
    pub cgroup_version: u8,
    /// The cgroup controllers.
    pub cgroup_controllers: BTreeSet<String>,
    /// `true` if /dev/kmsg exists.
    pub kernel_log: bool,
    /// The programs of [`TOOLS`] that are installed.
    pub tools: BTreeSet<String>,
    /// Packages that may be in the way.
    pub packages: PackageTraces,
    /// `true` if a run of dpkg was interrupted.
    pub dpkg_interrupted: bool,
    /// The host name.
    pub host_name: String,
    /// Its name in the cluster.
    pub name: String,
    /// /etc/machine-id.
    pub machine_id: String,
    /// The host's time in seconds since 1970.
    pub now: i64,
    /// The time when the bundle was built, in seconds since 1970.
    pub built: Option<i64>,
    /// The problems of the bundle.
    pub bundle: Vec<String>,
    /// The cluster whose configuration is on the host.
    pub existing: ExistingCluster,
    /// Files of an installed Kubernetes.
    pub kubernetes: Vec<String>,
    /// Traces of a pod network.
    pub pod_network: PodNetworkTraces,
    /// The CA of the site's bundle servers, which the enrolment script writes there; empty if there
    /// is none.
    pub site_ca: String,
    /// `true` if the first states of a host have not made its package repository yet: it has
    /// nothing of Halite except what its enrolment left. Always `false` from a minion of an earlier
    /// version.
    pub untouched: bool,
    /// Other firewall services that are enabled.
    pub firewalls: Vec<String>,
    /// The TCP ports on which programs listen.
    pub listening: BTreeSet<u16>,
    /// The name servers that pods get from the host.
    pub name_servers: Vec<String>,
    /// The host's addresses.
    pub addresses: BTreeSet<Ipv4Addr>,
    /// `true` if another host has the VIP.
    pub vip_answers: bool,
    /// The MTUs of the host's interfaces, by address.
    pub mtus: BTreeMap<Ipv4Addr, u32>,
    /// The ports of other hosts that cannot be reached, with the reason.
    pub unreachable: Vec<String>,
    /// The answer at the virtual address of the API; `None` if it was not queried.
    pub vip_holder: Option<WhoAnswers>,
    /// The 99th percentile of the time of a small write to the disk of etcd, in microseconds.
    pub fsync_p99_us: Option<u64>,
}

fn text(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

impl NodeFacts {
    /// Collects the facts about this host. The caller fills in the fields about documents and
    /// bundle.
    pub async fn collect(requirements: HostRequirements, now: i64) -> Self {
        let uname = rustix::system::uname();
        let release = os_release(&text("/etc/os-release"));
        let (cgroup_version, cgroup_controllers) = cgroups();
        let mut facts = Self {
            uid: rustix::process::geteuid().as_raw(),
            systemd: Path::new("/run/systemd/system").is_dir(),
            os: release.get("ID").cloned().unwrap_or_default(),
            os_version: release.get("VERSION_ID").cloned().unwrap_or_default(),
            architecture: uname.machine().to_string_lossy().into_owned(),
            kernel: uname.release().to_string_lossy().into_owned(),
            cpus: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            memory: memory_mib(&text("/proc/meminfo")),
            places: FilledPlace::collect(),
            container_fs: file_system_of(
                &storage::existing(Path::new(CONTAINERS))
                    .unwrap_or_default()
                    .to_string_lossy(),
                &text("/proc/mounts"),
            ),
            container_fs_untyped: storage::has_no_types(Path::new(CONTAINERS)),
            file_systems: file_systems(
                &text("/proc/filesystems"),
                &uname.release().to_string_lossy(),
            ),
            swaps: swaps(&text("/proc/swaps")),
            cgroup_version,
            cgroup_controllers,
            kernel_log: Path::new("/dev/kmsg").exists(),
            tools: TOOLS
                .iter()
                .filter(|name| in_path(name))
                .map(ToString::to_string)
                .collect(),
            packages: PackageTraces::collect(),
            dpkg_interrupted: std::fs::read_dir("/var/lib/dpkg/updates")
                .is_ok_and(|mut list| list.next().is_some()),
            host_name: uname.nodename().to_string_lossy().into_owned(),
            machine_id: text("/etc/machine-id").trim().to_owned(),
            now,
            kubernetes: KUBERNETES
                .iter()
                .filter(|p| Path::new(p).exists())
                .map(ToString::to_string)
                .collect(),
            pod_network: PodNetworkTraces::collect(),
            site_ca: text("/etc/halite/pki/site-ca.crt"),
            untouched: !REPOSITORY.iter().any(|path| Path::new(path).exists()),
            firewalls: firewalls::enabled(),
            listening: listening(&format!(
                "{}\n{}",
                text("/proc/net/tcp"),
                text("/proc/net/tcp6")
            )),
            name_servers: resolver::for_pods(requirements.resolver.as_deref()),
            ..Self::default()
        };
        for place in DIRECTORIES {
            let Ok(stat) = rustix::fs::statvfs(place) else {
                continue;
            };
            facts.free.insert(
                place.to_owned(),
                stat.f_bavail.saturating_mul(stat.f_frsize) / MIB,
            );
            if stat.f_flag.contains(StatVfsMountFlags::RDONLY) {
                facts.read_only.push(place.to_owned());
            }
            if stat.f_flag.contains(StatVfsMountFlags::NOEXEC) {
                facts.no_exec.push(place.to_owned());
            }
            if place == "/var/lib" && stat.f_files > 0 {
                facts.inodes = Some(stat.f_favail);
            }
        }
        facts.watched = WATCHED
            .iter()
            .filter_map(|(signal, place)| watched(signal, place))
            .collect();
        if let Some(vip) = requirements.vip {
            facts.vip_answers = neighbours::has_holder(vip).await;
        }
        facts.requirements = requirements;
        facts
    }
}

/// The file system of a directory that may not exist yet.
fn watched(signal: &'static str, place: &'static str) -> Option<WatchedFileSystem> {
    let stat = Path::new(place)
        .ancestors()
        .find_map(|existing| rustix::fs::statvfs(existing).ok())?;
    let mib = |blocks: u64| blocks.saturating_mul(stat.f_frsize) / MIB;
    Some(WatchedFileSystem {
        signal: signal.to_owned(),
        place: place.to_owned(),
        size: mib(stat.f_blocks),
        free: mib(stat.f_bavail),
    })
}

fn os_release(text: &str) -> BTreeMap<String, String> {
    let pair = |line: &str| {
        let (key, value) = line.split_once('=')?;
        Some((
            key.trim().to_owned(),
            value.trim().trim_matches(['"', '\'']).to_owned(),
        ))
    };
    text.lines().filter_map(pair).collect()
}

fn memory_mib(meminfo: &str) -> u64 {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"));
    let kib: Option<u64> =
        line.and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse().ok());
    kib.unwrap_or(0) / 1024
}

/// The type of the file system of a path that may not exist: the type at the longest mount point
/// above it.
fn file_system_of(path: &str, mounts: &str) -> String {
    let entry = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        Some((words.next()?.to_owned(), words.next()?.to_owned()))
    };
    let above =
        |point: &str| point == "/" || path == point || path.starts_with(&format!("{point}/"));
    let mut best = (String::new(), String::new());
    // A later mount at the same place covers an earlier one.
    for (point, kind) in mounts
        .lines()
        .filter_map(entry)
        .filter(|(point, _)| above(point))
    {
        if point.len() >= best.0.len() {
            best = (point, kind);
        }
    }
    best.1
}

fn file_systems(text: &str, release: &str) -> BTreeSet<String> {
    let mut known: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .map(str::to_owned)
        .collect();
    // A file system that is not loaded may be available as a module.
    let modules =
        std::fs::read_to_string(format!("/lib/modules/{release}/modules.dep")).unwrap_or_default();
    if modules.contains("/overlay.ko") {
        known.insert("overlay".to_owned());
    }
    known
}

fn swaps(text: &str) -> Vec<String> {
    text.lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

fn cgroups() -> (u8, BTreeSet<String>) {
    let unified = text("/sys/fs/cgroup/cgroup.controllers");
    if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        return (2, unified.split_whitespace().map(str::to_owned).collect());
    }
    let names: BTreeSet<String> = std::fs::read_dir("/sys/fs/cgroup")
        .into_iter()
        .flatten()
        .flatten()
        .flat_map(|entry| {
            entry
                .file_name()
                .to_string_lossy()
                .split(',')
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .collect();
    (u8::from(names.contains("memory")), names)
}

fn in_path(program: &str) -> bool {
    ["/usr/sbin", "/usr/bin", "/sbin", "/bin"]
        .iter()
        .any(|dir| Path::new(dir).join(program).exists())
}

/// The local ports of sockets in the state LISTEN (0A) of /proc/net/tcp and tcp6.
fn listening(text: &str) -> BTreeSet<u16> {
    let port = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words.get(3) == Some(&"0A")).then_some(())?;
        u16::from_str_radix(words.get(1)?.rsplit(':').next()?, 16).ok()
    };
    text.lines().filter_map(port).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_tables_are_read() {
        let tcp = "  sl  local_address rem_address   st\n   0: 0100007F:192B 00000000:0000 0A 0\n   1: 0100007F:0016 0100007F:1 01 0\n";
        assert_eq!(listening(tcp), BTreeSet::from([6443]));
        assert_eq!(memory_mib("MemTotal:        2048000 kB\n"), 2000);
        assert_eq!(
            swaps("Filename Type Size\n/dev/sda2 partition 1 0 -2\n"),
            ["/dev/sda2"]
        );
        assert_eq!(
            os_release("ID=debian\nVERSION_ID=\"12\"\n")["VERSION_ID"],
            "12"
        );
    }

    #[test]
    fn the_nearest_mount_counts() {
        let mounts = "overlay / overlay rw 0 0\n/dev/a /var ext4 rw 0 0\n/dev/b /var/lib/containerd xfs rw 0 0\n";
        assert_eq!(file_system_of("/var/lib/containerd", mounts), "xfs");
        assert_eq!(file_system_of("/var/lib/etcd", mounts), "ext4");
        assert_eq!(file_system_of("/variable", mounts), "overlay");
    }

    #[tokio::test]
    async fn the_facts_of_this_host_are_collected() {
        let facts = NodeFacts::collect(HostRequirements::default(), 1).await;
        assert!(facts.memory > 0 && facts.cpus > 0 && !facts.kernel.is_empty());
        assert!(facts.tools.contains("sh"));
    }
}
