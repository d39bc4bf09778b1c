//! The declared state as it is at the end of an upgrade.

use std::collections::HashSet;
use std::sync::Arc;

use halite_manifest::ManifestEntry;
use halite_names::{BundleVersion, MASTER};

use super::{Declarations, Direction, Snapshot};
use crate::refusal::Refusal;

/// The directory of a bundle with its images.
const IMAGES: &str = "images/";

/// The sizes of a bundle that a site upgrades to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewBytes {
    /// All its files.
    pub bundle: u64,
    /// The files of images that the bundle in use does not have.
    pub images: u64,
}

impl Declarations {
    /// The current snapshot, but with a bundle of the site for the cluster and each of its hosts.
    /// It does not depend on the progress of an upgrade to this bundle, or of a return to it.
    ///
    /// # Errors
    /// All problems of all documents; or the bundle cannot be read, or the cluster cannot be
    /// upgraded or return to it.
    pub async fn upgraded(
        &self,
        bundle: &BundleVersion,
        direction: Direction,
    ) -> Result<Arc<Snapshot>, Refusal> {
        let snapshot = self.load().await?;
        let release = self.allowed(&snapshot, bundle, direction).await?;
        let mut declaration = snapshot.declaration().clone();
        let names: Vec<String> = declaration.nodes.keys().map(ToString::to_string).collect();
        // The cluster first: each host then drops its own record.
        declaration.set_release(MASTER, &release);
        for name in names {
            declaration.set_release(&name, &release);
        }
        self.reader.of(declaration).await
    }

    /// The digest of a file of a bundle of the site with this path in the bundle; `None` if it has
    /// none, or cannot be read.
    pub async fn hash_in(&self, bundle: &BundleVersion, path: &str) -> Option<String> {
        let read = self.reader.bundle(bundle).await.ok()?;
        read.in_use.manifest.sha256(path).map(str::to_owned)
    }

    /// The bytes of the bundle `to`, and of those of its images that the bundle in use of
    /// `snapshot` does not have.
    ///
    /// # Errors
    /// A bundle cannot be read.
    pub async fn new_bytes(
        &self,
        snapshot: &Snapshot,
        to: &BundleVersion,
    ) -> Result<NewBytes, Refusal> {
        let read = self.reader.bundle(to).await?;
        let (files, before) = (
            &read.in_use.manifest.files,
            &snapshot.in_use()?.manifest.files,
        );
        let old: HashSet<&str> = before.values().map(|entry| entry.sha256.as_str()).collect();
        let is_new_image = |(path, entry): &(&String, &ManifestEntry)| {
            path.starts_with(IMAGES) && !old.contains(entry.sha256.as_str())
        };
        let images = files.iter().filter(is_new_image);
        Ok(NewBytes {
            bundle: files.values().map(|entry| entry.size).sum(),
            images: images.map(|(_, entry)| entry.size).sum(),
        })
    }
}
