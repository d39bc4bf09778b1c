//! Effects: every possible change of Halite to a host, as data.
//!
//! A state module only reads the host and returns the missing effects; one place carries them all
//! out. So the plan equals the apply: test mode predicts the same effects for later checks, and
//! each effect is one of the enumerated points at which a host may be killed and must recover.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::founding::FirstStart;
use super::pod::StaticPod;

/// One change to a host. Each is idempotent: carrying it out twice has the same result as once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Effect {
    /// Write a whole file atomically (temporary file, fsync, rename, fsync of the directory). A
    /// missing owner or mode keeps an existing file's; a new file gets `0644`, root, root.
    Write {
        /// Absolute path.
        path: String,
        /// The whole content.
        content: Vec<u8>,
        /// Owner, group and mode.
        meta: Meta,
    },
    /// Make a directory (not its parents).
    Mkdir {
        /// Absolute path.
        path: String,
        /// Owner, group and mode (default 0755).
        meta: Meta,
    },
    /// Make a symbolic link, replacing a file or link atomically.
    Symlink {
        /// Absolute path of the link.
        path: String,
        /// The path that it points to.
        target: String,
    },
    /// Change owner, group or mode of an entry.
    SetMeta {
        /// Absolute path.
        path: String,
        /// Values to set; `None` keeps the present one.
        meta: Meta,
    },
    /// Remove a file, link or directory tree.
    Remove {
        /// Absolute path.
        path: String,
    },
    /// Rename a file, link or directory tree within its file system. The new name must be free.
    Rename {
        /// Absolute path.
        from: String,
        /// Absolute path.
        to: String,
    },
    /// Install and remove packages in one transaction of the host's package manager, from the
    /// configured repositories.
    Packages {
        /// Name to required version (`None`: the newest offered).
        install: BTreeMap<String, Option<String>>,
        /// Names.
        remove: Vec<String>,
        /// Additional permissions of the installation.
        options: PackageOptions,
    },
    /// Read the indexes of repositories again.
    RefreshPackages {
        /// The only repository, which must be readable; `None` for all of them, of which some may
        /// be unreachable.
        only: Option<String>,
    },
    /// Bring a systemd unit into a state, over D-Bus.
    Unit {
        /// With suffix, for example `kubelet.service`.
        name: String,
        /// The action.
        action: UnitAction,
    },
    /// `systemctl daemon-reload`.
    DaemonReload,
    /// Run a program.
    Run(Command),
    /// Set a kernel parameter now (its file under `/etc/sysctl.d` is a `Write`).
    Sysctl {
        /// Dotted, for example `net.ipv4.ip_forward`.
        key: String,
        /// The value in the kernel's form.
        value: String,
    },
    /// Load a kernel module.
    LoadModule {
        /// Name.
        name: String,
    },
    /// Mount a file system now.
    Mount {
        /// Device or source.
        device: String,
        /// Mount point.
        path: String,
        /// File system type.
        fstype: String,
        /// Options, comma separated.
        options: String,
    },
    /// Unmount.
    Unmount {
        /// Mount point.
        path: String,
    },
    /// Turn one swap device or file off.
    SwapOff {
        /// The name in `/proc/swaps`.
        device: String,
    },
    /// Change firewalld's permanent and runtime configuration.
    Firewall(FirewallChange),
    /// Unpack an archive into a directory.
    Extract {
        /// The archive's bytes come from here: a path on the host.
        archive: String,
        /// Directory to unpack into.
        target: String,
        /// Path components to strip.
        strip: u32,
    },
    /// Pull an image into containerd's `k8s.io` namespace through its configured registry hosts.
    PullImage {
        /// The name under which it is stored, for example `registry.k8s.io/pause@sha256:…`.
        reference: String,
    },
    /// Make a key on the host (unless a usable one exists), have the CA sign it, and write both
    /// files. The chunk that requests it names the CA; the master signs only what it compiled into
    /// that chunk.
    Certificate(CertificateRequest),
    /// Request a URL every second until it answers as expected; an error at the deadline.
    WaitHttp {
        /// URL of the GET.
        url: String,
        /// The trust anchor for the server's certificate.
        trust: Trust,
        /// Expected status.
        status: u16,
        /// Text that the body contains.
        body: Option<String>,
        /// Seconds.
        seconds: u64,
    },
    /// Wait until the pod of a manifest is ready, and record the manifest as good; an error at the
    /// deadline, after the last good manifest has replaced a bad one.
    StaticPod(StaticPod),
    /// Start etcd once, to make the data of a new cluster's first member.
    FoundEtcd(FirstStart),
    /// Start etcd once, so that a joining member receives its data.
    JoinEtcd(FirstStart),
}

/// Additional permissions of a package installation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackageOptions {
    /// Install recommended packages; `None`: the configuration of the host's package manager
    /// decides.
    pub recommends: Option<bool>,
    /// Remove installed packages that conflict.
    pub erasing: bool,
    /// Replace an installed version by a lower one.
    pub downgrades: bool,
    /// Take Halite's repository first, whatever the versions in others.
    pub prefers_bundle: bool,
}

/// The trust anchor for the certificate of a TLS server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trust {
    /// The CAs that the host trusts.
    Host,
    /// This CA only, PEM.
    Ca(String),
    /// Any certificate is accepted, because the state says so.
    Unverified,
}

/// Owner, group and mode.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// User name or number.
    pub user: Option<String>,
    /// Group name or number.
    pub group: Option<String>,
    /// Permission bits.
    pub mode: Option<u32>,
}

/// An action on a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "systemctl's own verbs, but the last")]
pub enum UnitAction {
    Start,
    Stop,
    Restart,
    Reload,
    Enable,
    Disable,
    Mask,
    Unmask,
    /// Fails unless the unit, which was just started, runs. systemd counts a program as started
    /// when its process exists, even if that ends at once.
    Verify,
}

/// A program to run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// Program and arguments; a shell line is `["/bin/sh", "-c", line]`.
    pub argv: Vec<String>,
    /// Working directory; `/` when absent.
    pub cwd: Option<String>,
    /// Added to the environment.
    pub env: BTreeMap<String, String>,
    /// Written to standard input: secrets go here, never into `argv`.
    pub stdin: Option<Vec<u8>>,
    /// User to run as.
    pub runas: Option<String>,
    /// Seconds; `None`: no limit.
    pub timeout: Option<u64>,
    /// Exit codes that count as success in addition to 0.
    pub success_retcodes: Vec<i32>,
    /// Permission bits that new files do not get; `None`: the minion's.
    #[serde(default)]
    pub umask: Option<u32>,
}

impl Command {
    /// Tests whether an exit code of the command is a success.
    #[must_use]
    pub fn is_success(&self, code: i32) -> bool {
        code == 0 || self.success_retcodes.contains(&code)
    }
}

/// Directories in which programs are found.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Exit code and output of a program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// Exit code; 128 + signal when killed by one.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// A change to firewalld. Settings are firewalld's own keys and values (see `firewalld.zone(5)`,
/// `firewalld.policy(5)`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FirewallChange {
    /// Make or replace a zone, in both configurations.
    Zone {
        /// Name.
        name: String,
        /// Required settings.
        settings: FirewallSettings,
    },
    /// Make or replace a policy, in both configurations.
    Policy {
        /// Name; ours begin with `halite-`.
        name: String,
        /// Required settings.
        settings: FirewallSettings,
    },
    /// Make or replace sets of addresses, in both configurations. All at once: firewalld learns of
    /// new sets only when it reloads.
    Ipsets {
        /// Required sets by name; ours begin with `halite-`.
        sets: BTreeMap<String, IpsetSettings>,
    },
    /// Remove a zone that we own.
    RemoveZone {
        /// Name.
        name: String,
    },
    /// Remove a policy that we own.
    RemovePolicy {
        /// Name.
        name: String,
    },
    /// Remove a set of addresses that we own.
    RemoveIpset {
        /// Name.
        name: String,
    },
}

/// A set of addresses in firewalld (`firewalld.ipset(5)`); entries are compared as a set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IpsetSettings {
    /// firewalld's name of the type, for example `hash:ip`.
    #[serde(rename = "type")]
    pub kind: String,
    /// firewalld's options, for example `timeout`.
    pub options: BTreeMap<String, String>,
    /// Addresses.
    pub entries: Vec<String>,
}

/// Settings of a zone or policy; lists are compared as sets. Absent lists are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "firewalld's own names")]
pub struct FirewallSettings {
    pub description: String,
    pub target: String,
    pub services: Vec<String>,
    /// `port/protocol`.
    pub ports: Vec<String>,
    pub protocols: Vec<String>,
    /// Zones only.
    pub sources: Vec<String>,
    /// Zones only.
    pub interfaces: Vec<String>,
    pub rich_rules: Vec<String>,
    pub masquerade: bool,
    /// Zones only: forwarding within the zone.
    pub forward: bool,
    /// Policies only.
    pub ingress_zones: Vec<String>,
    /// Policies only.
    pub egress_zones: Vec<String>,
    /// Policies only; lower goes first.
    pub priority: Option<i32>,
}

/// A certificate that a state requests.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CertificateRequest {
    /// Path of the private key (PEM, PKCS#8 or SEC1), mode 0600.
    pub key_path: String,
    /// Path of the certificate (PEM); if it equals `key_path`, certificate and key are in one file,
    /// in that order.
    pub cert_path: String,
    /// Key algorithm: `ecdsa-p256`, `rsa-2048`, `rsa-4096` or `ed25519`.
    pub algorithm: String,
    /// CA that signs: `kubernetes`, `etcd`, `front-proxy`, `site`.
    pub ca: String,
    /// Wrap the result into a kubeconfig file at `cert_path` instead (server, cluster, user, CA):
    /// the fields of `kubeconfig.managed`.
    pub kubeconfig: Option<Value>,
    /// Owner, group and mode of the certificate file.
    pub meta: Meta,
    /// Append the CA's certificate to `cert_path`.
    pub append_ca: bool,
    /// The chunk's tag, by which the master finds the chunk that it compiled.
    pub tag: String,
    /// The chunk's arguments (subject, SANs, usages, lifetime), for building the CSR.
    pub spec: Value,
}
