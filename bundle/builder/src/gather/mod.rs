//! The items of a recipe: each name is first resolved, and the lock records the result; then the
//! contents are fetched as recorded in the lock.

mod charts;
mod files;
mod images;
mod packages;
mod releases;
mod rpms;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use charts::Rendered;
use halite_durable::files::copy;
use halite_fetch::oci::Registries;
use halite_fetch::oci_layout::StoredImage;
use halite_fetch::{Cache, Fetcher};
use jiff::Timestamp;

use crate::error::Error;
use crate::lock;
use crate::lock::Lock;
use crate::recipe::{Recipe, Watcher};

/// The directory for downloads in the cache of a recipe.
const FETCHED: &str = "fetched";

/// The treatment of names that the lock does not record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Names of items from other machines are refused, so that a build takes only reviewed items.
    Exact,
    /// They are resolved; recorded items stay unchanged.
    Keep,
    /// Everything is resolved again.
    Renew,
}

/// The collector of all items of a recipe.
pub struct Gather<'a> {
    file: &'a Path,
    recipe: &'a Recipe,
    fetcher: Fetcher,
    registries: Registries,
    /// `true` if no other machine may be contacted, not even through this machine's apt.
    offline: bool,
    /// The cache directory.
    cache: PathBuf,
}

/// A resolved recipe, with the items that are already on this machine.
pub struct Settled {
    /// The lock to record.
    pub lock: Lock,
    /// The images of the recipe, in its order; images from registries are still `None`.
    images: Vec<Option<StoredImage>>,
    /// The archives from this machine's apt; `None` if they come from repositories.
    archives: Option<Vec<Archive>>,
}

/// The archive of a package on this machine.
#[derive(Debug, Clone)]
pub struct Archive {
    /// The name of its file in the repository.
    pub name: String,
    /// Its path.
    pub path: PathBuf,
    /// Its SHA-256 according to the lock.
    pub sha256: String,
}

impl Archive {
    /// Copies the archive, and compares its digest with the recorded one while copying.
    pub fn copy(&self, to: &Path) -> Result<(), Error> {
        let found = copy(&self.path, to, 0o644)?;
        if found.0 == self.sha256 {
            Ok(())
        } else {
            Err(Error::damaged(&self.path, &found))
        }
    }
}

/// All items, on this machine.
pub struct Contents {
    /// The images, in the recipe's order.
    pub images: Vec<StoredImage>,
    /// The archives of packages.
    pub archives: Vec<Archive>,
    /// The charts.
    pub charts: Vec<Rendered>,
    /// The archives of packages for further Debian releases, by codename.
    pub releases: BTreeMap<String, Vec<Archive>>,
    /// The archives of packages for RPM distributions.
    pub rpms: Vec<Archive>,
}

impl<'a> Gather<'a> {
    /// Prepares for a recipe; downloads are stored in `cache`.
    pub fn new(
        file: &'a Path,
        recipe: &'a Recipe,
        cache: &Path,
        offline: bool,
        watcher: Option<Watcher>,
    ) -> Result<Self, Error> {
        let fetched = Cache::open(&cache.join(FETCHED))?;
        // If no other machine is contacted, logins and the proxy do not matter.
        let alone = offline || !recipe.is_remote();
        let fetcher = match alone {
            true => Fetcher::offline(fetched),
            false => recipe.network.fetcher(fetched, watcher)?,
        };
        let registries = recipe.network.registries(alone)?;
        Ok(Self {
            file,
            recipe,
            fetcher,
            registries,
            offline,
            cache: cache.to_owned(),
        })
    }

    /// Resolves everything, in accordance with the record.
    ///
    /// # Errors
    /// Every item that cannot be resolved, is not recorded although it must be, or differs from the
    /// record.
    pub fn settle(&self, recorded: Option<&Lock>, mode: Mode) -> Result<Settled, Error> {
        let before = recorded.filter(|_| mode != Mode::Renew);
        let (mut errors, mut unrecorded) = (Vec::new(), Vec::new());
        let (images, found) = self.settle_images(before, mode, &mut unrecorded, &mut errors);
        let files = self.settle_files(before, mode, &mut unrecorded, &mut errors);
        let charts = self.settle_charts(before, mode, &mut unrecorded, &mut errors);
        let packages = self
            .settle_packages(before, mode, &mut unrecorded)
            .map_err(|error| errors.push(error));
        let releases = self
            .settle_releases(before, mode, &mut unrecorded)
            .map_err(|error| errors.push(error));
        let rpms = self
            .settle_rpms(before, mode, &mut unrecorded)
            .map_err(|error| errors.push(error));
        if !unrecorded.is_empty() {
            errors.push(Error::Unrecorded {
                lock: self.lock_file(),
                names: unrecorded,
            });
        }
        Error::all(errors)?;
        let (request, packages, archives) = packages.unwrap_or_default();
        let (releases, rpms) = (releases.unwrap_or_default(), rpms.unwrap_or_default());
        let mut lock = Lock {
            format: 1,
            resolved: String::new(),
            request,
            images,
            packages,
            releases,
            files,
            charts,
            rpms,
        };
        if let Some(before) = before {
            let differences = before.differences(&lock);
            if !differences.is_empty() {
                return Err(Error::Lock {
                    lock: self.lock_file(),
                    differences,
                });
            }
        }
        lock.resolved = match recorded {
            Some(recorded)
                if Lock {
                    resolved: recorded.resolved.clone(),
                    ..lock.clone()
                } == *recorded =>
            {
                recorded.resolved.clone()
            }
            _ => now()?.to_string(),
        };
        Ok(Settled {
            lock,
            images: found,
            archives,
        })
    }

    /// Fetches everything, exactly as the lock records it.
    ///
    /// # Errors
    /// Every item that cannot be obtained.
    pub fn fetch(
        &self,
        settled: Settled,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Contents, Error> {
        if !self.fetcher.is_offline() {
            progress("fetching items that are not in the cache yet");
        }
        let mut errors = Vec::new();
        let images = self
            .fetch_images(&settled)
            .map_err(|error| errors.push(error));
        errors.extend(self.fetch_files(&settled).err());
        let charts = self
            .fetch_charts(&settled)
            .map_err(|error| errors.push(error));
        let releases = self
            .fetch_releases(&settled)
            .map_err(|error| errors.push(error));
        let rpms = self
            .fetch_rpms(&settled)
            .map_err(|error| errors.push(error));
        let archives = self
            .fetch_packages(settled)
            .map_err(|error| errors.push(error));
        Error::all(errors)?;
        Ok(Contents {
            images: images.unwrap_or_default(),
            archives: archives.unwrap_or_default(),
            charts: charts.unwrap_or_default(),
            releases: releases.unwrap_or_default(),
            rpms: rpms.unwrap_or_default(),
        })
    }

    fn lock_file(&self) -> String {
        lock::path_of(self.file).display().to_string()
    }
}

/// Returns `SOURCE_DATE_EPOCH` if it is set, so that a build without a lock can be repeated, too;
/// otherwise the current time, in seconds.
fn now() -> Result<Timestamp, Error> {
    let wrong = |error: String| Error::content("SOURCE_DATE_EPOCH", error);
    let seconds = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text
            .parse()
            .map_err(|_| wrong(format!("{text:?} is not a number of seconds")))?,
        Err(_) => Timestamp::now().as_second(),
    };
    Timestamp::from_second(seconds).map_err(|error| wrong(error.to_string()))
}
