//! The inventory of a bundle.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use halite_errors::chain;
use halite_fetch::{apt_index, oci_layout};
use halite_manifest::{Manifest, ManifestEntry};

use super::debian::Packages;
use super::rpm::Rpms;
use super::{Artifact, BASE, debian, scan};
use crate::error::Error;

/// The content of a bundle according to its manifest and its indexes. No file is read:
/// [`halite_bundle::verify()`] checks that the files match the manifest.
#[derive(Debug, Clone)]
pub struct Inventory {
    images: BTreeMap<String, oci_layout::LayoutImage>,
    /// The reasons why manifests of named images cannot be read.
    broken: BTreeMap<String, String>,
    packages: Packages,
    base: Packages,
    files: BTreeMap<String, ManifestEntry>,
    not_images: BTreeMap<String, String>,
    rpms: Option<Rpms>,
}

impl Inventory {
    /// Reads the inventory of the bundle in a directory with that manifest.
    ///
    /// # Errors
    /// One of its indexes cannot be read.
    pub fn read(dir: &Path, manifest: &Manifest) -> Result<Self, Error> {
        let (mut images, mut broken) = (BTreeMap::new(), BTreeMap::new());
        let layout = dir.join("images");
        for (name, entry) in oci_layout::names(&layout)? {
            let Some(name) = name else { continue };
            match oci_layout::read(&layout, entry) {
                Ok(image) => drop(images.insert(name, image)),
                Err(error) => drop(broken.insert(name, chain(&error))),
            }
        }
        let base = dir.join(BASE);
        let base = fs::read_to_string(&base).map_err(Error::file("read", base))?;
        Ok(Self {
            images,
            broken,
            packages: Packages::new(apt_index::stanzas(&dir.join("apt"))?),
            base: Packages::new(debian::installed(&base)),
            files: manifest.files.clone(),
            not_images: manifest.not_images.clone(),
            rpms: if manifest.rpms.is_empty() {
                None
            } else {
                Some(Rpms::read(dir)?)
            },
        })
    }

    /// Everything that can be removed separately: each image's name, each package, each file.
    #[must_use]
    pub fn artifacts(&self) -> Vec<Artifact> {
        let images = self.images.keys().map(|name| Artifact::Image {
            reference: name.clone(),
        });
        let packages = self.packages.names().map(|name| Artifact::Package {
            name: name.to_owned(),
            version: None,
        });
        let files = self
            .files
            .keys()
            .map(|path| Artifact::File { path: path.clone() });
        let rpms = self.rpms.iter().flat_map(Rpms::names);
        let rpms = rpms.map(|name| Artifact::Rpm {
            name: name.to_owned(),
            version: None,
        });
        images.chain(packages).chain(rpms).chain(files).collect()
    }

    /// Returns the same inventory without one artifact: an image that the layout then does not
    /// name, a package that the repository does not list, or a file that the manifest does not
    /// list.
    #[must_use]
    pub fn without(&self, artifact: &Artifact) -> Self {
        let mut rest = self.clone();
        match artifact {
            Artifact::Image { reference } => drop(rest.images.remove(reference)),
            Artifact::Package { name, .. } => rest.packages.remove(name),
            Artifact::Rpm { name, .. } => rest.rpms.iter_mut().for_each(|rpms| rpms.remove(name)),
            Artifact::File { path } => drop(rest.files.remove(path)),
        }
        rest
    }

    /// The packages of the apt repository.
    pub(super) fn packages(&self) -> &Packages {
        &self.packages
    }

    /// The packages of a bare host.
    pub(super) fn base(&self) -> &Packages {
        &self.base
    }

    /// Packages for RPM distributions.
    pub(super) fn rpms(&self) -> Option<&Rpms> {
        self.rpms.as_ref()
    }

    /// Texts that look like images but are not, according to the recipe.
    pub(super) fn not_images(&self) -> impl Iterator<Item = &str> {
        self.not_images.keys().map(String::as_str)
    }

    /// Describes the missing part of an artifact; `None` if it is complete.
    pub(super) fn lacks(&self, artifact: &Artifact) -> Option<String> {
        match artifact {
            Artifact::Image { reference } if self.not_images.contains_key(reference) => None,
            Artifact::Image { reference } => self.image(reference),
            Artifact::Package { name, version } => self.package(name, version.as_deref()),
            Artifact::Rpm { name, version } => match &self.rpms {
                Some(rpms) => rpms.lacks(name, version.as_deref(), &self.files),
                None => Some("the bundle has no packages for RPM distributions".to_owned()),
            },
            Artifact::File { path } => {
                let below = format!("{path}/");
                let there = self.files.contains_key(path)
                    || self
                        .files
                        .range(below.clone()..)
                        .next()
                        .is_some_and(|(file, _)| file.starts_with(&below));
                (!there).then(|| "the bundle has no such file".to_owned())
            }
        }
    }

    fn image(&self, reference: &str) -> Option<String> {
        if let Some(component) = super::component_of(reference) {
            return Some(format!(
                "the recipe has no image of a component {component:?}"
            ));
        }
        let why = scan::full(reference).err();
        let pulled = scan::pulled(reference);
        if pulled == reference || scan::full(&pulled).is_err() {
            return match why {
                None => self.full_image(reference),
                Some(why) => Some(format!("no bundle can serve this name: {why}")),
            };
        }
        let lacks = self.full_image(&pulled)?;
        let short = why.map_or_else(String::new, |why| {
            format!("no bundle can serve this name: {why}. ")
        });
        Some(format!(
            "{short}containerd pulls it as {pulled}, and {lacks}: add that name to `images:` of the recipe, or name another image in the \
             chart's values"
        ))
    }

    /// Describes the missing part of an image with a full name.
    fn full_image(&self, reference: &str) -> Option<String> {
        let name = match scan::full(reference) {
            Ok(name) => name,
            Err(why) => return Some(format!("no bundle can serve this name: {why}")),
        };
        if let Some(why) = self.broken.get(name.tagged) {
            return Some(why.clone());
        }
        let image = match name.digest {
            None => self.images.get(name.tagged),
            // A server serves a digest only below the names of its image.
            Some(digest) => self
                .images
                .iter()
                .find(|(other, image)| {
                    scan::repository(other) == scan::repository(name.tagged)
                        && image.has_digest(digest)
                })
                .map(|(_, image)| image),
        };
        let Some(image) = image else {
            return Some(match (name.digest, self.images.get(name.tagged)) {
                (Some(_), Some(other)) => {
                    format!("the bundle has {} under this name", other.manifest.digest)
                }
                _ => "images/index.json does not name it".to_owned(),
            });
        };
        let lacking = |blob: &&oci_layout::Descriptor| {
            let hex = blob.hex().unwrap_or_default();
            let entry = self.files.get(&format!("images/blobs/sha256/{hex}"));
            entry.is_none_or(|entry| entry.sha256 != hex || entry.size != blob.size)
        };
        let gone: Vec<&str> = image
            .blobs()
            .filter(lacking)
            .map(|blob| blob.digest.as_str())
            .collect();
        (!gone.is_empty()).then(|| format!("it lacks the blobs {}", gone.join(", ")))
    }

    fn package(&self, name: &str, version: Option<&str>) -> Option<String> {
        if let Some(listed) = self.packages.get(name)
            && version.is_none_or(|version| version == listed.field("Version"))
        {
            let path = format!("apt/{}", listed.field("Filename"));
            let there = self
                .files
                .get(&path)
                .is_some_and(|entry| entry.sha256 == listed.field("SHA256"));
            return (!there)
                .then(|| format!("{path} is missing or does not match the repository's index"));
        }
        let of_base = self
            .base
            .get(name)
            .is_some_and(|there| version.is_none_or(|v| v == there.field("Version")));
        if of_base {
            return None;
        }
        Some(match self.packages.get(name) {
            Some(other) => format!("the repository has {} instead", other.field("Version")),
            None => "neither a bare host nor the repository of the bundle has it".to_owned(),
        })
    }
}
