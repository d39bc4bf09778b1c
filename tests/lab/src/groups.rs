//! Control groups of a host: one in each of the machine's controllers. The machine's own groups are
//! left alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::wait;

/// Beginning of the names of all hosts' namespaces, control groups and machines.
pub(super) const PREFIX: &str = "hl-";

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

/// Makes the groups of that name, unless they are there.
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

/// Lets the processes of frozen groups below that name run, so that they can end: runc freezes a container's group for
/// a moment, and a power cut in that moment leaves it frozen.
pub fn thaw(name: &str) -> Result<()> {
    thaw_tree(&Path::new("/sys/fs/cgroup/freezer").join(name))
}

fn thaw_tree(group: &Path) -> Result<()> {
    // Groups may go at the same time.
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

/// Groups are empty soon after their last process has ended.
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
