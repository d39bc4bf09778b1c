//! `ctl bundle show`: the content of a bundle.

use std::path::{Path, PathBuf};

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
    screen.answer(&serde_json::to_value(&listing)?, |_| tables(&listing))?;
    Ok(0)
}

/// The path of a bundle that is named by its path or its version; default as in
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

fn tables(listing: &Listing) -> String {
    let mut text = format!(
        "bundle {}, Kubernetes {}, built {}: {} files, {}\n\n",
        listing.version,
        table::line(&listing.kubernetes),
        table::line(&listing.built),
        listing.files,
        megabytes(listing.size),
    );
    let image = |image: &ListedImage| {
        vec![
            image.reference.clone(),
            or_dash(image.component.as_ref()),
            megabytes(image.size),
            image.digest.clone(),
        ]
    };
    if !listing.images.is_empty() {
        let heading = ["reference", "component", "size", "digest"];
        let rows = table::rows(&heading, listing.images.iter().map(image));
        text.push_str(&format!("{rows}\n"));
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
