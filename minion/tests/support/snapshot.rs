//! The lasting state of a fake host, for comparisons.

use std::collections::{BTreeMap, BTreeSet};

use halite_minion::host::accounts::Accounts;
use halite_minion::host::{FileKind, FirewallView, IpsetView, MountPoint, UnitState};
use halite_minion_fake::{FakeHost, FakeState};

/// Everything that lasts on a host.
#[derive(Debug, PartialEq)]
pub struct Snapshot {
    /// Path to kind, mode, owner and content.
    pub disk: BTreeMap<String, String>,
    packages: BTreeMap<String, String>,
    cut_off: BTreeMap<String, String>,
    units: BTreeMap<String, UnitState>,
    accounts: Accounts,
    sysctls: BTreeMap<String, String>,
    modules: BTreeSet<String>,
    mounts: Vec<MountPoint>,
    swaps: Vec<String>,
    zones: BTreeMap<String, FirewallView>,
    policies: BTreeMap<String, FirewallView>,
    ipsets: BTreeMap<String, IpsetView>,
    images: BTreeSet<String>,
}

impl Snapshot {
    pub fn from_host(host: &FakeHost) -> Self {
        let state = host.state();
        let mut disk = BTreeMap::new();
        walk(&state, "/", &mut disk);
        Self {
            disk,
            packages: state.packages.clone(),
            cut_off: state.cut_off.clone(),
            units: state.units.clone(),
            accounts: state.accounts.clone(),
            sysctls: state.sysctls.clone(),
            modules: state.modules.clone(),
            mounts: state.mounts.clone(),
            swaps: state.swaps.clone(),
            zones: state.zones.clone(),
            policies: state.policies.clone(),
            ipsets: state.ipsets.clone(),
            images: state.images.clone(),
        }
    }
}

fn walk(state: &FakeState, directory: &str, into: &mut BTreeMap<String, String>) {
    for name in state.disk.list(directory) {
        let path = if directory == "/" {
            format!("/{name}")
        } else {
            format!("{directory}/{name}")
        };
        // Processes do not last.
        if path == "/proc" {
            continue;
        }
        let Some(stat) = state.disk.stat(&path) else {
            continue;
        };
        let content = match stat.kind {
            FileKind::File => state
                .disk
                .read(&path)
                .map(|c| String::from_utf8_lossy(c).into_owned()),
            FileKind::Symlink => stat.target.clone(),
            _ => None,
        };
        // Keys are random, and so is everything derived from them.
        let content = content.unwrap_or_default();
        let made =
            content.contains("-----BEGIN ") || content.contains("certificate-authority-data");
        let content = if made { "made".to_owned() } else { content };
        into.insert(
            path.clone(),
            format!(
                "{:?} {:o} {}:{} {content}",
                stat.kind, stat.mode, stat.user, stat.group
            ),
        );
        if stat.kind == FileKind::Directory {
            walk(state, &path, into);
        }
    }
}
