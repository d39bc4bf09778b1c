//! The manifest: what a bundle is, and the SHA-256 of every file in it.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use halite_durable::{Error, digest};
use serde::{Deserialize, Serialize};

/// Name of the manifest in a bundle.
pub const FILE: &str = "manifest.json";

/// Name of the manifest's own checksum, in the format of `sha256sum`.
pub const CHECKSUM: &str = "manifest.json.sha256";

/// Whether a file at the top of a bundle is a signature of its manifest:
/// `manifest.json.KEYID.minisig`.
#[must_use]
pub fn is_signature(path: &str) -> bool {
    let id = path
        .strip_prefix(FILE)
        .and_then(|rest| rest.strip_prefix('.')?.strip_suffix(".minisig"));
    id.is_some_and(|id| !id.is_empty() && id.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

/// The only format of the manifest so far.
pub const FORMAT: u32 = 1;

/// What a bundle is and holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`FORMAT`].
    pub format: u32,
    /// Always `halite`.
    pub name: String,
    /// The bundle's version.
    pub version: String,
    /// When its content was settled, as RFC 3339 in UTC.
    pub built: String,
    /// Kubernetes' version with its `v`.
    pub kubernetes: String,
    /// Component to version, for all that does not follow Kubernetes' own (`etcd`, `containerd` …).
    pub components: BTreeMap<String, String>,
    /// Component to the full reference of its image.
    pub images: BTreeMap<String, String>,
    /// The choices that the bundle was made for, by field of the cluster document; those that are
    /// not named may be any.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, Vec<String>>,
    /// Texts in the state tree that look like the name of an image and are none, each with why.
    #[serde(
        default,
        rename = "not-images",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub not_images: BTreeMap<String, String>,
    /// Chart to its version; `charts/NAME.yaml` holds its objects.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub charts: BTreeMap<String, String>,
    /// Package of the apt repository to its version.
    pub packages: BTreeMap<String, String>,
    /// Package of the yum repository to its version.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rpms: BTreeMap<String, String>,
    /// Every file but the manifest and its checksum, by its path in the bundle.
    pub files: BTreeMap<String, Entry>,
}

/// A file of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// SHA-256 of its content, in hexadecimal.
    pub sha256: String,
    /// Its size in bytes.
    pub size: u64,
}

impl Manifest {
    /// The SHA-256 of a file by its path in the bundle.
    #[must_use]
    pub fn sha256(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(|entry| entry.sha256.as_str())
    }

    /// The content of a file of the bundle in a directory, which is what this manifest says. For
    /// small files: all of it is in memory.
    ///
    /// # Errors
    /// When the manifest does not list it, it cannot be read, or is another one.
    pub fn read(&self, dir: &Path, path: &str) -> Result<Vec<u8>, Error> {
        let place = dir.join(path);
        let Some(entry) = self.files.get(path) else {
            return Err(Error::content(place, "it is not in the manifest"));
        };
        // Who may change a directory may put a pipe there that never ends, or never begins.
        let plain = fs::metadata(&place)
            .map_err(Error::file("read", &place))?
            .is_file();
        let mut content = Vec::new();
        if plain {
            let file = fs::File::open(&place).map_err(Error::file("read", &place))?;
            let most = entry.size.saturating_add(1);
            file.take(most)
                .read_to_end(&mut content)
                .map_err(Error::file("read", &place))?;
        }
        if plain && digest::sha256(&content) == entry.sha256 {
            return Ok(content);
        }
        Err(Error::content(
            place,
            "it is not what the manifest says: it was changed",
        ))
    }

    /// The manifest as it stands in the bundle.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        let mut bytes = serde_json::to_vec_pretty(self)
            .map_err(|error| Error::content(FILE, error.to_string()))?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// The checksum file that belongs to it.
    pub fn checksum(bytes: &[u8]) -> String {
        checksum_of(&digest::sha256(bytes))
    }
}

/// The checksum file of a manifest with that SHA-256, as `sha256sum` writes it.
pub fn checksum_of(sha256: &str) -> String {
    format!("{sha256}  {FILE}\n")
}

/// Reads the manifest of the bundle in a directory and compares it with its own checksum. The files
/// that it lists are not looked at: that is [`halite_bundle::verify()`].
///
/// # Errors
/// When one of the two files is missing, does not match the other, or is of another format.
pub fn load(dir: &Path) -> Result<Manifest, Error> {
    let read = |name: &str| {
        let path = dir.join(name);
        fs::read(&path).map_err(Error::file("read", path))
    };
    parse(dir.join(FILE), &read(FILE)?, &read(CHECKSUM)?)
}

/// Reads the manifest of the bundle in a directory, which must be the one with that SHA-256: the
/// one that was verified, whatever is in the directory by now.
///
/// # Errors
/// Likewise, and when it is another one.
pub fn load_same(dir: &Path, sha256: &str) -> Result<Manifest, Error> {
    Ok(load_text(dir, Some(sha256))?.0)
}

/// The manifest with its text, as [`load()`] or, with a SHA-256, as [`load_same()`]: who needs both
/// reads the file once, or they may be of two bundles.
///
/// # Errors
/// Likewise.
pub fn load_text(dir: &Path, sha256: Option<&str>) -> Result<(Manifest, String), Error> {
    let path = dir.join(FILE);
    let bytes = fs::read(&path).map_err(Error::file("read", &path))?;
    let found = digest::sha256(&bytes);
    if let Some(sha256) = sha256.filter(|sha256| *sha256 != found) {
        let message = format!(
            "its sha256 is {found}, and the one that was checked has {sha256}: it was exchanged"
        );
        return Err(Error::content(path, message));
    }
    let recorded = dir.join(CHECKSUM);
    let recorded = fs::read(&recorded).map_err(Error::file("read", &recorded))?;
    let manifest = parse(path.clone(), &bytes, &recorded)?;
    let text = String::from_utf8(bytes).map_err(|error| Error::content(path, error.to_string()))?;
    Ok((manifest, text))
}

/// The manifest from its text, which was verified; `path` is named in errors.
///
/// # Errors
/// When it is of another format.
pub fn from_bytes(path: &Path, bytes: &[u8]) -> Result<Manifest, Error> {
    parse(path.to_owned(), bytes, Manifest::checksum(bytes).as_bytes())
}

/// Parses a manifest and compares it with its checksum file; `path` is named in errors.
///
/// # Errors
/// When it does not match its checksum, or is of another format.
pub fn parse(path: PathBuf, bytes: &[u8], recorded: &[u8]) -> Result<Manifest, Error> {
    if recorded != Manifest::checksum(bytes).as_bytes() {
        let message = format!(
            "it does not match {CHECKSUM}: the bundle is damaged; copy it again from its source"
        );
        return Err(Error::content(path, message));
    }
    let manifest: Manifest = serde_json::from_slice(bytes).map_err(|error| {
        Error::content(
            &path,
            format!("this is no manifest that this version reads: {error}"),
        )
    })?;
    if manifest.format != FORMAT {
        let message = format!(
            "format {} is not known here, only {FORMAT}: use the ctl of that bundle",
            manifest.format
        );
        return Err(Error::content(path, message));
    }
    // Files are read and written by these names: also whoever is trusted names none outside of the
    // bundle.
    match manifest.files.keys().find(|path| !is_inside(path)) {
        Some(outside) => Err(Error::content(
            path,
            format!("the manifest names {outside:?}, which is outside of the bundle"),
        )),
        None => Ok(manifest),
    }
}

fn is_inside(path: &str) -> bool {
    !path.contains('\0') && path.split('/').all(|name| !matches!(name, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_a_bundle_is_in_it() {
        for path in ["a", "a/b", "..a/b..", ".hidden"] {
            assert!(is_inside(path), "{path}");
        }
        for path in [
            "",
            "/",
            "/etc/passwd",
            "..",
            "a/..",
            "a/../../b",
            "a//b",
            "./a",
            "a/.",
            "a/",
            "a\0b",
        ] {
            assert!(!is_inside(path), "{path:?}");
        }
    }
}
