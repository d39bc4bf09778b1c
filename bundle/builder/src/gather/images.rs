//! Images, from local layouts and from registries.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use halite_durable::Digest;
use halite_fetch::oci::{ImageRequest, Platform, Puller, licence_of};
use halite_fetch::oci_layout::StoredImage;
use halite_fetch::{oci_layout, parallel};

use super::{Contents, Gather, Mode, Settled};
use crate::error::Error;
use crate::lock::{Item, Lock};
use crate::recipe::RecipeImage;

/// The lock's name for the registry of an image's own name as its source.
const REGISTRY: &str = "registry";

impl Gather<'_> {
    /// Resolves each image, and finds the images from local layouts.
    pub(super) fn settle_images(
        &self,
        recorded: Option<&Lock>,
        mode: Mode,
        unrecorded: &mut Vec<String>,
        errors: &mut Vec<Error>,
    ) -> (BTreeMap<String, Item>, Vec<Option<StoredImage>>) {
        let (mut items, mut places, mut unknown) = (BTreeMap::new(), Vec::new(), Vec::new());
        for image in &self.recipe.images {
            let name = image.reference.to_string();
            let known = recorded.and_then(|lock| lock.images.get(&name));
            match (&image.layout, known) {
                (Some(layout), _) => match self.local(image, layout) {
                    Ok((item, found)) => {
                        items.insert(name, item);
                        places.push(Some(found));
                        continue;
                    }
                    Err(error) => errors.push(error),
                },
                (None, Some(known)) => {
                    let licence = image.licence.clone().or_else(|| known.licence.clone());
                    let item = Item {
                        source: REGISTRY.to_owned(),
                        licence,
                        why: why(image),
                        ..known.clone()
                    };
                    items.insert(name, item);
                }
                (None, None) if mode == Mode::Exact => unrecorded.push(format!("the image {name}")),
                (None, None) => unknown.push(image),
            }
            places.push(None);
        }
        let resolved = parallel::each(&unknown, self.fetcher.threads(), |image| {
            let puller = Puller::new(&self.fetcher, &self.registries);
            let resolved = puller.resolve(&wanted(image, None))?;
            let index = (resolved.tag != resolved.manifest).then(|| resolved.tag.hex().to_owned());
            let item = Item {
                sha256: resolved.manifest.hex().to_owned(),
                index,
                size: resolved.size,
                source: REGISTRY.to_owned(),
                licence: image.licence.clone().or(resolved.licence),
                why: why(image),
            };
            Ok((image.reference.to_string(), item))
        });
        match resolved {
            Ok(resolved) => items.extend(resolved),
            Err(error) => errors.push(error.into()),
        }
        (items, places)
    }

    fn local(&self, image: &RecipeImage, layout: &Path) -> Result<(Item, StoredImage), Error> {
        let found = oci_layout::find(layout, &image.reference.to_string())?;
        let said = |part: &oci_layout::Descriptor| {
            licence_of(&fs::read(oci_layout::blob(layout, part).ok()?).ok()?)
        };
        let item = Item {
            sha256: found.manifest.hex().unwrap_or_default().to_owned(),
            index: (found.index.as_ref())
                .and_then(|index| index.hex())
                .map(str::to_owned),
            size: found.size(),
            source: self.shown(layout),
            licence: image
                .licence
                .clone()
                .or_else(|| found.blobs().take(2).find_map(said)),
            why: why(image),
        };
        let blobs = layout.join("blobs/sha256");
        Ok((
            item,
            StoredImage {
                reference: image.reference.to_string(),
                blobs,
                image: found,
            },
        ))
    }

    /// Pulls the images that are not stored yet.
    pub(super) fn fetch_images(&self, settled: &Settled) -> Result<Vec<StoredImage>, Error> {
        let (mut pull, mut manifests) = (Vec::new(), Vec::new());
        for (image, place) in self.recipe.images.iter().zip(&settled.images) {
            if place.is_none() {
                let name = image.reference.to_string();
                let item = settled.lock.images.get(&name);
                let item = item.ok_or_else(|| Error::content(&name, "it is not resolved"))?;
                let manifest = self.digest(&name, &item.sha256)?;
                // Pull through the index, so that the index is fetched, too.
                let asked = match &item.index {
                    Some(index) => self.digest(&name, index)?,
                    None => manifest.clone(),
                };
                pull.push(wanted(image, Some(asked)));
                manifests.push(manifest);
            }
        }
        let pulled = Puller::new(&self.fetcher, &self.registries).pull(&pull)?;
        for (pulled, recorded) in pulled.iter().zip(&manifests) {
            if pulled.manifest.digest != recorded.oci() {
                let message = format!(
                    "cannot use the image {}: the lock has the manifest {}, but its index has {} for this platform; run `ctl bundle update`",
                    pulled.reference,
                    recorded.oci(),
                    pulled.manifest.digest
                );
                return Err(Error::content(self.lock_file(), message));
            }
        }
        let blobs = self.fetcher.cache().contents();
        let mut pulled = pulled.into_iter().map(|pulled| StoredImage {
            reference: pulled.reference.to_string(),
            blobs: blobs.clone(),
            image: oci_layout::LayoutImage {
                index: pulled.index,
                manifest: pulled.manifest,
                parts: pulled.parts,
            },
        });
        Ok(settled
            .images
            .iter()
            .filter_map(|place| place.clone().or_else(|| pulled.next()))
            .collect())
    }

    /// A path as written in the recipe.
    pub(super) fn shown(&self, path: &Path) -> String {
        let dir = self.file.parent().unwrap_or(Path::new("."));
        path.strip_prefix(dir).unwrap_or(path).display().to_string()
    }
}

impl Contents {
    /// The images of the components by their references with digests: the digest of the manifest
    /// for the platform, which is in the bundle.
    pub fn pinned(&self, images: &[RecipeImage]) -> BTreeMap<String, String> {
        let pairs = images.iter().zip(&self.images);
        pairs
            .filter_map(|(image, found)| Some((image.component.clone()?, pinned(found))))
            .collect()
    }

    /// The images with their references, for the registry.
    pub fn served(
        &self,
        images: &[RecipeImage],
    ) -> Vec<(halite_fetch::ImageRef, oci_layout::LayoutImage)> {
        let pairs = images.iter().zip(&self.images);
        pairs
            .map(|(image, found)| (image.reference.clone(), found.image.clone()))
            .collect()
    }
}

/// The reference of an image with its digest.
fn pinned(found: &StoredImage) -> String {
    format!("{}@{}", found.reference, found.image.manifest.digest)
}

fn wanted(image: &RecipeImage, digest: Option<Digest>) -> ImageRequest {
    ImageRequest {
        reference: image.reference.clone(),
        platform: Platform::default(),
        digest,
    }
}

fn why(image: &RecipeImage) -> String {
    match &image.component {
        Some(component) => format!("component {component}"),
        None => "asked for".to_owned(),
    }
}
