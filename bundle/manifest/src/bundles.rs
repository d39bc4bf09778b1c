//! The bundles of a site, each in a directory named after its version. That directory contains the
//! bundle, or is a link to a mounted or extracted one (`link_target`).
//!
//! Every operation here can be interrupted at any moment and repeated: a bundle exists completely
//! or not at all. Names that begin with a dot are work in progress and must be ignored; the next
//! change removes leftovers.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use halite_durable::{Error, digest};
use halite_errors::chain;
use halite_names::BundleVersion;

use crate::manifest;
use crate::manifest::Manifest;

/// The directory of a site's bundles, each under its version.
pub const DIRECTORY: &str = "/var/lib/halite/bundles";

/// A directory that mkfs creates at the top of a file system.
const OF_THE_DISK: &str = "lost+found";

/// Suffix of the file that records the digest of a linked bundle: `VERSION@` and this. No version
/// contains an `@`.
const RECORD: &str = manifest::CHECKSUM;

/// The directory with the bundles of a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundles {
    root: PathBuf,
}

/// A bundle of a site.
#[derive(Debug, Clone)]
pub struct InstalledBundle {
    /// Its version.
    pub version: BundleVersion,
    /// Its path on the site. It stays the same when the link's target changes.
    pub path: PathBuf,
    /// The target of that path, if the path is a link.
    pub link_target: Option<PathBuf>,
    /// The SHA-256 of its manifest when it was added, if it is a link and the digest was recorded.
    pub recorded: Option<String>,
    /// Its manifest, or the reason why the bundle cannot be used now.
    pub manifest: Result<Manifest, Unusable>,
}

/// The reason why a bundle of a site cannot be used now.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Unusable {
    /// Its path is a link whose target is missing: the disk or ISO is not mounted.
    #[error("it is a link to {}, which contains no bundle now", target.display())]
    Away {
        /// The link's target.
        target: PathBuf,
    },
    /// Its manifest cannot be read.
    #[error(transparent)]
    Manifest(Arc<Error>),
    /// Another version is in its place.
    #[error("the bundle {found} is at {} now, not {expected}", at.display())]
    OtherVersion {
        /// The existing version.
        found: BundleVersion,
        /// The path, or the target of the link at that path.
        at: PathBuf,
        /// The version that was added.
        expected: BundleVersion,
    },
    /// Its manifest is not the one that was recorded when it was added.
    #[error("it is not the bundle that was added")]
    Exchanged(#[source] Arc<Error>),
}

impl From<Error> for Unusable {
    fn from(error: Error) -> Self {
        Self::Manifest(Arc::new(error))
    }
}

impl Default for Bundles {
    fn default() -> Self {
        Self::new(DIRECTORY)
    }
}

impl Bundles {
    /// The bundles below a directory, which need not exist yet.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The path of the bundle with this version, whether or not it exists.
    #[must_use]
    pub fn path(&self, version: &BundleVersion) -> PathBuf {
        self.root.join(version.as_str())
    }

    /// All bundles in the order of their versions, including those that cannot be used now.
    ///
    /// # Errors
    /// The directory exists and cannot be listed.
    pub fn list(&self) -> Result<Vec<InstalledBundle>, Error> {
        let versions = self.versions()?;
        Ok(versions
            .into_iter()
            .map(|version| self.held(version))
            .collect())
    }

    /// The bundle with this version.
    ///
    /// # Errors
    /// There is no such bundle.
    pub fn get(&self, version: &BundleVersion) -> Result<InstalledBundle, Error> {
        let path = self.path(version);
        if fs::symlink_metadata(&path).is_err() {
            let there = self.versions()?;
            let there = if there.is_empty() {
                "none".to_owned()
            } else {
                there.join(", ")
            };
            let message = format!("there is no bundle {version} on this site (there are: {there})");
            return Err(Error::content(path, message));
        }
        Ok(self.held(version.clone()))
    }

    /// The paths of the manifests of all bundles. While name, time and size of each of these files
    /// are unchanged, the bundles are the same.
    #[must_use]
    pub fn manifests(&self) -> Vec<PathBuf> {
        let versions = self.versions().unwrap_or_default();
        versions
            .iter()
            .map(|version| self.path(version).join(manifest::FILE))
            .collect()
    }

    /// A file of any of the bundles, found by its SHA-256.
    #[must_use]
    pub fn file(&self, sha256: &str) -> Option<PathBuf> {
        let find = |held: &InstalledBundle| {
            let (path, _) = held
                .manifest
                .as_ref()
                .ok()?
                .files
                .iter()
                .find(|(_, entry)| entry.sha256 == sha256)?;
            Some(held.path.join(path))
        };
        self.list().ok()?.iter().find_map(find)
    }

    fn versions(&self) -> Result<Vec<BundleVersion>, Error> {
        let listed = match fs::read_dir(&self.root) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            listed => listed.map_err(Error::file("list", &self.root))?,
        };
        let mut found = Vec::new();
        for entry in listed {
            let entry = entry.map_err(Error::file("list", &self.root))?;
            let plain = entry.file_type().is_ok_and(|kind| kind.is_file());
            match entry.file_name().into_string() {
                Ok(name) if !plain && name != OF_THE_DISK => found.extend(name.parse().ok()),
                _ => {}
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    fn held(&self, version: BundleVersion) -> InstalledBundle {
        let path = self.path(&version);
        let link_target = fs::read_link(&path).ok();
        let manifest = match &link_target {
            // Without a manifest at the target, the disk or ISO is not mounted.
            Some(real) if !real.join(manifest::FILE).exists() => Err(Unusable::Away {
                target: real.clone(),
            }),
            _ => manifest::load(&path).map_err(Unusable::from),
        };
        let manifest = manifest.and_then(|manifest| {
            if manifest.version == version {
                return Ok(manifest);
            }
            Err(Unusable::OtherVersion {
                found: manifest.version,
                at: link_target.as_ref().unwrap_or(&path).clone(),
                expected: version.clone(),
            })
        });
        // The target of a link is not under the site's control: its manifest must still be the one
        // whose signature was verified when it was added.
        let recorded = self.recorded(&version).filter(|_| link_target.is_some());
        let manifest = match &recorded {
            Some(sha256) => manifest.and_then(|_| {
                manifest::load_same(&path, sha256)
                    .map_err(|error| Unusable::Exchanged(Arc::new(error)))
            }),
            None => manifest,
        };
        InstalledBundle {
            version,
            path,
            link_target,
            recorded,
            manifest,
        }
    }

    /// The recorded SHA-256 of a linked bundle's manifest. `None` if none was recorded; a text that
    /// matches no manifest if the record cannot be read.
    #[must_use]
    pub fn recorded(&self, version: &BundleVersion) -> Option<String> {
        let text = match fs::read_to_string(self.record(version)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            read => read.unwrap_or_default(),
        };
        Some(
            text.split_whitespace()
                .next()
                .unwrap_or_default()
                .to_owned(),
        )
    }

    /// The file in which the digest of a linked bundle is recorded.
    #[must_use]
    pub fn record(&self, version: &BundleVersion) -> PathBuf {
        self.root.join(format!("{version}@{RECORD}"))
    }
}

impl InstalledBundle {
    /// The SHA-256 of its `manifest.json`, which lists the digests of all other files; `None` if it
    /// cannot be read. For a link it is the recorded digest, not the digest of the current target.
    #[must_use]
    pub fn digest(&self) -> Option<String> {
        if self.recorded.is_some() {
            return self.recorded.clone();
        }
        fs::read(self.path.join(manifest::FILE))
            .ok()
            .map(|text| digest::sha256(&text))
    }

    /// The reason why it is currently unusable, with the remedy; `None` if it is usable.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.manifest
            .as_ref()
            .err()
            .map(|why| self.unusable(&chain(why)))
    }

    /// A message that it cannot be used for this reason, with the remedy.
    #[must_use]
    pub fn unusable(&self, why: &str) -> String {
        let remedy = match &self.link_target {
            Some(real) => format!(
                "bring it back to {} (mount the disk or ISO there again), or put its ISO in its place with `ctl bundle add`",
                real.display()
            ),
            None => "put its ISO in its place with `ctl bundle add`".to_owned(),
        };
        format!(
            "the bundle {} at {} cannot be used: {why}; {remedy}",
            self.version,
            self.path.display()
        )
    }
}
