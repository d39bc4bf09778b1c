//! OCI image layouts (<https://github.com/opencontainers/image-spec/blob/main/image-layout.md>):
//! finding an image in one, and gathering images into one that has each blob once.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use halite_durable::{Error, digest, files};
use serde::{Deserialize, Serialize};

/// The annotation by which a layout names its images.
pub const REF_NAME: &str = "org.opencontainers.image.ref.name";

/// The annotation from which containerd's import reads a full reference.
const CONTAINERD_NAME: &str = "io.containerd.image.name";

/// The annotation with the descriptor, as JSON, of the index by which an image's registry names it.
/// The layout has the blob of the index, but not the images of its other platforms.
const INDEX: &str = "halite.index";

/// Media types of indexes.
pub const INDEXES: &[&str] = &[
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
];

/// Media types of manifests that an image can have.
pub const MANIFESTS: &[&str] = &[
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
];

/// A pointer to a blob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// Its media type.
    pub media_type: String,
    /// `sha256:` and the digest.
    pub digest: String,
    /// Its size in bytes.
    pub size: u64,
    /// Annotations, such as names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Its platform.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
}

/// The platform of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    /// `amd64` …
    pub architecture: String,
    /// `linux` …
    pub os: String,
}

impl Descriptor {
    /// The digest in hexadecimal; `None` if it is not a SHA-256, the only kind that is supported.
    #[must_use]
    pub fn hex(&self) -> Option<&str> {
        let hex = self.digest.strip_prefix("sha256:")?;
        digest::is_sha256(hex).then_some(hex)
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Index {
    schema_version: u32,
    #[serde(default)]
    media_type: String,
    manifests: Vec<Descriptor>,
}

#[derive(Debug, Deserialize)]
struct ImageManifest {
    config: Descriptor,
    layers: Vec<Descriptor>,
}

/// An image in a layout: its manifest and everything that the manifest points to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayoutImage {
    /// The index of platforms in which its registry lists the manifest, if it is known.
    pub index: Option<Descriptor>,
    /// The manifest.
    pub manifest: Descriptor,
    /// Configuration and layers.
    pub parts: Vec<Descriptor>,
}

impl LayoutImage {
    /// The size of all its blobs in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.manifest.size + self.parts.iter().map(|part| part.size).sum::<u64>()
    }

    /// The layers, the lowest first.
    #[must_use]
    pub fn layers(&self) -> &[Descriptor] {
        // The configuration is the first part.
        self.parts.get(1..).unwrap_or_default()
    }

    /// Manifest, configuration and layers, and the index.
    pub fn blobs(&self) -> impl Iterator<Item = &Descriptor> {
        std::iter::once(&self.manifest)
            .chain(&self.parts)
            .chain(&self.index)
    }

    /// Returns whether a registry serves the image under this digest: the digest of the manifest or
    /// of the index.
    #[must_use]
    pub fn has_digest(&self, digest: &str) -> bool {
        let mut names = std::iter::once(&self.manifest).chain(&self.index);
        names.any(|name| name.digest == digest)
    }

    /// The entry of the image in the index of a layout.
    #[must_use]
    pub fn entry(&self) -> Descriptor {
        let mut entry = self.manifest.clone();
        if let Some(index) = &self.index {
            let index = serde_json::json!(index).to_string();
            entry.annotations.insert(INDEX.to_owned(), index);
        }
        entry
    }
}

/// Every name in a layout with its descriptor.
pub fn names(layout: &Path) -> Result<Vec<(Option<String>, Descriptor)>, Error> {
    let path = layout.join("index.json");
    let index: Index = parse(&path)?;
    Ok(index
        .manifests
        .into_iter()
        .map(|entry| (entry.annotations.get(REF_NAME).cloned(), entry))
        .collect())
}

/// Finds an image by name, or the only image. For an image with several platforms, the one for
/// linux/amd64.
pub fn find(layout: &Path, reference: &str) -> Result<LayoutImage, Error> {
    let mut entries = names(layout)?;
    let position = match entries
        .iter()
        .position(|(name, _)| name.as_deref() == Some(reference))
    {
        Some(position) => position,
        None if entries.len() == 1 => 0,
        None => {
            let message = format!("it contains no image {reference}");
            return Err(Error::content(layout.join("index.json"), message));
        }
    };
    let mut entry = entries.swap_remove(position).1;
    let mut index = None;
    if INDEXES.contains(&entry.media_type.as_str()) {
        index = Some(Descriptor {
            annotations: BTreeMap::new(),
            platform: None,
            ..entry.clone()
        });
        let path = blob(layout, &entry)?;
        let listed: Index = parse(&path)?;
        let amd64 = |entry: &&Descriptor| {
            entry
                .platform
                .as_ref()
                .is_some_and(|p| p.os == "linux" && p.architecture == "amd64")
        };
        entry = listed
            .manifests
            .iter()
            .find(amd64)
            .cloned()
            .ok_or_else(|| {
                Error::content(path, format!("{reference} has no manifest for linux/amd64"))
            })?;
    }
    let image = read(layout, entry)?;
    Ok(LayoutImage {
        index: index.or(image.index),
        ..image
    })
}

/// Reads the manifest that a descriptor points to.
pub fn read(layout: &Path, mut manifest: Descriptor) -> Result<LayoutImage, Error> {
    let index = match manifest.annotations.remove(INDEX) {
        Some(text) => Some(serde_json::from_str(&text).map_err(|error| {
            Error::content(layout.join("index.json"), format!("{INDEX}: {error}"))
        })?),
        None => None,
    };
    let path = blob(layout, &manifest)?;
    if !MANIFESTS.contains(&manifest.media_type.as_str()) {
        return Err(Error::content(
            path,
            format!("{} is not the manifest of an image", manifest.media_type),
        ));
    }
    let content: ImageManifest = parse(&path)?;
    let mut parts = vec![content.config];
    parts.extend(content.layers);
    Ok(LayoutImage {
        index,
        manifest,
        parts,
    })
}

/// The path of a descriptor's blob in a layout.
pub fn blob(layout: &Path, descriptor: &Descriptor) -> Result<PathBuf, Error> {
    let hex = descriptor.hex().ok_or_else(|| {
        Error::content(
            layout,
            format!("{:?} is not a SHA-256 digest", descriptor.digest),
        )
    })?;
    Ok(layout.join("blobs/sha256").join(hex))
}

fn parse<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, Error> {
    let bytes = fs::read(path).map_err(Error::file("read", path))?;
    serde_json::from_slice(&bytes).map_err(|error| Error::content(path, error.to_string()))
}

/// An image with the directory of its blobs, each under its digest.
#[derive(Debug, Clone)]
pub struct StoredImage {
    /// Its full name.
    pub reference: String,
    /// `LAYOUT/blobs/sha256`, or the cache of pulled blobs.
    pub blobs: PathBuf,
    /// Manifest, configuration, layers, index.
    pub image: LayoutImage,
}

/// Copies images into one new layout. Every blob is compared with its digest while it is copied.
pub fn gather(images: &[StoredImage], out: &Path) -> Result<(), Error> {
    let mut there = BTreeSet::new();
    let mut manifests = Vec::new();
    for StoredImage {
        reference,
        blobs,
        image,
    } in images
    {
        for part in image.blobs() {
            if there.insert(part.digest.clone()) {
                let to = blob(out, part)?;
                let from = blobs.join(part.hex().unwrap_or_default());
                let found = files::copy(&from, &to, 0o644)?;
                if Some(found.0.as_str()) != part.hex() || found.1 != part.size {
                    return Err(damaged(&from, &found));
                }
            }
        }
        let mut entry = image.entry();
        entry.platform = Some(Platform {
            architecture: "amd64".into(),
            os: "linux".into(),
        });
        let names = [REF_NAME, CONTAINERD_NAME].map(|key| (key.to_owned(), reference.clone()));
        entry.annotations.extend(names);
        manifests.push((reference.clone(), entry));
    }
    manifests.sort_by(|a, b| a.0.cmp(&b.0));
    let index = Index {
        schema_version: 2,
        media_type: INDEXES[0].to_owned(),
        manifests: manifests.into_iter().map(|(_, entry)| entry).collect(),
    };
    let path = out.join("index.json");
    let bytes =
        serde_json::to_vec(&index).map_err(|error| Error::content(&path, error.to_string()))?;
    files::write(&path, 0o644, &bytes)?;
    let version = br#"{"imageLayoutVersion":"1.0.0"}"#;
    files::write(&out.join("oci-layout"), 0o644, version)
}

/// Makes the error of a copy whose source differs from the expected content; `found` is its SHA-256
/// and size.
pub fn damaged(path: impl Into<PathBuf>, (sha256, size): &(String, u64)) -> Error {
    let remedy = "if it is in the cache, remove it; it will be fetched again";
    Error::content(
        path,
        format!("it is damaged: its SHA-256 is {sha256}, its size {size}; {remedy}"),
    )
}
