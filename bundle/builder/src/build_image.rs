//! The build of a bundle directly into an image.

use std::path::Path;

use halite_bundle::pack;
use halite_durable::files;
use halite_manifest::Manifest;
use halite_seal::keys::SecretKey;

use crate::build::{Options, RequirementsOf, build_with};
use crate::completeness::compile::requirements;
use crate::error::Error;

/// Builds the bundle of a recipe and writes it into an image at `out`, sealed and signed, replacing
/// an existing file. `out` appears only when it is complete. The image's source directory is
/// removed; the recipe's cache stores the parts for the next build.
///
/// # Errors
/// As for [`build()`](crate::build()) and [`pack()`](halite_bundle::pack()).
pub fn build_image(
    recipe_file: &Path,
    out: &Path,
    keys: &[SecretKey],
    options: &Options,
    progress: &mut dyn FnMut(&str),
) -> Result<Manifest, Error> {
    let requirements: &RequirementsOf<'_> =
        &|directory, manifest| requirements(directory, manifest, options.coverage);
    build_image_with(recipe_file, out, keys, options, requirements, progress)
}

/// Builds like [`build_image()`], but with requirements that the caller computes.
///
/// # Errors
/// As for [`build_image()`].
pub fn build_image_with(
    recipe_file: &Path,
    out: &Path,
    keys: &[SecretKey],
    options: &Options,
    requirements: &RequirementsOf<'_>,
    progress: &mut dyn FnMut(&str),
) -> Result<Manifest, Error> {
    let _claim = pack::claim(out)?;
    let directory = files::sibling(out, "bundle");
    // Only a build that was killed just before its end leaves this directory behind; it belongs to
    // this output.
    files::remove_dir(&directory)?;
    let made = build_with(recipe_file, &directory, options, requirements, progress)
        .and_then(|_| Ok(pack::write(&directory, out, keys, progress)?));
    let removed = files::remove_dir(&directory);
    let manifest = made?;
    removed?;
    Ok(manifest)
}
