//! Files of keys and certificates: written whole or not at all, on disk before the next step,
//! private where they must be.

use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

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
/// It is missing or cannot be read.
pub fn read(path: &Path) -> Result<String, CaError> {
    std::fs::read_to_string(path).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => CaError::Missing {
            path: path.to_owned(),
        },
        _ => CaError::file("read", path)(source),
    })
}

/// Makes a directory and those above it; `mode` is for those that are new.
///
/// # Errors
/// It cannot be made.
pub fn directory(path: &Path, mode: u32) -> Result<(), CaError> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(path)
        .map_err(CaError::file("make", path))
}

/// Writes a file: beside its place with its final mode, synced, moved over, and the move synced
/// too. A reader sees the old content or the new, also after a power cut.
///
/// # Errors
/// It cannot be written; the old content stays.
pub fn write(path: &Path, content: &str, mode: u32) -> Result<(), CaError> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = parent.join(format!(".{name}.new"));
    let fail = |source| CaError::file("write", path)(source);
    // A leftover of a crash may have another mode.
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(fail(error)),
        _ => {}
    }
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&new)
        .map_err(fail)?;
    file.write_all(content.as_bytes())
        .and_then(|()| file.sync_all())
        .map_err(fail)?;
    std::fs::rename(&new, path).map_err(fail)?;
    std::fs::File::open(parent)
        .and_then(|directory| directory.sync_all())
        .map_err(fail)
}

/// Removes a file, also across a power cut.
///
/// # Errors
/// It cannot be removed.
pub fn remove(path: &Path) -> Result<(), CaError> {
    let fail = |source| CaError::file("remove", path)(source);
    std::fs::remove_file(path).map_err(fail)?;
    std::fs::File::open(path.parent().unwrap_or(Path::new("/")))
        .and_then(|directory| directory.sync_all())
        .map_err(fail)
}
