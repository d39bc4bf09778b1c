//! The files of a standby, which are written atomically, for root only, and on disk before the next
//! step.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::{fs, io};

use halite_durable::files;
use halite_store::StoreError;
use halite_store::wal::WalError;
use serde::{Deserialize, Serialize};

pub(super) const PRIVATE: u32 = 0o600;
/// The most bytes of a large file that are not synced yet. A sync of this size ends before the
/// master's timeout for the next piece, even on a slow disk.
const PART: usize = 8 << 20;

/// A large file that is written sequentially. It is synced in parts: syncing gigabytes at its end
/// would take longer than the master waits.
#[derive(Debug)]
pub(super) struct Large {
    file: File,
    /// The number of bytes written since the last sync.
    unsynced: usize,
}

impl Large {
    /// Wraps an empty file.
    pub(super) fn new(file: File) -> Self {
        Self { file, unsynced: 0 }
    }

    /// Writes the next bytes.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.unsynced += bytes.len();
        if self.unsynced >= PART {
            self.file.sync_data()?;
            self.unsynced = 0;
        }
        Ok(())
    }

    /// Syncs all of the file to disk.
    pub(super) fn end(self, path: &Path) -> io::Result<()> {
        sync_file(&self.file, path)
    }
}

/// An error of a copy.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// A file operation failed.
    #[error("cannot {action} {}", path.display())]
    File {
        /// The verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file or directory cannot be removed.
    #[error(transparent)]
    Durable(#[from] halite_durable::Error),
    /// The received data do not follow the existing ones.
    #[error(transparent)]
    Log(#[from] WalError),
    /// The copy's database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The master presents an epoch that any host could have made.
    #[error(
        "cannot follow this master: its epoch {0} has no signature of this cluster's CA; if it is the right one, enrol this host \
         again (halite-minion enrol --force)"
    )]
    Unproven(u64),
    /// There is no copy.
    #[error("there is no whole copy of the master in {}: it arrives once this standby follows", .0.display())]
    None(PathBuf),
    /// The copy differs from what this standby has acknowledged.
    #[error(
        "the copy of the master in {} is damaged; while the master answers, `systemctl restart halite-master` on this host fetches \
         a new one", root.display()
    )]
    Damaged {
        /// The directory.
        root: PathBuf,
        /// The damage.
        #[source]
        damage: Box<CopyDamage>,
    },
    /// The copy keeps changing.
    #[error("the copy of the master in {} changes faster than it can be read; retry later", .0.display())]
    Busy(PathBuf),
    /// The file has an invalid path.
    #[error("a standby does not accept the file {0:?}")]
    Place(String),
    /// An unexpected record.
    #[error("the master sent {0}")]
    Unexpected(&'static str),
    /// A record of the copy cannot be read.
    #[error("cannot use {}", path.display())]
    Facts {
        /// The file.
        path: PathBuf,
        /// The syntax error.
        source: serde_json::Error,
    },
    /// The master was replaced.
    #[error(
        "the master has the epoch {master}, and this host has heard of {seen}: that master was replaced"
    )]
    Epoch {
        /// The epoch of the master.
        master: u64,
        /// The highest epoch of which this host has heard.
        seen: u64,
    },
}

/// A part of a copy that differs from what this standby has acknowledged.
#[derive(Debug, thiserror::Error)]
pub enum CopyDamage {
    /// The log ends too early.
    #[error(
        "the log of the store can be used up to frame {found} of the {acknowledged} that this standby has acknowledged"
    )]
    Log {
        /// The number of valid frames.
        found: u32,
        /// The number of acknowledged frames.
        acknowledged: u32,
    },
    /// A file beside the store is missing.
    #[error("{0} is missing")]
    Gone(String),
    /// A file beside the store has different content.
    #[error("{0} differs from the file that the master sent")]
    Changed(String),
    /// A file cannot be read.
    #[error(transparent)]
    Unreadable(CopyError),
}

/// Syncs a file to disk.
pub(super) fn sync_file(file: &File, path: &Path) -> io::Result<()> {
    file.sync_all()?;
    #[cfg(test)]
    power::synced(path);
    #[cfg(not(test))]
    let _ = path;
    Ok(())
}

/// Creates the error of a failed action on a file.
pub fn file_error(
    action: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> CopyError + use<> {
    let path = path.to_owned();
    move |source| CopyError::File {
        action,
        path,
        source,
    }
}

/// Creates an empty file for root only.
pub(super) fn new_file(path: &Path) -> Result<File, CopyError> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(PRIVATE)
        .open(path)
        .map_err(file_error("write", path))
}

/// Opens the log without changes; the directory entry of a new one is on disk when this returns.
pub(super) fn open_log(path: &Path) -> Result<File, CopyError> {
    let is_new = !path.exists();
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(PRIVATE)
        .open(path)
        .map_err(file_error("write", path))?;
    if is_new {
        sync_directory(path.parent().unwrap_or(Path::new(".")))?;
    }
    Ok(file)
}

/// Creates a directory and its parents for root only.
pub fn make_directory(path: &Path) -> Result<(), CopyError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(file_error("make", path))
}

/// Removes a file or directory durably, if it exists.
pub(super) fn remove(path: &Path) -> Result<(), CopyError> {
    Ok(files::remove(path)?)
}

pub(super) fn sync_directory(path: &Path) -> Result<(), CopyError> {
    File::open(path)
        .and_then(|directory| directory.sync_all())
        .map_err(file_error("write", path))
}

/// Writes a file atomically, for root only.
pub(super) fn write_private(path: &Path, bytes: &[u8]) -> Result<(), CopyError> {
    write(path, bytes, PRIVATE)
}

/// Writes a file atomically; it is on disk when this returns.
pub(super) fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<(), CopyError> {
    write_by(&files::sibling(path, "new"), path, bytes, mode)
}

/// Like [`write`], with the name of the temporary file.
pub(super) fn write_by(new: &Path, path: &Path, bytes: &[u8], mode: u32) -> Result<(), CopyError> {
    files::remove_any(new)?;
    files::write(new, mode, bytes)?;
    files::publish(new, path)?;
    #[cfg(test)]
    power::synced(path);
    Ok(())
}

/// Reads a record; `None` if it does not exist.
pub(super) fn read_json<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<Option<T>, CopyError> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(file_error("read", path)(error)),
    };
    let parsed = serde_json::from_slice(&text);
    parsed.map(Some).map_err(|source| CopyError::Facts {
        path: path.to_owned(),
        source,
    })
}

/// Writes a record atomically.
pub(super) fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<(), CopyError> {
    let text = serde_json::to_vec(value).map_err(|source| CopyError::Facts {
        path: path.to_owned(),
        source,
    })?;
    write_private(path, &text)
}

#[cfg(test)]
pub(super) mod power;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_file_is_written_whole_and_never_waits_with_more_than_a_part() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.db");
        let mut large = Large::new(new_file(&path).unwrap());
        let mut expected = Vec::new();
        for piece in 0..20_u8 {
            let bytes = vec![piece; PART / 5 + 1];
            large.write(&bytes).unwrap();
            assert!(large.unsynced < PART, "{piece}: {}", large.unsynced);
            expected.extend(bytes);
        }
        large.end(&path).unwrap();
        assert!(fs::read(&path).unwrap() == expected);
    }
}
