//! Container images from registries, by the distribution protocol
//! (<https://github.com/opencontainers/distribution-spec/blob/main/spec.md>), as OCI layouts.
//!
//! Layers stay compressed as they are, with gzip or Zstandard: their digests identify the image.

mod endpoint;
mod image;
mod layout;
mod login;
mod manifest;
mod registries;

use std::path::Path;

use halite_durable::Digest;

use crate::error::Error;
use crate::fetcher::Fetcher;
use crate::image_ref::ImageRef;

pub use image::{Pulled, licence_of};
pub use manifest::{InvalidPlatform, Platform};
pub use registries::{Endpoint, Registries};

/// A requested image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageRequest {
    /// Its full name.
    pub reference: ImageRef,
    /// Its platform.
    pub platform: Platform,
    /// The digest of its manifest (or of an index that contains it), if it is known. Then the tag
    /// is not resolved.
    pub digest: Option<Digest>,
}

/// The result of resolving an image reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The digest to which the tag points: of an index, or of the manifest itself.
    pub tag: Digest,
    /// The digest of the platform's manifest, which a lock records.
    pub manifest: Digest,
    /// The size in bytes of the manifest and all blobs.
    pub size: u64,
    /// The licence that the image declares (`org.opencontainers.image.licenses`).
    pub licence: Option<String>,
}

/// Pulls images.
#[derive(Debug)]
pub struct Puller<'a> {
    fetcher: &'a Fetcher,
    registries: &'a Registries,
}

impl<'a> Puller<'a> {
    /// A puller that uses the cache of a fetcher.
    #[must_use]
    pub fn new(fetcher: &'a Fetcher, registries: &'a Registries) -> Self {
        Self {
            fetcher,
            registries,
        }
    }

    /// Resolves a reference in the registry.
    ///
    /// # Errors
    /// The registry does not have the image, or not for that platform.
    pub fn resolve(&self, wanted: &ImageRequest) -> Result<Resolved, Error> {
        let image = image::ResolvedImage::find(self.fetcher, self.registries, wanted)?;
        let licence = image.licence(self.fetcher)?;
        Ok(Resolved {
            tag: image.tag.clone(),
            manifest: image.manifest_digest()?,
            size: image.size(),
            licence,
        })
    }

    /// Pulls images into the cache, several blobs in parallel, each blob once.
    ///
    /// # Errors
    /// All errors of all images. Blobs that were fetched are in the cache nevertheless.
    pub fn pull(&self, wanted: &[ImageRequest]) -> Result<Vec<Pulled>, Error> {
        image::pull(self.fetcher, self.registries, wanted)
    }

    /// Pulls one image and writes it as an OCI layout, whose index names it by its reference.
    ///
    /// # Errors
    /// It cannot be pulled or written; an existing layout is then kept.
    pub fn layout(&self, wanted: &ImageRequest, dir: &Path) -> Result<Pulled, Error> {
        let mut pulled = self.pull(std::slice::from_ref(wanted))?;
        let pulled = pulled.remove(0);
        pulled.write(self.fetcher.cache(), dir)?;
        Ok(pulled)
    }
}
