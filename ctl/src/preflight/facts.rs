//! What the checks look at, and how it is found out. Nothing here changes anything.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use rustix::fs::StatVfsMountFlags;

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
/// Where things are put.
pub const PLACES: [&str; 5] = ["/etc", "/opt", "/usr", "/usr/local", "/var/lib"];
/// Traces of a Kubernetes.
const KUBERNETES: [&str; 5] = [
    "/etc/kubernetes/admin.conf",
    "/etc/kubernetes/kubelet.conf",
    "/var/lib/etcd/member",
    "/var/lib/kubelet/config.yaml",
    "/etc/rancher",
];
/// What the kubelet watches, and where it is.
const WATCHED: [(&str, &str); 2] = [
    ("nodefs", "/var/lib/kubelet"),
    ("imagefs", "/var/lib/containerd"),
];
const MIB: u64 = 1024 * 1024;
/// How long a host may take to answer for the VIP.
const VIP_ANSWER: Duration = Duration::from_millis(400);

/// Whose configuration is on the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Installed {
    /// Nobody's.
    #[default]
    Nothing,
    /// This cluster's: the bootstrap goes on, or repairs.
    This,
    /// Another cluster's.
    Other(String),
}

/// What is declared, as far as checks depend on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Halite turns swap off.
    pub manage_swap: bool,
    /// The kubelet refuses to run with swap on.
    pub fail_swap_on: bool,
    /// The kubelet refuses to run with cgroup v1.
    pub fail_cgroup_v1: bool,
    /// Halite brings firewalld.
    pub manage_firewall: bool,
    /// kube-proxy uses nftables.
    pub nftables: bool,
    /// `evictionHard` of the kubelet's configuration; without one the kubelet has its own.
    pub eviction: Option<BTreeMap<String, String>>,
    /// The VIP, if keepalived is to hold one.
    pub vip: Option<Ipv4Addr>,
}

/// A file system that the kubelet watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watched {
    /// The kubelet's name for it: `nodefs`, `imagefs`.
    pub signal: &'static str,
    /// The directory that decides which file system it is.
    pub place: &'static str,
    /// Its size, MiB.
    pub size: u64,
    /// Its free space, MiB.
    pub free: u64,
}

impl Default for Wanted {
    fn default() -> Self {
        Self {
            manage_swap: true,
            fail_swap_on: true,
            fail_cgroup_v1: true,
            manage_firewall: true,
            nftables: true,
            eviction: None,
            vip: None,
        }
    }
}

/// Everything that the checks look at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// What is declared.
    pub wanted: Wanted,
    /// What is wrong with the documents, ready to show.
    pub documents: Vec<String>,
    /// Effective user.
    pub uid: u32,
    /// systemd is the host's init.
    pub systemd: bool,
    /// `ID` of os-release.
    pub os: String,
    /// `VERSION_ID` of os-release.
    pub os_version: String,
    /// As `uname -m`.
    pub architecture: String,
    /// As `uname -r`.
    pub kernel: String,
    /// Processors.
    pub cpus: usize,
    /// Whole memory, MiB.
    pub memory: u64,
    /// Free space by place, MiB.
    pub free: BTreeMap<String, u64>,
    /// The file systems that the kubelet watches.
    pub watched: Vec<Watched>,
    /// Free inodes below /var/lib; `None` where the file system does not count them.
    pub inodes: Option<u64>,
    /// Places on read-only file systems.
    pub read_only: Vec<String>,
    /// Places on file systems that run no programs.
    pub no_exec: Vec<String>,
    /// File system of /var/lib/containerd, as in /proc/mounts.
    pub container_fs: String,
    /// File systems that the kernel knows, or has a module for.
    pub file_systems: BTreeSet<String>,
    /// Swap devices in use.
    pub swaps: Vec<String>,
    /// 1, 2, or 0 when none is mounted.
    pub cgroup_version: u8,
    /// Controllers.
    pub cgroup_controllers: BTreeSet<String>,
    /// /dev/kmsg is there.
    pub kernel_log: bool,
    /// Programs of [`TOOLS`] that are there.
    pub tools: BTreeSet<String>,
    /// dpkg was interrupted.
    pub dpkg_interrupted: bool,
    /// The host's own name.
    pub host_name: String,
    /// Its name in the cluster.
    pub name: String,
    /// /etc/machine-id.
    pub machine_id: String,
    /// Seconds since the epoch.
    pub now: i64,
    /// When the bundle was made, likewise.
    pub built: Option<i64>,
    /// What is wrong with the bundle.
    pub bundle: Vec<String>,
    /// Whose configuration is here.
    pub installed: Installed,
    /// Traces of a Kubernetes.
    pub kubernetes: Vec<String>,
    /// Other firewall services that are enabled.
    pub firewalls: Vec<String>,
    /// TCP ports on which something listens.
    pub listening: BTreeSet<u16>,
    /// Name servers in /etc/resolv.conf.
    pub name_servers: Vec<String>,
    /// The host's addresses.
    pub addresses: BTreeSet<Ipv4Addr>,
    /// Somebody answers at the VIP.
    pub vip_answers: bool,
}

fn text(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

impl Facts {
    /// Looks at this host. What depends on documents and bundle is the caller's to fill in.
    pub async fn gather(wanted: Wanted, now: i64) -> Self {
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
            container_fs: file_system_of("/var/lib/containerd", &text("/proc/mounts")),
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
            firewalls: ["nftables", "ufw", "netfilter-persistent"]
                .iter()
                .filter(|unit| {
                    let link = format!("{unit}.service");
                    ["multi-user.target.wants", "sysinit.target.wants"]
                        .iter()
                        .any(|target| {
                            Path::new("/etc/systemd/system")
                                .join(target)
                                .join(&link)
                                .exists()
                        })
                })
                .map(ToString::to_string)
                .collect(),
            listening: listening(&format!(
                "{}\n{}",
                text("/proc/net/tcp"),
                text("/proc/net/tcp6")
            )),
            name_servers: name_servers(&text("/etc/resolv.conf")),
            ..Self::default()
        };
        for place in PLACES {
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
        if let Some(vip) = wanted.vip {
            facts.vip_answers = answers(vip).await;
        }
        facts.wanted = wanted;
        facts
    }
}

/// The file system that a directory is, or will be, on.
fn watched(signal: &'static str, place: &'static str) -> Option<Watched> {
    let stat = Path::new(place)
        .ancestors()
        .find_map(|existing| rustix::fs::statvfs(existing).ok())?;
    let mib = |blocks: u64| blocks.saturating_mul(stat.f_frsize) / MIB;
    Some(Watched {
        signal,
        place,
        size: mib(stat.f_blocks),
        free: mib(stat.f_bavail),
    })
}

/// Whether a host has the address: it accepts or refuses a connection, instead of leaving it
/// unanswered.
async fn answers(address: Ipv4Addr) -> bool {
    let target = SocketAddr::from((address, 6443));
    match tokio::time::timeout(VIP_ANSWER, tokio::net::TcpStream::connect(target)).await {
        Ok(Ok(_)) => true,
        Ok(Err(error)) => error.kind() == std::io::ErrorKind::ConnectionRefused,
        Err(_) => false,
    }
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

/// The type of the file system that a path is, or would be, on: the longest mount point above it.
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
    // What is not there yet may be a module.
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

/// Local ports of sockets in the state LISTEN (0A) of /proc/net/tcp and tcp6.
fn listening(text: &str) -> BTreeSet<u16> {
    let port = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words.get(3) == Some(&"0A")).then_some(())?;
        u16::from_str_radix(words.get(1)?.rsplit(':').next()?, 16).ok()
    };
    text.lines().filter_map(port).collect()
}

fn name_servers(text: &str) -> Vec<String> {
    let server = |line: &str| Some(line.trim().strip_prefix("nameserver")?.trim().to_owned());
    text.lines()
        .filter_map(server)
        .filter(|server| !server.is_empty())
        .collect()
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
            name_servers("# x\nnameserver 10.0.0.1\nsearch a\n"),
            ["10.0.0.1"]
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
    async fn this_host_can_be_looked_at() {
        let facts = Facts::gather(Wanted::default(), 1).await;
        assert!(facts.memory > 0 && facts.cpus > 0 && !facts.kernel.is_empty());
        assert!(facts.tools.contains("sh"));
    }
}
