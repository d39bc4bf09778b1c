//! `ctl bundle show`: the content of a bundle.

use std::path::{Path, PathBuf};

use halite_api::{BundleContent, BundleImage, BundlePackage, ImageList, to_value};
use halite_bundle::{ListedImage, ListedPackage, Listing};

use super::is_image;
use crate::output::{Screen, megabytes, or_dash, table};
use crate::site::Site;

/// Runs `ctl bundle show`.
///
/// # Errors
/// The bundle cannot be read.
pub fn show(site: &Site, bundle: Option<PathBuf>, screen: &mut Screen) -> anyhow::Result<u8> {
    let listing = halite_bundle::list(&directory_or_version(site, bundle)?)?;
    let tables = tables(&listing);
    screen.answer(&to_value(&content(listing)), |_| tables)?;
    Ok(0)
}

/// Runs `ctl images`.
///
/// # Errors
/// The bundle cannot be read.
pub fn images(site: &Site, bundle: Option<PathBuf>, screen: &mut Screen) -> anyhow::Result<u8> {
    let directory = directory_or_version(site, bundle)?;
    let listing = halite_bundle::list(&directory)?;
    let table = image_table(&listing.images);
    screen.answer(&to_value(&image_list(listing)), |_| table)?;
    Ok(0)
}

/// The path of a bundle, named by its path or its version; the default is that of
/// [`Site::bundle_directory()`].
fn directory_or_version(site: &Site, given: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    match given.as_deref().and_then(Path::to_str) {
        Some(version) if !Path::new(version).exists() && !version.contains('/') => {
            Ok(site.bundles.get(&version.parse()?)?.path)
        }
        Some(image) if is_image(Path::new(image)) => Ok(PathBuf::from(image)),
        _ => site.bundle_directory(given),
    }
}

/// The content of a bundle as a document.
fn content(listing: Listing) -> BundleContent {
    let packages = |packages: Vec<ListedPackage>| {
        let package = |package: ListedPackage| BundlePackage {
            name: package.name,
            version: package.version,
            size: package.size,
        };
        packages.into_iter().map(package).collect()
    };
    BundleContent {
        version: listing.version,
        built: listing.built,
        kubernetes: listing.kubernetes,
        components: listing.components,
        images: listing.images.into_iter().map(image).collect(),
        packages: packages(listing.packages),
        rpms: packages(listing.rpms),
        charts: listing.charts,
        files: u64::try_from(listing.files).unwrap_or(u64::MAX),
        size: listing.size,
    }
}

/// The images of a bundle as a document.
fn image_list(listing: Listing) -> ImageList {
    ImageList {
        bundle: listing.version,
        images: listing.images.into_iter().map(image).collect(),
    }
}

fn image(image: ListedImage) -> BundleImage {
    BundleImage {
        reference: image.reference,
        component: image.component,
        size: image.size,
        digest: image.digest,
    }
}

/// Formats images as a table.
fn image_table(images: &[ListedImage]) -> String {
    let row = |image: &ListedImage| {
        vec![
            image.reference.clone(),
            or_dash(image.component.as_ref()),
            megabytes(image.size),
            image.digest.clone(),
        ]
    };
    let heading = ["reference", "component", "size", "digest"];
    table::rows(&heading, images.iter().map(row))
}

fn tables(listing: &Listing) -> String {
    let mut text = format!(
        "bundle {}, Kubernetes {}, built {}: {} files, {}\n\n",
        listing.version,
        table::line(&listing.kubernetes),
        table::line(&listing.built),
        listing.files,
        megabytes(listing.size),
    );
    if !listing.images.is_empty() {
        text.push_str(&format!("{}\n", image_table(&listing.images)));
    }
    let package = |package: &ListedPackage| {
        vec![
            package.name.clone(),
            package.version.clone(),
            megabytes(package.size),
        ]
    };
    for packages in [&listing.packages, &listing.rpms] {
        if !packages.is_empty() {
            let heading = ["name", "version", "size"];
            let rows = table::rows(&heading, packages.iter().map(package));
            text.push_str(&format!("{rows}\n"));
        }
    }
    if !listing.charts.is_empty() {
        let charts = listing.charts.iter();
        let charts = charts.map(|(name, version)| vec![name.clone(), version.clone()]);
        let rows = table::rows(&["charts", "version"], charts);
        text.push_str(&format!("{rows}\n"));
    }
    text
}
