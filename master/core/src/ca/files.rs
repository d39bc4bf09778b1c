//! Files of keys and certificates: written atomically, on disk before the next step, and private
//! where necessary.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use halite_durable::files;

use super::CaError;

/// The files of a CA or identity: certificate and key.
#[must_use]
pub fn pair(directory: &Path, name: &str) -> [PathBuf; 2] {
    [
        directory.join(format!("{name}.crt")),
        directory.join(format!("{name}.key")),
    ]
}

/// Reads a text file.
///
/// # Errors
/// The file is missing or cannot be read.
pub fn read(path: &Path) -> Result<String, CaError> {
    std::fs::read_to_string(path).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => CaError::Missing {
            path: path.to_owned(),
        },
        _ => CaError::file("read", path)(source),
    })
}

/// Creates a directory and its parents; `mode` applies to new ones only.
///
/// # Errors
/// The directory cannot be created.
pub fn directory(path: &Path, mode: u32) -> Result<(), CaError> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(path)
        .map_err(CaError::file("make", path))
}

/// Writes a file atomically, with this mode; it is on disk when this returns.
///
/// # Errors
/// The file cannot be written; the old content stays.
pub fn write(path: &Path, content: &str, mode: u32) -> Result<(), CaError> {
    Ok(files::replace(path, mode, content.as_bytes())?)
}

/// Removes a file durably.
///
/// # Errors
/// The file cannot be removed.
pub fn remove(path: &Path) -> Result<(), CaError> {
    Ok(files::remove(path)?)
}
