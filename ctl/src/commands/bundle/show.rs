//! `ctl bundle show`: the content of a bundle.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::is_image;
use crate::output::{Screen, megabytes, table};
use crate::site::Site;

/// The columns of images.
const IMAGES: &[&str] = &["reference", "component", "size", "digest"];

/// Runs `ctl bundle show`.
///
/// # Errors
/// The bundle cannot be read.
pub fn show(site: &Site, bundle: Option<PathBuf>, screen: &mut Screen) -> anyhow::Result<u8> {
    let listing = serde_json::to_value(halite_bundle::list(&directory_or_version(site, bundle)?)?)?;
    screen.answer(&listing, |_| tables(&listing))?;
    Ok(0)
}

/// Runs `ctl images`.
///
/// # Errors
/// The bundle cannot be read.
pub fn images(site: &Site, bundle: Option<PathBuf>, screen: &mut Screen) -> anyhow::Result<u8> {
    let directory = directory_or_version(site, bundle)?;
    let mut listing = serde_json::to_value(halite_bundle::list(&directory)?)?;
    let images = json!({"bundle": listing["version"].take(), "images": listing["images"].take()});
    screen.answer(&images, |_| section(&images["images"], IMAGES))?;
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

/// Formats a list of a bundle as a table.
fn section(rows: &Value, columns: &[&str]) -> String {
    let cell = |row: &Value, column: &&str| match (*column, row[*column].as_u64()) {
        ("size", Some(size)) => megabytes(size),
        _ => table::cell(&row[*column]),
    };
    let row = |row: &Value| columns.iter().map(|column| cell(row, column)).collect();
    table::rows(columns, rows.as_array().into_iter().flatten().map(row))
}

fn tables(listing: &Value) -> String {
    let plain = |key: &str| table::cell(&listing[key]);
    let mut text = format!(
        "bundle {}, Kubernetes {}, built {}: {} files, {}\n\n",
        plain("version"),
        plain("kubernetes"),
        plain("built"),
        plain("files"),
        megabytes(listing["size"].as_u64().unwrap_or(0)),
    );
    for (heading, columns) in [
        ("images", IMAGES),
        ("packages", &["name", "version", "size"][..]),
        ("rpms", &["name", "version", "size"][..]),
    ] {
        if listing[heading]
            .as_array()
            .is_some_and(|rows| !rows.is_empty())
        {
            text.push_str(&format!("{}\n", section(&listing[heading], columns)));
        }
    }
    let charts = listing["charts"].as_object().into_iter().flatten();
    let charts: Vec<_> = charts
        .map(|(name, version)| vec![name.clone(), table::cell(version)])
        .collect();
    if !charts.is_empty() {
        text.push_str(&format!(
            "{}\n",
            table::rows(&["charts", "version"], charts.into_iter())
        ));
    }
    text
}
