//! The bundles of a site, with the operations that change them.

use std::fs::File;
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, thread};

use halite_durable::files;
use halite_manifest::bundles::DIRECTORY;
use halite_manifest::{Bundles, InstalledBundle};

use crate::error::Error;

/// The longest wait for another process that changes the bundles.
const PATIENCE: Duration = Duration::from_secs(1);

/// The bundles of a site, for changes. It dereferences to [`Bundles`] for reading.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BundleStore {
    bundles: Bundles,
}

/// The bundles of a site, locked against changes by other processes.
#[derive(Debug)]
pub struct Change<'a> {
    bundles: &'a BundleStore,
    /// The kernel releases the lock when the process ends.
    _lock: File,
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
    /// As above, and when another process changes the bundles.
    pub fn remove(&self, version: &str) -> Result<InstalledBundle, Error> {
        self.get(version)?;
        self.change()?.remove(version)
    }

    /// Locks the bundles until the returned value is dropped, so that a decision about a bundle
    /// stays right until it is carried out.
    ///
    /// # Errors
    /// When another process changes them, or a system call fails.
    pub fn change(&self) -> Result<Change<'_>, Error> {
        Ok(Change {
            bundles: self,
            _lock: self.lock()?,
        })
    }

    /// Removes the record of a link that no longer exists.
    pub(crate) fn forget(&self, version: &str) -> Result<(), Error> {
        Ok(files::remove_any(&self.record(version))?)
    }

    /// Takes the lock that lets one process at a time change the bundles. The kernel releases it
    /// when the process ends.
    pub(crate) fn lock(&self) -> Result<File, Error> {
        let made = !self.root().exists();
        files::make_dir(self.root())?;
        // The services that serve the bundles do not run as root, but the minion creates
        // directories for root only. Another directory that the operator named stays as it is.
        if made || self.root() == Path::new(DIRECTORY) {
            let open = fs::Permissions::from_mode(0o755);
            fs::set_permissions(self.root(), open).map_err(Error::file("open", self.root()))?;
        }
        let lock = File::open(self.root()).map_err(Error::file("open", self.root()))?;
        let since = Instant::now();
        while lock.try_lock().is_err() {
            // A child process that a previous holder has just started can hold the lock for a
            // moment longer.
            if since.elapsed() < PATIENCE {
                thread::sleep(PATIENCE / 50);
                continue;
            }
            let message =
                "somebody else adds or removes a bundle here just now: wait until that has ended";
            return Err(Error::content(self.root(), message));
        }
        Ok(lock)
    }

    /// Removes the leftovers of an interrupted change. The caller holds the lock.
    pub(crate) fn clear(&self) -> Result<(), Error> {
        for entry in fs::read_dir(self.root()).map_err(Error::file("list", self.root()))? {
            let entry = entry.map_err(Error::file("list", self.root()))?;
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                files::remove_any(&entry.path())?;
            }
        }
        Ok(())
    }
}

impl Change<'_> {
    /// Removes a bundle. For a linked one, only the link is removed.
    ///
    /// # Errors
    /// When there is none of that version, or a system call fails.
    pub fn remove(&self, version: &str) -> Result<InstalledBundle, Error> {
        let held = self.bundles.get(version)?;
        self.bundles.clear()?;
        if held.link_target.is_some() {
            fs::remove_file(&held.path).map_err(Error::file("remove", &held.path))?;
            self.bundles.forget(version)?;
            files::sync_parent(&held.path)?;
            return Ok(held);
        }
        // The name disappears in one step, whatever interrupts the deletion after it.
        let aside = files::sibling(&held.path, "removed");
        fs::rename(&held.path, &aside).map_err(files::moved("remove", &held.path))?;
        files::sync_parent(&held.path)?;
        files::remove_dir(&aside)?;
        Ok(held)
    }
}
