//! Container images from registries, by the distribution protocol
//! (<https://github.com/opencontainers/distribution-spec/blob/main/spec.md>), as OCI layouts.
//!
//! Layers stay as they are, gzip or Zstandard: their digests are what the image is.

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

pub use image::Pulled;
pub use image::licence_of;
pub use manifest::Platform;
pub use registries::{Endpoint, Registries};

/// An image that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Its full name.
    pub reference: ImageRef,
    /// Where it is to run.
    pub platform: Platform,
    /// The digest of its manifest (or of an index in which that is), if it is known: then the tag
    /// is not asked for.
    pub digest: Option<Digest>,
}

/// What a name came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// What the tag points to: an index, or the manifest itself.
    pub tag: Digest,
    /// The manifest of the platform; this is what a lock records.
    pub manifest: Digest,
    /// The size in bytes of the manifest and all blobs.
    pub size: u64,
    /// What the image says of its licence (`org.opencontainers.image.licenses`).
    pub licence: Option<String>,
}

/// Pulls images.
#[derive(Debug)]
pub struct Puller<'a> {
    fetcher: &'a Fetcher,
    registries: &'a Registries,
}

impl<'a> Puller<'a> {
    /// One that puts everything into the cache of a fetcher.
    #[must_use]
    pub fn new(fetcher: &'a Fetcher, registries: &'a Registries) -> Self {
        Self {
            fetcher,
            registries,
        }
    }

    /// What a name comes to now.
    ///
    /// # Errors
    /// When the registry does not have it, or not for that platform.
    pub fn resolve(&self, wanted: &Wanted) -> Result<Resolved, Error> {
        let image = image::Image::find(self.fetcher, self.registries, wanted)?;
        let licence = image.licence(self.fetcher)?;
        Ok(Resolved {
            tag: image.tag.clone(),
            manifest: image.manifest_digest()?,
            size: image.size(),
            licence,
        })
    }

    /// Pulls images into the cache, several blobs at once, and each blob once.
    ///
    /// # Errors
    /// Everything that is wrong with any of them. What could be fetched is in the cache
    /// nevertheless.
    pub fn pull(&self, wanted: &[Wanted]) -> Result<Vec<Pulled>, Error> {
        image::pull(self.fetcher, self.registries, wanted)
    }

    /// Pulls one image and writes it as an OCI layout, whose index names it by its reference.
    ///
    /// # Errors
    /// When it cannot be pulled or written; a layout that was there before stays then.
    pub fn layout(&self, wanted: &Wanted, dir: &Path) -> Result<Pulled, Error> {
        let mut pulled = self.pull(std::slice::from_ref(wanted))?;
        let pulled = pulled.remove(0);
        pulled.write(self.fetcher.cache(), dir)?;
        Ok(pulled)
    }
}
