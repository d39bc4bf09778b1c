//! The signatures of a bundle in a directory.

use std::fs;
use std::path::Path;

use halite_manifest::manifest::{FILE, is_signature};
use halite_seal::detached;
use halite_seal::detached::VerifiedManifest;
use halite_seal::keys::Trust;

use crate::error::Error;

/// Verifies the signatures of the manifest of the bundle in a directory, which are also in the
/// directory. The manifest has the digests of all other files, which [`crate::verify()`] compares.
///
/// # Errors
/// The manifest cannot be read, a signature is damaged, or no trusted key signed.
pub fn verified(dir: &Path, trust: &Trust) -> Result<VerifiedManifest, Error> {
    let path = dir.join(FILE);
    let bytes = fs::read(&path).map_err(Error::file("read", &path))?;
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(Error::file("list", dir))? {
        names.push(
            entry
                .map_err(Error::file("list", dir))?
                .file_name()
                .to_string_lossy()
                .into_owned(),
        );
    }
    names.sort_unstable();
    let read = |name: &String| {
        let path = dir.join(name);
        fs::read_to_string(&path).map_err(Error::file("read", path))
    };
    let signatures = names
        .iter()
        .filter(|name| is_signature(name))
        .map(read)
        .collect::<Result<Vec<_>, _>>()?;
    detached::judge(&bytes, &signatures, trust).map_err(|refused| Error::invalid(path, refused))
}
