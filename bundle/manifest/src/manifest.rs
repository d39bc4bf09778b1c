//! The manifest: the description of a bundle, with the SHA-256 of every file in it.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use halite_durable::{Error, digest};
use halite_names::BundleVersion;
use serde::{Deserialize, Serialize};

/// Name of the manifest in a bundle.
pub const FILE: &str = "manifest.json";

/// Name of the manifest's own checksum, in the format of `sha256sum`.
pub const CHECKSUM: &str = "manifest.json.sha256";

/// Returns whether a file at the top of a bundle is a signature of its manifest:
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

/// The description of a bundle and its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`FORMAT`].
    pub format: u32,
    /// Always `halite`.
    pub name: String,
    /// The bundle's version.
    pub version: BundleVersion,
    /// The time at which the builder resolved its content, as RFC 3339 in UTC.
    pub built: String,
    /// Kubernetes' version with its `v`.
    pub kubernetes: String,
    /// Component to version, for the components that are versioned independently of Kubernetes
    /// (`etcd`, `containerd` …).
    pub components: BTreeMap<String, String>,
    /// Component to the full reference of its image: `NAME:TAG@sha256:…`. Bundles that were built
    /// before digests were recorded have `NAME:TAG`; [`ImageReference`] reads both.
    pub images: BTreeMap<String, String>,
    /// The choices that the bundle supports, by field of the cluster document. Fields that are not
    /// listed may have any value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, Vec<String>>,
    /// Texts in the state tree that look like an image reference but are not, each with the reason.
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
    /// Every file except the manifest and its checksum, by its path in the bundle.
    pub files: BTreeMap<String, ManifestEntry>,
}

/// A file of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestEntry {
    /// SHA-256 of its content, in hexadecimal.
    pub sha256: String,
    /// Its size in bytes.
    pub size: u64,
}

/// The parts of an image reference in a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageReference<'a> {
    /// Registry, repository and tag: the name of the image in the bundle's layout.
    pub name: &'a str,
    /// The digest of its manifest, with `sha256:`; `None` in bundles that do not record it.
    pub digest: Option<&'a str>,
}

impl<'a> ImageReference<'a> {
    /// Splits a reference. Nothing is checked.
    #[must_use]
    pub fn new(reference: &'a str) -> Self {
        match reference.split_once('@') {
            Some((name, digest)) => Self {
                name,
                digest: Some(digest),
            },
            None => Self {
                name: reference,
                digest: None,
            },
        }
    }
}

impl Manifest {
    /// The SHA-256 of a file, by its path in the bundle.
    #[must_use]
    pub fn sha256(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(|entry| entry.sha256.as_str())
    }

    /// The content of a file of the bundle in a directory, compared with this manifest. For small
    /// files only: the whole content is held in memory.
    ///
    /// # Errors
    /// The manifest does not list the file, it cannot be read, or its content differs.
    pub fn read(&self, dir: &Path, path: &str) -> Result<Vec<u8>, Error> {
        let place = dir.join(path);
        let Some(entry) = self.files.get(path) else {
            return Err(Error::content(place, "it is not in the manifest"));
        };
        // A user who may change the directory could put a pipe there, which blocks or never ends.
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
            "it differs from the manifest: it was changed",
        ))
    }

    /// The manifest's text as it is stored in the bundle.
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

/// Reads the manifest of the bundle in a directory and compares it with its checksum file. The
/// listed files are not checked: that is `halite_bundle::verify()`.
///
/// # Errors
/// One of the two files is missing, they do not match, or the format is unknown.
pub fn load(dir: &Path) -> Result<Manifest, Error> {
    let read = |name: &str| {
        let path = dir.join(name);
        fs::read(&path).map_err(Error::file("read", path))
    };
    parse(dir.join(FILE), &read(FILE)?, &read(CHECKSUM)?)
}

/// Reads the manifest of the bundle in a directory and requires that it has this SHA-256. This
/// guards against a directory that was replaced since the verification.
///
/// # Errors
/// As above, or the manifest has another digest.
pub fn load_same(dir: &Path, sha256: &str) -> Result<Manifest, Error> {
    Ok(load_text(dir, Some(sha256))?.0)
}

/// The manifest with its text, read as by [`load()`] or, with a SHA-256, as by [`load_same()`]. A
/// caller that needs both reads the file once; two reads could see two bundles.
///
/// # Errors
/// As above.
pub fn load_text(dir: &Path, sha256: Option<&str>) -> Result<(Manifest, String), Error> {
    let path = dir.join(FILE);
    let bytes = fs::read(&path).map_err(Error::file("read", &path))?;
    let found = digest::sha256(&bytes);
    if let Some(sha256) = sha256.filter(|sha256| *sha256 != found) {
        let message =
            format!("its sha256 is {found}, but the verified one has {sha256}: it was replaced");
        return Err(Error::content(path, message));
    }
    let recorded = dir.join(CHECKSUM);
    let recorded = fs::read(&recorded).map_err(Error::file("read", &recorded))?;
    let manifest = parse(path.clone(), &bytes, &recorded)?;
    let text = String::from_utf8(bytes).map_err(|error| Error::content(path, error.to_string()))?;
    Ok((manifest, text))
}

/// Parses a manifest that was already verified; `path` is named in errors.
///
/// # Errors
/// It has another format.
pub fn from_bytes(path: &Path, bytes: &[u8]) -> Result<Manifest, Error> {
    parse(path.to_owned(), bytes, Manifest::checksum(bytes).as_bytes())
}

/// Parses a manifest and compares it with its checksum file; `path` is named in errors.
///
/// # Errors
/// It does not match its checksum, or has another format.
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
            format!("this version cannot read the manifest: {error}"),
        )
    })?;
    if manifest.format != FORMAT {
        let message = format!(
            "format {} is not supported, only {FORMAT}: use the ctl of that bundle",
            manifest.format
        );
        return Err(Error::content(path, message));
    }
    // Files are read and written under these names, so even a trusted manifest must not name a path
    // outside the bundle.
    match manifest.files.keys().find(|path| !is_inside(path)) {
        Some(outside) => Err(Error::content(
            path,
            format!("the manifest names {outside:?}, which is outside the bundle"),
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

    fn manifest(images: &str) -> String {
        format!(
            r#"{{"format":1,"name":"halite","version":"0.1.0","built":"x","kubernetes":"v1.36.3",
                "components":{{}},"images":{images},"packages":{{}},"files":{{}}}}"#
        )
    }

    #[test]
    fn images_keep_their_digests_and_those_of_earlier_bundles_have_none() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let pinned = format!("registry.k8s.io/pause:3.10.2@{digest}");
        let text = manifest(&format!(
            r#"{{"pause":"{pinned}","etcd":"localhost:5000/etcd:3.6"}}"#
        ));
        let read = from_bytes(Path::new(FILE), text.as_bytes()).unwrap();
        let again = from_bytes(Path::new(FILE), &read.to_bytes().unwrap()).unwrap();
        assert_eq!(again, read);
        assert_eq!(
            ImageReference::new(&read.images["pause"]),
            ImageReference {
                name: "registry.k8s.io/pause:3.10.2",
                digest: Some(&digest)
            }
        );
        assert_eq!(
            ImageReference::new(&read.images["etcd"]),
            ImageReference {
                name: "localhost:5000/etcd:3.6",
                digest: None
            }
        );
    }

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
