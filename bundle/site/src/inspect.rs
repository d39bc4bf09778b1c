//! The manifest of a bundle in any form, for display.

use std::path::Path;

use halite_iso9660::read::IsoImage;
use halite_manifest::Manifest;
use halite_manifest::manifest::{CHECKSUM, FILE, load, parse};

use crate::delta;
use crate::error::Error;

/// The manifest of a bundle in a directory or in an ISO. It is not verified: use it only for
/// display. For a delta, the manifest of the resulting bundle.
///
/// # Errors
/// The manifest or the ISO cannot be read.
pub fn inspect(bundle: &Path) -> Result<Manifest, Error> {
    if bundle.is_dir() {
        return Ok(load(bundle)?);
    }
    let image = IsoImage::open(bundle)?;
    if image.entry(delta::FILE).is_some() {
        return delta::new_manifest(&image, bundle);
    }
    Ok(parse(
        bundle.to_owned(),
        &image.small(FILE)?,
        &image.small(CHECKSUM)?,
    )?)
}
