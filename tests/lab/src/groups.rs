//! Control groups of a host: one in each of the machine's controllers. The machine's own groups are
//! left alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::process::Pid;

use super::wait;

/// Prefix of the names of all hosts' namespaces, control groups and machines.
pub(super) const PREFIX: &str = "hl-";

/// The group of work that no test waits for.
const IDLE: &str = "halite-idle";

/// Controllers of the machine in which each host gets a group of its own.
const CONTROLLERS: [&str; 10] = [
    "cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd",
    "unified",
];

/// The controllers that this machine has.
fn parents() -> impl Iterator<Item = PathBuf> {
    CONTROLLERS
        .iter()
        .map(|controller| Path::new("/sys/fs/cgroup").join(controller))
        .filter(|path| path.exists())
}

/// Makes the groups of that name, unless they exist.
pub fn make(name: &str) -> Result<Vec<PathBuf>> {
    let mut groups = Vec::new();
    for parent in parents() {
        let group = parent.join(name);
        fs::create_dir_all(&group).with_context(|| format!("cannot make {}", group.display()))?;
        if parent.ends_with("cpuset") {
            for file in ["cpuset.cpus", "cpuset.mems"] {
                fs::write(group.join(file), fs::read(parent.join(file))?)?;
            }
        }
        groups.push(group);
    }
    Ok(groups)
}

/// The pid, as the machine sees it, of the init of the host whose processes are in the groups of
/// that name.
pub fn init(name: &str) -> Option<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .find(|pid| {
            let file = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}"));
            // Most processes are not in the groups of a host.
            file("cgroup").is_ok_and(|groups| is_in(&groups, name))
                && file("status").is_ok_and(|status| is_init(&status))
        })
}

/// Returns whether one of a process's groups is that of the host, or below it.
fn is_in(groups: &str, name: &str) -> bool {
    let mut paths = groups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    paths.any(|path| path.split('/').any(|part| part == name))
}

/// Returns whether a process is the first one of a namespace directly below the machine's. Inside a
/// host, the namespaces of pods are one level deeper. A process that has exited and is not reaped
/// yet does not count.
fn is_init(status: &str) -> bool {
    let field = |name: &str| {
        let mut lines = status.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
    };
    let ids: Vec<&str> = field("NSpid")
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let has_ended = field("State").is_none_or(|state| state.starts_with(['Z', 'X']));
    matches!(ids[..], [_, "1"]) && !has_ended
}

/// Puts a thread, and the threads and programs that it starts from now on, into a group that gets
/// only the processor time that hosts and everything else leave. Scheduling policies and nice
/// values count only within a group (sched(7)), and each host has one. Does nothing on a machine
/// without the controller: its hosts have no groups.
///
/// # Errors
/// The group cannot be made, or the thread cannot join it.
pub fn yield_to_hosts(thread: Pid) -> Result<()> {
    let controller = Path::new("/sys/fs/cgroup/cpu");
    if !controller.exists() {
        return Ok(());
    }
    let group = controller.join(IDLE);
    fs::create_dir_all(&group).with_context(|| format!("cannot make {}", group.display()))?;
    let thread = thread.as_raw_nonzero().to_string();
    for (file, text) in [("cpu.idle", "1"), ("tasks", &thread)] {
        let file = group.join(file);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

/// Lets the processes of frozen groups below that name run, so that they can exit: runc freezes a
/// container's group for a moment, and a power cut in that moment leaves it frozen.
pub fn thaw(name: &str) -> Result<()> {
    thaw_tree(&Path::new("/sys/fs/cgroup/freezer").join(name))
}

fn thaw_tree(group: &Path) -> Result<()> {
    // Groups may disappear at the same time.
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            thaw_tree(&entry.path())?;
        }
    }
    let state = group.join("freezer.state");
    let is_frozen = fs::read_to_string(&state).is_ok_and(|text| text.trim() == "FROZEN");
    if is_frozen {
        fs::write(&state, "THAWED").with_context(|| format!("cannot write {}", state.display()))?;
    }
    Ok(())
}

/// Removes the groups of that name and those below them.
pub fn remove(name: &str) -> Result<()> {
    for parent in parents() {
        remove_tree(&parent.join(name))?;
    }
    Ok(())
}

/// Groups become empty soon after their last process has exited.
fn remove_tree(group: &Path) -> Result<()> {
    if !group.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(group)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    wait::until(
        &format!("{} to be empty", group.display()),
        Duration::from_secs(30),
        || {
            fs::remove_dir(group).or_else(|e| {
                if group.exists() {
                    Err(e.into())
                } else {
                    Ok(())
                }
            })
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_groups_of_a_host_are_told_from_those_of_others() {
        let groups = "12:pids:/hl-demo-cp-1/init.scope\n0::/hl-demo-cp-1/init.scope\n";
        assert!(is_in(groups, "hl-demo-cp-1"));
        assert!(!is_in(groups, "hl-demo-cp") && !is_in(groups, "hl-demo-cp-10"));
        assert!(!is_in("0::/user.slice\n", "hl-demo-cp-1") && !is_in("", "hl-demo-cp-1"));
    }

    #[test]
    fn the_init_of_a_host_is_neither_a_container_nor_a_process_that_has_ended() {
        let status =
            |state: &str, ids: &str| format!("Name:\tsystemd\nState:\t{state}\nNSpid:\t{ids}\n");
        assert!(is_init(&status("S (sleeping)", "4711\t1")));
        for (state, ids) in [
            ("Z (zombie)", "4711\t1"),
            ("S (sleeping)", "4711"),
            ("S (sleeping)", "4711\t17"),
            ("S (sleeping)", "4711\t30\t1"),
        ] {
            assert!(!is_init(&status(state, ids)), "{state}, {ids}");
        }
        assert!(!is_init(""));
    }
}
