//! The bundles of a site, with the operations that change them.

use std::ops::Deref;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, thread};

use halite_durable::files;
use halite_durable::private_lock::{Attempt, PrivateLock, name_of};
use halite_manifest::bundles::DIRECTORY;
use halite_manifest::{Bundles, InstalledBundle};
use halite_names::BundleVersion;

use crate::error::Error;

/// The longest wait for another process that is changing the bundles.
const PATIENCE: Duration = Duration::from_secs(1);

/// The lock's file in the bundles' directory. Only root can open it: the directory itself is open
/// to all users, any of whom could hold a lock on it.
const LOCK: &str = ".lock";

/// The bundles of a site, for changes. It dereferences to [`Bundles`] for reading.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BundleStore {
    bundles: Bundles,
}

/// The bundles of a site, locked against changes by other processes.
#[derive(Debug)]
pub struct SiteChange<'a> {
    bundles: &'a BundleStore,
    _lock: PrivateLock,
}

impl Deref for BundleStore {
    type Target = Bundles;

    fn deref(&self) -> &Bundles {
        &self.bundles
    }
}

impl BundleStore {
    /// The bundles below a directory, which need not exist yet.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            bundles: Bundles::new(root),
        }
    }

    /// Removes a bundle, as [`Change::remove`] does.
    ///
    /// # Errors
    /// As above, or another process is changing the bundles.
    pub fn remove(&self, version: &BundleVersion) -> Result<InstalledBundle, Error> {
        self.get(version)?;
        self.change()?.remove(version)
    }

    /// Locks the bundles until the returned value is dropped, so that a decision about a bundle
    /// stays valid until it is carried out.
    ///
    /// # Errors
    /// Another process changes them, or a system call fails.
    pub fn change(&self) -> Result<SiteChange<'_>, Error> {
        Ok(SiteChange {
            bundles: self,
            _lock: self.lock()?,
        })
    }

    /// Removes the record of a link that no longer exists.
    pub(crate) fn forget(&self, version: &BundleVersion) -> Result<(), Error> {
        Ok(files::remove_any(&self.record(version))?)
    }

    /// Takes the lock that lets one process at a time change the bundles. The kernel releases it
    /// when the process ends.
    pub(crate) fn lock(&self) -> Result<PrivateLock, Error> {
        let made = !self.root().exists();
        files::make_dir(self.root())?;
        // The services that serve the bundles do not run as root, but the minion creates
        // directories for root only. Another directory that the operator named stays as it is.
        if made || self.root() == Path::new(DIRECTORY) {
            let open = fs::Permissions::from_mode(0o755);
            fs::set_permissions(self.root(), open).map_err(Error::file("open", self.root()))?;
        }
        let path = self.root().join(LOCK);
        let since = Instant::now();
        loop {
            let attempt = PrivateLock::attempt(&path).map_err(Error::file("lock", &path))?;
            let holder = match attempt {
                Attempt::Taken(lock) => return Ok(lock),
                Attempt::Held(holder) => holder,
            };
            // A child process that a previous holder has just started can hold the lock for a
            // moment longer.
            if since.elapsed() >= PATIENCE {
                let message = format!(
                    "another process is adding or removing a bundle here ({}); wait until it has finished",
                    name_of(holder)
                );
                return Err(Error::content(self.root(), message));
            }
            thread::sleep(PATIENCE / 50);
        }
    }

    /// Removes the leftovers of an interrupted change. The caller holds the lock.
    pub(crate) fn clear(&self) -> Result<(), Error> {
        for entry in fs::read_dir(self.root()).map_err(Error::file("list", self.root()))? {
            let entry = entry.map_err(Error::file("list", self.root()))?;
            let name = entry.file_name();
            if name.as_encoded_bytes().starts_with(b".") && name != LOCK {
                files::remove_any(&entry.path())?;
            }
        }
        Ok(())
    }
}

impl SiteChange<'_> {
    /// Removes a bundle. For a linked one, only the link is removed.
    ///
    /// # Errors
    /// There is none of that version, or a system call fails.
    pub fn remove(&self, version: &BundleVersion) -> Result<InstalledBundle, Error> {
        let held = self.bundles.get(version)?;
        self.bundles.clear()?;
        if held.link_target.is_some() {
            fs::remove_file(&held.path).map_err(Error::file("remove", &held.path))?;
            self.bundles.forget(version)?;
            files::sync_parent(&held.path)?;
            return Ok(held);
        }
        // The name disappears atomically, even if the deletion is interrupted afterwards.
        let aside = files::sibling(&held.path, "removed");
        fs::rename(&held.path, &aside).map_err(files::moved("remove", &held.path))?;
        files::sync_parent(&held.path)?;
        files::remove_dir(&aside)?;
        Ok(held)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};

    use rustix::process::geteuid;

    use super::*;

    #[test]
    fn no_other_user_can_lock_the_bundles() {
        let dir = tempfile::tempdir().unwrap();
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(dir.path(), open).unwrap();
        let store = BundleStore::new(dir.path());
        drop(store.lock().unwrap());
        if !geteuid().is_root() {
            return;
        }
        // Every user can open and lock the directory; the lock itself is on the file.
        let mut stranger = Command::new("flock")
            .args(["--exclusive", "--nonblock"])
            .arg(dir.path())
            .args(["sleep", "60"])
            // Its child process survives, and must not hold the test's output open.
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .uid(65534)
            .spawn()
            .unwrap();
        thread::sleep(Duration::from_millis(300));
        let lock = store.lock();
        let denied = Command::new("flock")
            .args(["--exclusive", "--nonblock"])
            .arg(dir.path().join(LOCK))
            .arg("true")
            .uid(65534)
            .output()
            .unwrap();
        let running = stranger.try_wait().unwrap().is_none();
        stranger.kill().unwrap();
        stranger.wait().unwrap();
        assert!(running, "the stranger could not even lock the directory");
        assert!(!denied.status.success());
        let error = store.lock().unwrap_err().to_string();
        assert!(
            error.contains(&format!("(process {})", std::process::id())),
            "{error}"
        );
        drop(lock.unwrap());
        store.lock().unwrap();
    }

    #[test]
    fn leftovers_are_cleared_and_the_lock_stays() {
        let dir = tempfile::tempdir().unwrap();
        let store = BundleStore::new(dir.path());
        let _lock = store.lock().unwrap();
        fs::create_dir(dir.path().join(".1.0.0.new")).unwrap();
        store.clear().unwrap();
        let left: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left, [LOCK]);
    }
}
