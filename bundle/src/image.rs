//! A bundle that is built to be carried: it is an image at once.

use std::path::Path;

use halite_durable::files;

use crate::build::{Options, Render, build};
use crate::error::Error;
use crate::manifest::Manifest;
use crate::pack;
use crate::seal::keys::SecretKey;

/// Builds the bundle of a recipe and writes it into an image at `out`, sealed and signed, replacing
/// a file that is there. Nothing is at `out` before all of it is. The directory that the image was
/// made of does not stay; what is to be kept for the next build is in the recipe's cache.
///
/// # Errors
/// As [`build()`] and [`pack()`](crate::pack()).
pub fn build_image(
    recipe_file: &Path,
    out: &Path,
    keys: &[SecretKey],
    options: &Options,
    render: &Render<'_>,
    progress: &mut dyn FnMut(&str),
) -> Result<Manifest, Error> {
    let _claim = pack::claim(out)?;
    let directory = files::sibling(out, "bundle");
    // What a build left that was killed at its end is no bundle any more, and nobody else's.
    files::remove_dir(&directory)?;
    let made = build(recipe_file, &directory, options, render, progress)
        .and_then(|_| pack::write(&directory, out, keys, progress));
    let removed = files::remove_dir(&directory);
    let manifest = made?;
    removed?;
    Ok(manifest)
}
