//! The bundles of a site, side by side: each stands in one directory under its version, as a
//! directory of its own, or as a link to one that is mounted or was extracted link_target.
//!
//! Everything here can be cut off at any moment and done again: a bundle is there whole or not at
//! all. Names that begin with a dot are work in progress, and of no meaning to anybody else; the
//! next change removes what was left of them.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use halite_durable::{Error, digest};

use crate::manifest;
use crate::manifest::Manifest;

/// Where the bundles of a site stand, each under its version.
pub const DIRECTORY: &str = "/var/lib/halite/bundles";

/// What a file system of its own has at its top.
const OF_THE_DISK: &str = "lost+found";

/// What is recorded of a bundle that is linked: in a file `VERSION@` and this. No version has an
/// `@` in it.
const RECORD: &str = manifest::CHECKSUM;

/// The longest version of a bundle on a site.
const LONGEST_VERSION: usize = 64;

/// The directory with the bundles of a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundles {
    root: PathBuf,
}

/// A bundle of a site.
#[derive(Debug, Clone)]
pub struct InstalledBundle {
    /// Its version.
    pub version: String,
    /// Where it stands: this path stays the same whatever it leads to.
    pub path: PathBuf,
    /// Where it really is, when that path is a link.
    pub link_target: Option<PathBuf>,
    /// What its manifest's SHA-256 was when it was added, where it is a link and that was recorded.
    pub recorded: Option<String>,
    /// What it is; or why it cannot be used now.
    pub manifest: Result<Manifest, String>,
}

impl Default for Bundles {
    fn default() -> Self {
        Self::new(DIRECTORY)
    }
}

impl Bundles {
    /// Bundles below a directory, which need not be there yet.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where the bundle of a version stands, if there is one.
    ///
    /// # Errors
    /// When the text can be no version: it is the name of a directory, and a part of addresses.
    pub fn path(&self, version: &str) -> Result<PathBuf, Error> {
        check_version(version).map_err(|why| Error::content(&self.root, why))?;
        Ok(self.root.join(version))
    }

    /// All bundles, in the order of their versions, also those that cannot be used now.
    ///
    /// # Errors
    /// When the directory is there and cannot be listed.
    pub fn list(&self) -> Result<Vec<InstalledBundle>, Error> {
        self.versions()?
            .iter()
            .map(|version| self.held(version))
            .collect()
    }

    /// The bundle of a version.
    ///
    /// # Errors
    /// When there is none.
    pub fn get(&self, version: &str) -> Result<InstalledBundle, Error> {
        let path = self.path(version)?;
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
        self.held(version)
    }

    /// The manifests of all bundles: when name, time and size of none of these files change, the
    /// bundles are the same.
    #[must_use]
    pub fn manifests(&self) -> Vec<PathBuf> {
        let versions = self.versions().unwrap_or_default();
        versions
            .iter()
            .map(|version| self.root.join(version).join(manifest::FILE))
            .collect()
    }

    /// A file of any of the bundles by its SHA-256.
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

    fn versions(&self) -> Result<Vec<String>, Error> {
        let listed = match fs::read_dir(&self.root) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            listed => listed.map_err(Error::file("list", &self.root))?,
        };
        let mut found = Vec::new();
        for entry in listed {
            let entry = entry.map_err(Error::file("list", &self.root))?;
            let plain = entry.file_type().is_ok_and(|kind| kind.is_file());
            match entry.file_name().into_string() {
                Ok(name) if is_version(&name) && !plain && name != OF_THE_DISK => found.push(name),
                _ => {}
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    fn held(&self, version: &str) -> Result<InstalledBundle, Error> {
        let path = self.path(version)?;
        let link_target = fs::read_link(&path).ok();
        let manifest = match &link_target {
            // What is missing there is not of this bundle: its medium is not where it was.
            Some(real) if !real.join(manifest::FILE).exists() => Err(format!(
                "it is a link to {}, and no bundle is there now",
                real.display()
            )),
            _ => manifest::load(&path).map_err(|error| error.to_string()),
        };
        let manifest = manifest.and_then(|manifest| {
            if manifest.version == version {
                return Ok(manifest);
            }
            let at = link_target.as_ref().unwrap_or(&path).display();
            Err(format!(
                "the bundle {} is at {at} now, not {version}",
                manifest.version
            ))
        });
        // Of a link only the place is one's own: what is there must still be what somebody vouched
        // for.
        let recorded = self.recorded(version).filter(|_| link_target.is_some());
        let manifest = match &recorded {
            Some(sha256) => manifest.and_then(|_| {
                manifest::load_same(&path, sha256)
                    .map_err(|error| format!("it is not the bundle that was added: {error}"))
            }),
            None => manifest,
        };
        Ok(InstalledBundle {
            version: version.to_owned(),
            path,
            link_target,
            recorded,
            manifest,
        })
    }

    /// The SHA-256 that the manifest of a linked bundle had when it was added; nothing where that
    /// was not recorded, and what matches no manifest where the record cannot be read.
    #[must_use]
    pub fn recorded(&self, version: &str) -> Option<String> {
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
    pub fn record(&self, version: &str) -> PathBuf {
        self.root.join(format!("{version}@{RECORD}"))
    }
}

impl InstalledBundle {
    /// The SHA-256 of its `manifest.json`, which knows that of every other file; none when it
    /// cannot be read. Of a link it is the recorded one, whatever is there by now.
    #[must_use]
    pub fn digest(&self) -> Option<String> {
        if self.recorded.is_some() {
            return self.recorded.clone();
        }
        fs::read(self.path.join(manifest::FILE))
            .ok()
            .map(|text| digest::sha256(&text))
    }

    /// Why it cannot be used now, and what to do; nothing for one that can.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.manifest.as_ref().err().map(|why| self.unusable(why))
    }

    /// That it cannot be used for that reason, and what to do.
    #[must_use]
    pub fn unusable(&self, why: &str) -> String {
        let remedy = match &self.link_target {
            Some(real) => format!(
                "bring it back to {} (mount the medium there again), or put its ISO in its place with `ctl bundle add`",
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

/// Whether a text can be the version of a bundle: it is the name of a directory on the site, and a
/// part of addresses.
///
/// # Errors
/// What a version is made of.
pub fn check_version(text: &str) -> Result<(), String> {
    if is_version(text) {
        return Ok(());
    }
    Err(format!(
        "{text:?} can be no bundle's version on a site: letters, digits, `.`, `-`, `_`, `+` and `~`, beginning with a letter or \
         digit, at most {LONGEST_VERSION}"
    ))
}

fn is_version(text: &str) -> bool {
    let byte = |byte: u8| byte.is_ascii_alphanumeric() || b".-_+~".contains(&byte);
    let begin = text
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphanumeric());
    begin && text.len() <= LONGEST_VERSION && text.bytes().all(byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_one_name() {
        for good in ["0.1.0", "1", "2026.11-rc1+site_3~x", "a"] {
            assert!(is_version(good), "{good}");
        }
        for bad in [
            "",
            ".",
            "..",
            ".new",
            "a/b",
            "../x",
            "a b",
            "ä",
            "-1",
            &"x".repeat(65),
        ] {
            assert!(!is_version(bad), "{bad}");
            assert!(Bundles::default().path(bad).is_err(), "{bad}");
        }
    }
}
