//! The lab: real hosts on one machine, their network, detectors for packets and queries that would
//! leave it, and builds of Halite's own programs.
//!
//! Inputs: the source tree, and the machine's package sources. Outputs: hosts below
//! `/var/lib/halite-lab`, a cache below `/var/cache/halite-lab`. It does not depend on Kubernetes'
//! own programs. It never changes the machine's network, limits or control groups outside its own.

pub mod base;
pub mod build;
pub mod build_command;
pub mod capacity;
pub mod cluster;
pub mod command;
mod dirs;
pub mod earlier;
mod groups;
mod hold_ups;
pub mod host;
pub mod layout;
pub mod link;
pub mod net;
pub mod power;
pub mod prerequisites;
pub mod progress;
pub mod resolver;
pub mod role;
pub mod scan;
pub mod silence;
pub mod timing;
pub mod wait;
pub mod watched;

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use host::{Host, Spec};
use layout::Layout;
use net::Router;

pub use dirs::{cache, run_dir};
pub use groups::yield_to_hosts;

/// A set of hosts with a router.
#[derive(Debug, Clone)]
pub struct Lab {
    /// Its name; several labs can run in parallel.
    pub name: String,
    /// Its router.
    pub router: Router,
    dir: PathBuf,
    base: PathBuf,
}

impl Lab {
    /// The lab of that name on that base root, whether it runs or not.
    pub fn new(name: &str, base: &Path) -> Result<Self> {
        let short = name.len() <= 12
            && name
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        if name.is_empty() || !short {
            bail!("a lab's name is 1 to 12 lower-case letters and digits, not {name:?}");
        }
        let dir = run_dir().join(name);
        Ok(Self {
            name: name.to_owned(),
            router: Router::new(name, &dir),
            dir,
            base: base.to_owned(),
        })
    }

    /// Boots a host, making it first if it is new. A new one is refused if the machine has no room
    /// for it.
    pub fn boot(&self, spec: Spec) -> Result<Host> {
        let host_dir = self.dir.join("hosts").join(&spec.name);
        if !host_dir.exists() {
            capacity::for_a_host(&spec.name, spec.inotify, &running()?)?;
        }
        fs::create_dir_all(&host_dir)
            .with_context(|| format!("cannot make {}", host_dir.display()))?;
        fs::write(
            host_dir.join("spec.json"),
            serde_json::to_vec_pretty(&spec)?,
        )?;
        self.router.up()?;
        let host = Host::new(&self.name, &self.dir, &self.base, spec);
        host.boot(&self.router)?;
        Ok(host)
    }

    /// Gives a host without disks another base root: it boots with another Debian release.
    ///
    /// # Errors
    /// It has disks, or its files cannot be written.
    pub fn rebase(&self, name: &str, base: &Path) -> Result<()> {
        let mut host = self.host(name)?;
        if host.has_disks() {
            bail!("{name} has disks of its present base root: destroy them first");
        }
        host.spec.base = Some(base.to_owned());
        let file = self.dir.join("hosts").join(name).join("spec.json");
        fs::write(&file, serde_json::to_vec_pretty(&host.spec)?)
            .with_context(|| format!("cannot write {}", file.display()))
    }

    /// Its hosts, running or not, by name.
    pub fn hosts(&self) -> Result<Vec<Host>> {
        let mut hosts = Vec::new();
        let Ok(entries) = fs::read_dir(self.dir.join("hosts")) else {
            return Ok(hosts);
        };
        for entry in entries {
            let file = entry?.path().join("spec.json");
            let text = match fs::read(&file) {
                Ok(text) => text,
                // It was never booted, or is already destroyed: the rest is files only.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot read {}", file.display()));
                }
            };
            hosts.push(Host::new(
                &self.name,
                &self.dir,
                &self.base,
                serde_json::from_slice(&text)?,
            ));
        }
        hosts.sort_by(|a, b| a.spec.name.cmp(&b.spec.name));
        Ok(hosts)
    }

    /// One host by name.
    pub fn host(&self, name: &str) -> Result<Host> {
        let hosts = self.hosts()?;
        let names: Vec<_> = hosts.iter().map(|h| h.spec.name.clone()).collect();
        hosts
            .into_iter()
            .find(|h| h.spec.name == name)
            .with_context(|| {
                format!(
                    "the lab {} has no host {name:?}; it has: {}",
                    self.name,
                    names.join(", ")
                )
            })
    }

    /// Refuses a cluster of that layout in this lab if the machine has no room for it. The lab's
    /// own hosts do not count: they are removed first.
    pub fn room_for(&self, layout: &Layout) -> Result<()> {
        let names = layout.names();
        capacity::for_hosts(
            &format!("the layout {} ({})", layout.name, names.join(", ")),
            (names.len(), layout.inotify()),
            &running()?,
            &self.name,
        )
    }

    /// Keeps the lab for the caller until the answer is dropped.
    ///
    /// # Errors
    /// Another process keeps it, or the lock's file cannot be opened.
    pub fn hold(&self) -> Result<File> {
        // Beside the lab's directory, which `down` removes; no lab has such a name.
        let path = self.dir.with_extension("lock");
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)
                .with_context(|| format!("cannot make {}", parent.display()))?;
        }
        let lock =
            File::create(&path).with_context(|| format!("cannot open {}", path.display()))?;
        match lock.try_lock() {
            Ok(()) => Ok(lock),
            Err(TryLockError::WouldBlock) => bail!(
                "cannot use the lab {}: another test run has its hosts; wait until it has ended",
                self.name
            ),
            Err(TryLockError::Error(error)) => {
                Err(error).with_context(|| format!("cannot lock {}", path.display()))
            }
        }
    }

    /// Fails if a packet tried to leave, or an unexpected name was queried.
    pub fn nothing_tried_to_leave(&self) -> Result<()> {
        let packets = self.router.escaped()?;
        let names = self.router.unexpected_names()?;
        if packets != 0 || !names.is_empty() {
            bail!("{packets} packets tried to leave; unexpected names asked: {names:?}");
        }
        Ok(())
    }

    /// Stops and removes every host, the router and all files.
    pub fn down(&self) -> Result<()> {
        for host in self.hosts()? {
            host.destroy()?;
        }
        self.router.down()?;
        if self.dir.exists() {
            fs::remove_dir_all(&self.dir)
                .with_context(|| format!("cannot remove {}", self.dir.display()))?;
        }
        Ok(())
    }
}

/// Returns whether the running hosts of all labs leave this number of inotify instances to other
/// programs, once each host has reached its full number.
///
/// # Errors
/// The hosts or the machine's limit cannot be read.
pub fn leaves_inotify(instances: usize) -> Result<bool> {
    capacity::leaves(instances, &running()?)
}

/// Hosts of all running labs, by the name of their control groups, with the instances that each
/// eventually takes.
fn running() -> Result<BTreeMap<String, usize>> {
    let mut hosts = BTreeMap::new();
    let Ok(labs) = fs::read_dir(run_dir()) else {
        return Ok(hosts);
    };
    for lab in labs {
        let name = lab?.file_name().to_string_lossy().into_owned();
        // A name that is not a lab's does not belong to a lab.
        let Ok(lab) = Lab::new(&name, Path::new("")) else {
            continue;
        };
        for host in lab
            .hosts()?
            .into_iter()
            .filter(|host| host.init().is_some())
        {
            hosts.insert(host.machine(), host.spec.inotify);
        }
    }
    Ok(hosts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lab_below(dir: &Path) -> Lab {
        let dir = dir.join("one");
        Lab {
            name: "one".to_owned(),
            router: Router::new("one", &dir),
            dir,
            base: PathBuf::new(),
        }
    }

    #[test]
    fn one_run_at_a_time_holds_a_lab() {
        let dir = tempfile::tempdir().unwrap();
        let lab = lab_below(dir.path());
        let held = lab.hold().unwrap();
        let refused = lab.hold().unwrap_err().to_string();
        assert!(refused.starts_with("cannot use the lab one: another test run has its hosts"));
        drop(held);
        lab.hold().unwrap();
    }

    #[test]
    fn a_host_that_is_not_made_yet_does_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let lab = lab_below(dir.path());
        fs::create_dir_all(dir.path().join("one/hosts/bootstrap-1/root")).unwrap();
        assert!(lab.hosts().unwrap().is_empty());
    }
}
