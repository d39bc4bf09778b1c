//! The files beside the store.

use std::ffi::OsStr;
use std::io;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::StoreError;

/// The mode of the files: for root only.
pub(super) const PRIVATE: u32 = 0o600;

/// The path of the store's file with this suffix.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(OsStr::new(suffix));
    PathBuf::from(name)
}

/// Creates the error of a failed action on a file.
pub(super) fn file_error(
    action: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> StoreError + use<> {
    let path = path.display().to_string();
    move |source| StoreError::File {
        action,
        path,
        source,
    }
}

/// Reads the text of a file; `None` if it does not exist.
pub(super) fn read(path: &Path) -> Result<Option<String>, StoreError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(file_error("read", path)(error)),
    }
}

/// Appends a line; it is on disk when this returns.
pub(super) fn append(path: &Path, line: &str) -> Result<(), StoreError> {
    let is_new = !path.exists();
    let written = open(path, |options| options.read(true).append(true)).and_then(|mut file| {
        // The last line of a write that a power cut interrupted is not continued. An empty file has
        // none.
        let mut last = [b'\n'];
        if file.seek(SeekFrom::End(-1)).is_ok() {
            file.read_exact(&mut last)?;
        }
        let begin = if last == *b"\n" { "" } else { "\n" };
        file.write_all(format!("{begin}{line}\n").as_bytes())?;
        file.sync_all()?;
        if is_new {
            std::fs::File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()?;
        }
        Ok(())
    });
    written.map_err(file_error("write", path))
}

fn open(
    path: &Path,
    how: impl FnOnce(&mut std::fs::OpenOptions) -> &mut std::fs::OpenOptions,
) -> io::Result<std::fs::File> {
    how(std::fs::OpenOptions::new().create(true).mode(PRIVATE)).open(path)
}
