//! The host, behind one trait: questions that modules ask, and [`effect::Effect`]s to carry out.
//!
//! Three implementations: the real Linux host; an overlay that predicts effects over another host
//! (test mode); and, in the crate `halite-minion-fake`, a host in memory for tests.

pub mod accounts;
pub mod archive;
pub mod certificate;
pub mod effect;
mod error;
pub mod founding;
#[expect(
    clippy::disallowed_methods,
    reason = "the layer that works on the host"
)]
pub mod linux;
pub mod overlay;
mod overlay_effects;
mod overlay_files;
mod overlay_mounts;
mod overlay_units;
pub mod pod;
pub mod static_pod;
mod stop;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use self::effect::{
    Command, Effect, FirewallSettings, IpsetSettings, Output, PackageOptions, Trust,
};

pub use self::error::{HostError, HostResult};
pub use self::stop::Stop;

/// A boxed, sendable future: the host is used as `dyn Host`, so that tests, overlay and real host
/// are one type.
pub type HostFuture<'a, T> = std::pin::Pin<Box<dyn std::future::Future<Output = T> + Send + 'a>>;

/// An entry of the file system (links are not followed).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// Kind.
    pub kind: FileKind,
    /// Permission bits (07777).
    pub mode: u32,
    /// Owner's name, or number if it has no name.
    pub user: String,
    /// Group's name, or number if it has no name.
    pub group: String,
    /// Bytes.
    pub size: u64,
    /// Target, for links.
    pub target: Option<String>,
}

/// Kind of a directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "self-explaining")]
pub enum FileKind {
    File,
    Directory,
    Symlink,
    Other,
}

/// State of a systemd unit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnitState {
    /// `loaded`, `not-found`, `masked`, …
    pub load: String,
    /// `active`, `inactive`, `failed`, `activating`, …
    pub active: String,
    /// `enabled`, `disabled`, `static`, `masked`, `` (no unit file), …
    pub file: String,
    /// The unit file changed on disk since it was loaded.
    pub needs_reload: bool,
}

/// A user account.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "passwd(5)'s own names")]
pub struct User {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    pub home: String,
    pub shell: String,
    pub gecos: String,
    /// Names of supplementary groups, sorted.
    pub groups: Vec<String>,
}

/// A group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "group(5)'s own names")]
pub struct Group {
    pub name: String,
    pub gid: u32,
    pub members: Vec<String>,
}

/// A mounted file system.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "fstab(5)'s own names")]
pub struct MountPoint {
    pub device: String,
    /// The directory of the file system that is visible at the path, `/` unless it is a bind mount;
    /// see proc_pid_mountinfo(5).
    pub root: String,
    pub path: String,
    pub fstype: String,
    pub options: String,
}

/// Firewalld's permanent and runtime view of one zone or policy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FirewallView {
    /// In the permanent configuration; `None` when absent.
    pub permanent: Option<FirewallSettings>,
    /// In the running firewall; `None` when absent.
    pub runtime: Option<FirewallSettings>,
}

/// Firewalld's permanent and runtime view of one set of addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IpsetView {
    /// In the permanent configuration; `None` when absent.
    pub permanent: Option<IpsetSettings>,
    /// In the running firewall; `None` when absent.
    pub runtime: Option<IpsetSettings>,
}

/// The host's package manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "self-explaining")]
pub enum PackageManager {
    Apt,
    Dnf,
}

/// Returns whether a unit file has an `[Install]` section. A unit without one is `static`: it
/// cannot be enabled (systemd.unit(5)).
#[must_use]
pub fn is_installable(unit_file: &[u8]) -> bool {
    String::from_utf8_lossy(unit_file)
        .lines()
        .any(|line| line.trim() == "[Install]")
}

/// Permission bits of the root of a file system that was just mounted: those of a new tmpfs
/// (tmpfs(5)), and the usual ones of a directory otherwise.
#[must_use]
pub fn mode_of_mounted_root(fstype: &str, options: &str) -> u32 {
    if fstype != "tmpfs" {
        return 0o755;
    }
    let mut given = options
        .split(',')
        .filter_map(|option| option.strip_prefix("mode="));
    given
        .next_back()
        .and_then(|mode| u32::from_str_radix(mode, 8).ok())
        .unwrap_or(0o1777)
}

/// The first bytes of a content, at most `bytes`.
fn beginning(mut content: Vec<u8>, bytes: u64) -> Vec<u8> {
    content.truncate(usize::try_from(bytes).unwrap_or(usize::MAX));
    content
}

/// The host as modules and executor see it. Questions change nothing.
pub trait Host: Send + Sync {
    /// The entry at `path`, without following a final link; `None` if it does not exist.
    fn stat<'a>(&'a self, path: &'a str) -> HostFuture<'a, HostResult<Option<Stat>>>;
    /// A file's content, following links; `None` if it does not exist.
    fn read<'a>(&'a self, path: &'a str) -> HostFuture<'a, HostResult<Option<Vec<u8>>>>;
    /// The first bytes of a file, at most `bytes`, following links; `None` if it does not exist.
    fn head<'a>(
        &'a self,
        path: &'a str,
        bytes: u64,
    ) -> HostFuture<'a, HostResult<Option<Vec<u8>>>> {
        Box::pin(async move {
            let content = self.read(path).await?;
            Ok(content.map(|all| beginning(all, bytes)))
        })
    }
    /// Names in a directory, sorted; empty if it does not exist.
    fn list<'a>(&'a self, path: &'a str) -> HostFuture<'a, HostResult<Vec<String>>>;
    /// A unit's state.
    fn unit<'a>(&'a self, name: &'a str) -> HostFuture<'a, HostResult<UnitState>>;
    /// Installed packages, name to version (several, separated by commas, of packages of which dnf
    /// keeps earlier ones). Every package state needs them, so they are shared.
    fn packages(&self) -> HostFuture<'_, HostResult<Arc<BTreeMap<String, String>>>>;
    /// Incomplete packages on the host, whose installation or removal was cut off: name to version,
    /// which may be empty.
    fn cut_off_packages(&self) -> HostFuture<'_, HostResult<BTreeMap<String, String>>>;
    /// Installed packages that an installation would remove, because they conflict. Empty if that
    /// cannot be told before it runs.
    fn removed_by<'a>(
        &'a self,
        install: &'a BTreeMap<String, Option<String>>,
        options: PackageOptions,
    ) -> HostFuture<'a, HostResult<BTreeSet<String>>>;
    /// Packages that the operator has put on hold, installed or not.
    fn held_packages(&self) -> HostFuture<'_, HostResult<BTreeSet<String>>>;
    /// The version that an installation would choose now, if a repository offers the package. With
    /// `prefers_bundle`, Halite's repository comes first.
    fn package_candidate<'a>(
        &'a self,
        name: &'a str,
        prefers_bundle: bool,
    ) -> HostFuture<'a, HostResult<Option<String>>>;
    /// The installed package that provides a virtual one.
    fn package_provider<'a>(&'a self, name: &'a str) -> HostFuture<'a, HostResult<Option<String>>>;
    /// The host's package manager.
    fn package_manager(&self) -> HostFuture<'_, HostResult<PackageManager>>;
    /// A user, through the host's `getent`.
    fn user<'a>(&'a self, name: &'a str) -> HostFuture<'a, HostResult<Option<User>>>;
    /// A group, through the host's `getent`.
    fn group<'a>(&'a self, name: &'a str) -> HostFuture<'a, HostResult<Option<Group>>>;
    /// A kernel parameter; `None` if this kernel has no such parameter.
    fn sysctl<'a>(&'a self, key: &'a str) -> HostFuture<'a, HostResult<Option<String>>>;
    /// Returns whether a kernel module is loaded or built in.
    fn kernel_module<'a>(&'a self, name: &'a str) -> HostFuture<'a, HostResult<bool>>;
    /// Mounted file systems.
    fn mounts(&self) -> HostFuture<'_, HostResult<Vec<MountPoint>>>;
    /// Active swap devices and files.
    fn swaps(&self) -> HostFuture<'_, HostResult<Vec<String>>>;
    /// A firewalld zone.
    fn firewall_zone<'a>(&'a self, name: &'a str) -> HostFuture<'a, HostResult<FirewallView>>;
    /// A firewalld policy.
    fn firewall_policy<'a>(&'a self, name: &'a str) -> HostFuture<'a, HostResult<FirewallView>>;
    /// A firewalld set of addresses.
    fn firewall_ipset<'a>(&'a self, name: &'a str) -> HostFuture<'a, HostResult<IpsetView>>;
    /// Names of all zones, policies and sets of addresses, permanent and runtime together.
    fn firewall_names(&self) -> HostFuture<'_, HostResult<FirewallNames>>;
    /// Returns whether containerd's `k8s.io` namespace has an image, by the name under which it is
    /// stored.
    fn image<'a>(&'a self, reference: &'a str) -> HostFuture<'a, HostResult<bool>>;
    /// HTTP(S) status and body of a GET; `None` without an answer, or if the server's certificate
    /// is not trusted.
    fn http_get<'a>(
        &'a self,
        url: &'a str,
        trust: &'a Trust,
    ) -> HostFuture<'a, HostResult<Option<(u16, String)>>>;
    /// A file of the state tree or bundle by the SHA-256 (hex) of its content: from the job's
    /// master, or from disk in local mode. Verified.
    fn blob<'a>(&'a self, sha256: &'a str) -> HostFuture<'a, HostResult<Vec<u8>>>;
    /// Runs a program that changes nothing (`unless`, `onlyif`, `check_cmd`).
    fn query<'a>(&'a self, command: &'a Command) -> HostFuture<'a, HostResult<Output>>;
    /// Seconds since the epoch.
    fn now(&self) -> i64;
    /// Waits. A host in tests only moves its clock.
    fn sleep(&self, seconds: f64) -> HostFuture<'_, ()>;
    /// The reason to end a wait early; `None` without one.
    fn stop_reason(&self) -> Option<String> {
        None
    }
    /// Returns whether, in test mode, effects were predicted whose outcome cannot be known
    /// (packages, programs, started services, archives, kernel modules), so that a user, directory,
    /// unit, parameter or answer that is missing here may exist after apply. A module then reports
    /// `known after apply` ([`overlay::KNOWN_AFTER_APPLY`]) instead of failing or waiting. Always
    /// `false` on a host that is not an overlay.
    fn uncertain(&self) -> bool {
        false
    }
    /// Carries out one effect. `Run` returns the program's output (whatever its exit code), others
    /// an empty one.
    fn perform<'a>(&'a self, effect: &'a Effect) -> HostFuture<'a, HostResult<Output>>;
}

/// Names that firewalld knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "self-explaining")]
pub struct FirewallNames {
    pub zones: Vec<String>,
    pub policies: Vec<String>,
    pub ipsets: Vec<String>,
}
