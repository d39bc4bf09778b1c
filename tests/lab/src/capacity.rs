//! Free disk and inotify instances of the machine, checked before a host boots: without them a host
//! fails halfway, with messages that do not name the cause. The machine's limits are only read.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::groups::PREFIX;
use crate::dirs::{cache, run_dir};
use crate::wait;

/// Inotify instances of a host with control plane, master and registry.
pub const CONTROL_PLANE: usize = 31;
/// Inotify instances of a worker.
pub const WORKER: usize = 20;
/// Inotify instances of a host on which nothing is installed.
pub const BARE: usize = 8;

const GIB: u64 = 1 << 30;
/// Disk that a host fills: packages, images, databases, logs.
const HOST: u64 = 2 * GIB;
/// Hosts in the lab of most runs.
const TWO: u64 = 2;
/// Disk for the base root, and for each Kubernetes release the upstream programs and images, the
/// bundle, and the ISO.
const CACHE: u64 = 4 * GIB;
/// Disk for Go's caches of the upstream programs: sources and objects.
const GO: u64 = 12 * GIB;

/// Instances of a host whose file does not say: the maximum, to be safe.
pub(super) fn unknown() -> usize {
    CONTROL_PLANE
}

/// Disk that will be filled.
struct Need {
    /// Below this directory, which need not exist yet.
    dir: PathBuf,
    /// At least this many bytes.
    bytes: u64,
    /// The variable that moves it elsewhere.
    variable: &'static str,
}

fn hosts(count: u64) -> Need {
    Need {
        dir: run_dir(),
        bytes: count.saturating_mul(HOST),
        variable: "HALITE_LAB_RUN",
    }
}

/// Refuses a run for which there is not enough disk, before it builds for a quarter of an hour.
pub fn for_a_run() -> Result<()> {
    let mut needs = vec![hosts(TWO)];
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

/// Refuses a host that eventually takes `instances` inotify instances if there is no room for it;
/// `running` are the running hosts of all labs, with the instances of each.
pub(super) fn for_a_host(
    name: &str,
    instances: usize,
    running: &BTreeMap<String, usize>,
) -> Result<()> {
    disk(&[hosts(1)])?;
    await_room(name, instances, || Ok(promised(held()?, running)))
}

/// Refuses `count` hosts that together take `instances` inotify instances if there is no room for
/// them. Those of the lab `replaced` are removed before they boot.
pub(super) fn for_hosts(
    what: &str,
    (count, instances): (usize, usize),
    running: &BTreeMap<String, usize>,
    replaced: &str,
) -> Result<()> {
    disk(&[hosts(u64::try_from(count)?)])?;
    let running = without(running.clone(), replaced);
    await_room(what, instances, || {
        Ok(promised(without(held()?, replaced), &running))
    })
}

/// Returns whether this number of inotify instances is left beside the `running` hosts, once each
/// has reached its full number.
pub(super) fn leaves(instances: usize, running: &BTreeMap<String, usize>) -> Result<bool> {
    let taken = promised(held()?, running);
    Ok(room("programs", instances, &taken, limit()?).is_ok())
}

/// Waits for what programs beside the hosts take for a moment; hosts keep their instances.
fn await_room(
    what: &str,
    instances: usize,
    taken: impl Fn() -> Result<BTreeMap<String, usize>>,
) -> Result<()> {
    let limit = limit()?;
    let mut by_hosts = taken()?;
    by_hosts.retain(|holder, _| holder.starts_with(PREFIX));
    room(what, instances, &by_hosts, limit)?;
    wait::until(
        &format!("room for {what}"),
        Duration::from_secs(120),
        || room(what, instances, &taken()?, limit),
    )
}

/// Hosts by the names of their control groups, without those of one lab.
fn without(mut hosts: BTreeMap<String, usize>, lab: &str) -> BTreeMap<String, usize> {
    // The name of a lab contains no dash.
    let of_lab = format!("{PREFIX}{lab}-");
    hosts.retain(|host, _| !host.starts_with(&of_lab));
    hosts
}

/// The inotify instances that one user may have on this machine.
fn limit() -> Result<usize> {
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_user_instances")?;
    limit
        .trim()
        .parse()
        .context("fs.inotify.max_user_instances is not a number")
}

fn room(what: &str, instances: usize, taken: &BTreeMap<String, usize>, limit: usize) -> Result<()> {
    let sum: usize = taken.values().sum();
    if sum.saturating_add(instances) > limit {
        let holders = taken.iter().map(|(name, count)| format!("{name} {count}"));
        bail!(
            "{sum} of this machine's {limit} inotify instances are taken or promised to hosts that run ({}), and \
             {what} needs {instances}: stop a lab (cargo lab down --lab NAME) or what else holds them, or raise \
             fs.inotify.max_user_instances",
            holders.collect::<Vec<_>>().join(", ")
        );
    }
    Ok(())
}

/// Refuses if a file system has less free space than the directories on it need.
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

/// Instances that will be taken, by holder, once every running host has reached its full number: a
/// bare host takes a third of its eventual number.
fn promised(
    mut held: BTreeMap<String, usize>,
    running: &BTreeMap<String, usize>,
) -> BTreeMap<String, usize> {
    for (host, full) in running {
        let now = held.entry(host.clone()).or_default();
        *now = (*now).max(*full);
    }
    held
}

/// Inotify instances that root's processes hold now: the kernel counts by user. By host, and by
/// name those of processes outside of any host.
fn held() -> Result<BTreeMap<String, usize>> {
    let mut held = BTreeMap::new();
    for process in fs::read_dir("/proc")? {
        let path = process?.path();
        // A process that has already exited, or another entry, holds nothing.
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
            let file = |name| fs::read_to_string(path.join(name)).unwrap_or_default();
            let groups = file("cgroup");
            let holder = match host_of(&groups) {
                Some(host) => host.to_owned(),
                None => file("comm").trim_end().to_owned(),
            };
            *held.entry(holder).or_default() += count;
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
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn instances_that_hosts_will_take_already_count() {
        let of = |list: &[(&str, usize)]| list.iter().map(|(n, c)| ((*n).to_owned(), *c)).collect();
        // A bare host, one that takes more than estimated, and the machine itself.
        let held = of(&[("hl-a-one", 8), ("hl-a-two", 25), ("systemd", 3)]);
        let running = of(&[("hl-a-one", 31), ("hl-a-two", 20), ("hl-a-three", 20)]);
        let taken = promised(held, &running);
        let expected = of(&[
            ("hl-a-one", 31),
            ("hl-a-two", 25),
            ("hl-a-three", 20),
            ("systemd", 3),
        ]);
        assert_eq!(taken, expected);
        room("a host", 20, &taken, 99).unwrap();
        let error = room("a host", 20, &taken, 98).unwrap_err().to_string();
        let says = "79 of this machine's 98 inotify instances are taken or promised to hosts that run \
                    (hl-a-one 31, hl-a-three 20, hl-a-two 25, systemd 3), and a host needs 20";
        assert!(error.starts_with(says), "{error}");
    }

    #[test]
    fn what_programs_hold_for_a_moment_is_awaited() {
        let answers = RefCell::new(vec![1, 1_000_000, 1_000_000]);
        await_room("a host", 1, || {
            let count = answers.borrow_mut().pop().unwrap();
            Ok([("gpg-agent".to_owned(), count)].into())
        })
        .unwrap();
        let refused = await_room("a host", 1, || {
            Ok([("hl-a-one".to_owned(), 1_000_000)].into())
        });
        assert!(refused.unwrap_err().to_string().contains("hl-a-one"));
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
    fn three_control_planes_and_a_worker_fit_beside_no_other_cluster() {
        let (three_and_one, two) = (3 * CONTROL_PLANE + WORKER, CONTROL_PLANE + WORKER);
        assert_eq!(three_and_one, 113);
        let room = |instances, taken| {
            super::room("it", instances, &[("hl-a".to_owned(), taken)].into(), 128)
        };
        room(three_and_one, 15).unwrap();
        room(three_and_one, two).unwrap_err();
        // A fifth host does not fit on an empty machine.
        room(three_and_one + WORKER, 0).unwrap_err();
    }

    #[test]
    fn hosts_of_the_lab_that_is_replaced_do_not_count() {
        let hosts = ["hl-demo-cp-1", "hl-demo2-cp-1", "systemd"];
        let hosts = hosts.map(|host| (host.to_owned(), 31)).into();
        let left: Vec<_> = without(hosts, "demo").into_keys().collect();
        assert_eq!(left, ["hl-demo2-cp-1", "systemd"]);
    }
}
