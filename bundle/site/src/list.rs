//! The content of a bundle, for display.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use halite_durable::ScratchDir;
use halite_fetch::{apt_index, oci_layout, yum};
use halite_manifest::{ImageReference, Manifest};
use halite_names::BundleVersion;

use crate::error::Error;
use crate::inspect::inspect;
use crate::pack::unpack_some;

/// The indexes of images and packages.
const INDEXES: [&str; 3] = ["images/index.json", "apt/dists/", "rpm/repodata/"];

/// The content of a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// The bundle's version.
    pub version: BundleVersion,
    /// The time at which its content was resolved.
    pub built: String,
    /// Kubernetes' version.
    pub kubernetes: String,
    /// Component to version.
    pub components: BTreeMap<String, String>,
    /// The images, by name.
    pub images: Vec<ListedImage>,
    /// The packages, by name.
    pub packages: Vec<ListedPackage>,
    /// The packages for RPM distributions, by name; empty if the bundle is not for them.
    pub rpms: Vec<ListedPackage>,
    /// Chart to its version.
    pub charts: BTreeMap<String, String>,
    /// Number of files.
    pub files: usize,
    /// Their size in bytes.
    pub size: u64,
}

/// An image of a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedImage {
    /// Its full name.
    pub reference: String,
    /// The component that it belongs to, if any.
    pub component: Option<String>,
    /// The digest of its manifest, with `sha256:`.
    pub digest: String,
    /// The size of all its blobs in bytes.
    pub size: u64,
}

/// A package of a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedPackage {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its file's size in bytes.
    pub size: u64,
}

/// Lists the content of the bundle in a directory or in an ISO. Nothing is verified.
///
/// # Errors
/// The manifest or one of the indexes cannot be read.
pub fn list(bundle: &Path) -> Result<Listing, Error> {
    let manifest = inspect(bundle)?;
    if bundle.is_dir() {
        return of(bundle, manifest);
    }
    let look = ScratchDir::new("halite-look-")?;
    unpack_some(bundle, look.path(), &|path| {
        INDEXES.iter().any(|index| path.starts_with(index))
    })?;
    let manifests: BTreeSet<String> = oci_layout::names(&look.path().join("images"))?
        .iter()
        .filter_map(|(_, entry)| blob(entry))
        .collect();
    unpack_some(bundle, look.path(), &|path| manifests.contains(path))?;
    of(look.path(), manifest)
}

/// The path of a descriptor's blob in a bundle.
fn blob(entry: &oci_layout::Descriptor) -> Option<String> {
    Some(format!("images/blobs/sha256/{}", entry.hex()?))
}

fn of(dir: &Path, manifest: Manifest) -> Result<Listing, Error> {
    let layout = dir.join("images");
    let mut images = Vec::new();
    for (name, entry) in oci_layout::names(&layout)? {
        let image = oci_layout::read(&layout, entry)?;
        let reference = name.unwrap_or_default();
        images.push(ListedImage {
            component: manifest
                .images
                .iter()
                .find(|(_, of)| ImageReference::new(of).name == reference)
                .map(|(key, _)| key.clone()),
            digest: image.manifest.digest.clone(),
            size: image.size(),
            reference,
        });
    }
    let mut rpms = Vec::new();
    if !manifest.rpms.is_empty() {
        rpms.extend(
            yum::Repository::local(&dir.join("rpm"))?
                .packages()
                .iter()
                .map(|package| ListedPackage {
                    name: package.name.clone(),
                    version: package.version.to_string(),
                    size: package.size,
                }),
        );
        rpms.sort_by(|a, b| a.name.cmp(&b.name));
    }
    let packages = apt_index::parse_index(&dir.join("apt"))?;
    let packages = packages.into_iter().map(|p| ListedPackage {
        name: p.package,
        version: p.version,
        size: p.size,
    });
    Ok(Listing {
        version: manifest.version,
        built: manifest.built,
        kubernetes: manifest.kubernetes,
        components: manifest.components,
        images,
        packages: packages.collect(),
        rpms,
        charts: manifest.charts,
        files: manifest.files.len(),
        size: manifest.files.values().map(|entry| entry.size).sum(),
    })
}
