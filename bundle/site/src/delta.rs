//! A delta: one sealed file with the contents of a new bundle that an older bundle lacks.
//!
//! It contains [`FILE`], which names the two bundles; below `new/` the new bundle's manifest with
//! its checksum and signatures; and below `files/` each content that the old bundle lacks, once,
//! under the first of its paths. It has no `manifest.json` at the top, so that it is not mistaken
//! for a bundle. A site builds the whole new bundle from the delta and the old bundle:
//! [`crate::BundleStore::add_image`].

use std::collections::BTreeMap;
use std::path::Path;

use halite_iso9660::read::IsoImage;
use halite_manifest::{Manifest, manifest};
use halite_names::BundleVersion;
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Name of the description in a delta.
pub const FILE: &str = "delta.json";

/// The directory of the new bundle's manifest, its checksum and its signatures.
pub(crate) const NEW: &str = "new/";

/// The directory of the contents that the old bundle lacks.
pub(crate) const FILES: &str = "files/";

/// The only format of the description so far.
pub(crate) const FORMAT: u32 = 1;

/// The description of a delta.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Delta {
    /// [`FORMAT`].
    pub format: u32,
    /// The bundle that the site must already have.
    pub old: Side,
    /// The resulting bundle.
    pub new: Side,
    /// Files of the new bundle that are executable.
    pub programs: Vec<String>,
}

/// One of the two bundles.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Side {
    /// Its version.
    pub version: BundleVersion,
    /// Its Kubernetes version.
    pub kubernetes: String,
    /// The time at which its content was resolved.
    pub built: String,
    /// The SHA-256 of its manifest.
    pub manifest_sha256: String,
}

/// The format, parsed before the rest because another format has other fields.
#[derive(Deserialize)]
struct Format {
    format: u32,
}

impl Side {
    pub(crate) fn new(manifest: &Manifest, sha256: String) -> Self {
        Self {
            version: manifest.version.clone(),
            kubernetes: manifest.kubernetes.clone(),
            built: manifest.built.clone(),
            manifest_sha256: sha256,
        }
    }
}

impl Delta {
    pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<Self, Error> {
        let unreadable = |error: serde_json::Error| {
            Error::content(
                path,
                format!("this version cannot read its {FILE}: {error}"),
            )
        };
        let Format { format } = serde_json::from_slice(bytes).map_err(unreadable)?;
        if format != FORMAT {
            let why = format!(
                "this delta has format {format}, and only {FORMAT} is supported: use a newer ctl"
            );
            return Err(Error::content(path, why));
        }
        serde_json::from_slice(bytes).map_err(unreadable)
    }

    pub(crate) fn of(image: &IsoImage, path: &Path) -> Result<Option<Self>, Error> {
        if image.entry(FILE).is_none() || image.entry(manifest::FILE).is_some() {
            return Ok(None);
        }
        Self::parse(path, &image.small(FILE)?).map(Some)
    }
}

/// Reads the description of a delta from an image; `None` for a whole bundle. The image is not
/// checked: that is [`halite_seal::check()`].
///
/// # Errors
/// It cannot be read, or is a delta of another format.
pub fn look(iso: &Path) -> Result<Option<Delta>, Error> {
    Delta::of(&IsoImage::open(iso)?, iso)
}

/// The manifest of the bundle resulting from a delta.
pub(crate) fn new_manifest(image: &IsoImage, path: &Path) -> Result<Manifest, Error> {
    let read = |name: &str| image.small(&format!("{NEW}{name}"));
    Ok(manifest::parse(
        path.to_owned(),
        &read(manifest::FILE)?,
        &read(manifest::CHECKSUM)?,
    )?)
}

/// The contents of a bundle by digest, each with the first of its paths.
pub(crate) fn contents(manifest: &Manifest) -> BTreeMap<&str, &str> {
    let mut found = BTreeMap::new();
    for (path, entry) in &manifest.files {
        found.entry(entry.sha256.as_str()).or_insert(path.as_str());
    }
    found
}
