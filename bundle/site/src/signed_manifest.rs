//! The signature of a bundle that is a directory.

use std::fs;
use std::path::Path;

use halite_manifest::manifest::{FILE, is_signature};
use halite_seal::detached;
use halite_seal::detached::VerifiedManifest;
use halite_seal::keys::Trust;

use crate::error::Error;

/// Who vouches for the bundle in a directory: the manifest's signatures stand beside it, and the
/// manifest vouches for every other file, which is for [`halite_bundle::verify()`] to read.
///
/// # Errors
/// When the manifest cannot be read, a signature is damaged, or no trusted key signed.
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
    detached::judge(&bytes, &signatures, trust).map_err(|why| Error::content(path, why))
}
