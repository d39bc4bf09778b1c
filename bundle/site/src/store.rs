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

/// How long somebody else's change is waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// The bundles of a site, to be changed. Everything that [`Bundles`] can read is here too.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BundleStore {
    bundles: Bundles,
}

/// The bundles of a site while nobody else changes them.
#[derive(Debug)]
pub struct Change<'a> {
    bundles: &'a BundleStore,
    /// Ends with the process that holds it.
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

    /// Takes a bundle away, as [`Change::remove`] does.
    ///
    /// # Errors
    /// Likewise, and when somebody else changes the bundles.
    pub fn remove(&self, version: &str) -> Result<InstalledBundle, Error> {
        self.get(version)?;
        self.change()?.remove(version)
    }

    /// Keeps everybody else from changing the bundles until the answer is dropped: what was found
    /// out about one stays so until something is done about it.
    ///
    /// # Errors
    /// When somebody else changes them, or the system refuses.
    pub fn change(&self) -> Result<Change<'_>, Error> {
        Ok(Change {
            bundles: self,
            _lock: self.lock()?,
        })
    }

    /// Removes what is recorded of a link that is not there any more.
    pub(crate) fn forget(&self, version: &str) -> Result<(), Error> {
        Ok(files::remove_any(&self.record(version))?)
    }

    /// Only one at a time changes the bundles. The lock ends with the process that holds it.
    pub(crate) fn lock(&self) -> Result<File, Error> {
        let made = !self.root().exists();
        files::make_dir(self.root())?;
        // Whoever serves what is in it is not root, and a minion makes directories for root alone.
        // A directory of somebody else's that was named stays as it is.
        if made || self.root() == Path::new(DIRECTORY) {
            let open = fs::Permissions::from_mode(0o755);
            fs::set_permissions(self.root(), open).map_err(Error::file("open", self.root()))?;
        }
        let lock = File::open(self.root()).map_err(Error::file("open", self.root()))?;
        let since = Instant::now();
        while lock.try_lock().is_err() {
            // A process that is being started by one that just ended its change holds the lock for
            // a moment more.
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

    /// Removes what was left by somebody who was cut off. The caller holds the lock.
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
    /// Takes a bundle away. Of one that is linked only the link goes.
    ///
    /// # Errors
    /// When there is none of that version, or the system refuses.
    pub fn remove(&self, version: &str) -> Result<InstalledBundle, Error> {
        let held = self.bundles.get(version)?;
        self.bundles.clear()?;
        if held.link_target.is_some() {
            fs::remove_file(&held.path).map_err(Error::file("remove", &held.path))?;
            self.bundles.forget(version)?;
            files::sync_parent(&held.path)?;
            return Ok(held);
        }
        // From one moment to the next there is nothing of that name, whatever happens while it is
        // deleted.
        let aside = files::sibling(&held.path, "removed");
        fs::rename(&held.path, &aside).map_err(files::moved("remove", &held.path))?;
        files::sync_parent(&held.path)?;
        files::remove_dir(&aside)?;
        Ok(held)
    }
}
