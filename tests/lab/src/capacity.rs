//! Free disk and inotify instances of the machine, checked before a host boots: without them a host
//! fails halfway, with messages that do not say so. The machine's limits are only read.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::groups::PREFIX;
use crate::dirs::{cache, run_dir};

/// Inotify instances of a host with control plane, master and registry.
pub const CONTROL_PLANE: usize = 31;
/// Inotify instances of a worker.
pub const WORKER: usize = 20;
/// Inotify instances of a host on which nothing is installed.
pub const BARE: usize = 8;

const GIB: u64 = 1 << 30;
/// Disk that the hosts of a two-host lab fill: packages, images, databases, logs.
const HOSTS: u64 = 4 * GIB;
/// Disk for the base root, and of each Kubernetes release the upstream programs and images, the
/// bundle, and the ISO.
const CACHE: u64 = 4 * GIB;
/// Disk for what Go keeps of the upstream programs: sources and objects.
const GO: u64 = 12 * GIB;

/// Instances of a host whose file does not say: the most, to be safe.
pub(super) fn unknown() -> usize {
    CONTROL_PLANE
}

/// Disk that will be filled.
struct Need {
    /// Below this directory, which need not be there yet.
    dir: PathBuf,
    /// So many bytes at least.
    bytes: u64,
    /// The variable that moves it elsewhere.
    variable: &'static str,
}

fn hosts() -> Need {
    Need {
        dir: run_dir(),
        bytes: HOSTS,
        variable: "HALITE_LAB_RUN",
    }
}

/// Refuses a run for which there is not enough disk, before it builds for a quarter of an hour.
pub fn for_a_run() -> Result<()> {
    let mut needs = vec![hosts()];
    if !cache().join("bundle").exists() {
        let home = std::env::var_os("HOME").map_or_else(|| "/root".into(), PathBuf::from);
        needs.push(Need {
            dir: cache(),
            bytes: CACHE,
            variable: "HALITE_LAB_CACHE",
        });
        needs.push(Need {
            dir: home,
            bytes: GO,
            variable: "GOCACHE and GOMODCACHE",
        });
    }
    disk(&needs)
}

/// Refuses a new host of a lab that would take `instances` inotify instances when there is no room
/// for it; `running` are the hosts of all labs that run, with the instances of each.
pub(super) fn for_a_host(
    name: &str,
    instances: usize,
    running: &BTreeMap<String, usize>,
) -> Result<()> {
    disk(&[hosts()])?;
    inotify(name, instances, running)
}

fn inotify(name: &str, instances: usize, running: &BTreeMap<String, usize>) -> Result<()> {
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_user_instances")?;
    let limit: usize = limit
        .trim()
        .parse()
        .context("fs.inotify.max_user_instances is no number")?;
    let taken = promised(&held()?, running);
    if taken + instances > limit {
        bail!(
            "{taken} of this machine's {limit} inotify instances are taken or promised to hosts that run, and {name} \
             needs {instances}: stop a lab (cargo lab down --lab NAME), or raise fs.inotify.max_user_instances"
        );
    }
    Ok(())
}

/// Refuses when a file system has less room than all that will lie on it needs.
fn disk(needs: &[Need]) -> Result<()> {
    let mut systems: BTreeMap<u64, (u64, Vec<&Need>)> = BTreeMap::new();
    for need in needs {
        let there = need
            .dir
            .ancestors()
            .find(|part| part.exists())
            .unwrap_or(Path::new("/"));
        let look = || format!("cannot look at {}", there.display());
        let device = fs::metadata(there).with_context(look)?.dev();
        let system = rustix::fs::statvfs(there).with_context(look)?;
        let entry = systems
            .entry(device)
            .or_insert((system.f_bavail * system.f_frsize, Vec::new()));
        entry.1.push(need);
    }
    for (free, needs) in systems.into_values() {
        let needed = needs
            .iter()
            .fold(0, |sum: u64, need| sum.saturating_add(need.bytes));
        if free < needed {
            let each = |need: &&Need| {
                format!(
                    "{} below {} ({})",
                    shown(need.bytes),
                    need.dir.display(),
                    need.variable
                )
            };
            bail!(
                "{} are free on a file system that needs at least {}: {}. Make room (cargo lab down --lab NAME removes \
                 the hosts of a lab), or name directories elsewhere with these variables",
                shown(free),
                shown(needed),
                needs.iter().map(each).collect::<Vec<_>>().join(", ")
            );
        }
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
fn shown(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / GIB as f64)
}

/// Whatever holds instances without being in a host.
const ELSEWHERE: &str = "";

/// Instances that are gone once every running host has come to its full number: a bare host takes a
/// third of what it will.
fn promised(held: &BTreeMap<String, usize>, running: &BTreeMap<String, usize>) -> usize {
    let now: usize = held.values().sum();
    let later: usize = running
        .iter()
        .map(|(host, full)| full.saturating_sub(held.get(host).copied().unwrap_or_default()))
        .sum();
    now + later
}

/// Inotify instances that root's processes hold now, by the host that they are in: the kernel
/// counts by user.
fn held() -> Result<BTreeMap<String, usize>> {
    let mut held = BTreeMap::new();
    for process in fs::read_dir("/proc")? {
        let path = process?.path();
        // A process that has ended already, or another entry, holds nothing.
        if !fs::metadata(&path).is_ok_and(|process| process.uid() == 0) {
            continue;
        }
        let Ok(files) = fs::read_dir(path.join("fd")) else {
            continue;
        };
        let targets = files
            .flatten()
            .filter_map(|file| fs::read_link(file.path()).ok());
        let count = targets
            .filter(|target| target.as_os_str() == "anon_inode:inotify")
            .count();
        if count > 0 {
            let groups = fs::read_to_string(path.join("cgroup")).unwrap_or_default();
            *held
                .entry(host_of(&groups).unwrap_or(ELSEWHERE).to_owned())
                .or_default() += count;
        }
    }
    Ok(held)
}

/// The lab's host among the control groups of a process, as `/proc/PID/cgroup` lists them.
fn host_of(groups: &str) -> Option<&str> {
    groups
        .lines()
        .filter_map(|line| line.splitn(3, ':').nth(2))
        .flat_map(|path| path.split('/'))
        .find(|part| part.starts_with(PREFIX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hosts_will_take_counts_already() {
        let of = |list: &[(&str, usize)]| list.iter().map(|(n, c)| ((*n).to_owned(), *c)).collect();
        // A bare host, one that takes more than was thought, and the machine itself.
        let held = of(&[("hl-a-one", 8), ("hl-a-two", 25), (ELSEWHERE, 3)]);
        let running = of(&[("hl-a-one", 31), ("hl-a-two", 20), ("hl-a-three", 20)]);
        assert_eq!(promised(&held, &running), 31 + 25 + 20 + 3);
    }

    #[test]
    fn a_process_of_a_container_is_in_its_host() {
        let groups = "12:pids:/hl-demo-worker-1/kubepods/besteffort/pod1\n0::/\n";
        assert_eq!(host_of(groups), Some("hl-demo-worker-1"));
        assert_eq!(host_of("3:memory:/\n2:cpu:/docker/0123\n"), None);
    }

    #[test]
    fn needs_on_one_file_system_are_added() {
        let need = |dir: &str, bytes| Need {
            dir: dir.into(),
            bytes,
            variable: "HALITE_LAB_RUN",
        };
        let root = rustix::fs::statvfs("/").unwrap();
        // More than half of the whole, twice.
        let half = (root.f_blocks * root.f_frsize) / 2 + 1;
        let error = disk(&[need("/nowhere/yet", half), need("/", half)])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("below /nowhere/yet (HALITE_LAB_RUN), "),
            "{error}"
        );
        disk(&[need("/", 0)]).unwrap();
    }

    #[test]
    fn a_host_that_needs_more_than_the_machine_has_is_refused() {
        let error = inotify("worker-1", usize::MAX / 2, &BTreeMap::new())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("worker-1 needs") && error.contains("max_user_instances"),
            "{error}"
        );
    }
}
