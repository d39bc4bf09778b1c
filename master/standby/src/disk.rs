//! The files of a standby: whole or not at all, for root only, on disk before the next step.

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
/// Bytes of a large file that are not on disk yet. A sync of so many ends before the master gives the next
/// piece up, also on a slow disk.
const PART: usize = 8 << 20;

/// A large file that is written from its begin. It goes to the disk in parts: gigabytes at its end would
/// take longer than the master waits.
#[derive(Debug)]
pub(super) struct Large {
    file: File,
    /// Bytes that were written since the last sync.
    unsynced: usize,
}

impl Large {
    /// The file, which is empty.
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

    /// Has all of it on disk.
    pub(super) fn end(self, path: &Path) -> io::Result<()> {
        sync_file(&self.file, path)
    }
}

/// A copy that cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// A file.
    #[error("cannot {action} {}", path.display())]
    File {
        /// A verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file or directory cannot be removed.
    #[error(transparent)]
    Durable(#[from] halite_durable::Error),
    /// What came does not follow what is there.
    #[error(transparent)]
    Log(#[from] WalError),
    /// The copy's database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The master shows an epoch that anyone could have made.
    #[error(
        "cannot follow this master: its epoch {0} has no signature of this cluster's CA; if it is the right one, enrol this host \
         again (halite-minion enrol --force)"
    )]
    Unproven(u64),
    /// There is no copy.
    #[error("there is no whole copy of the master in {}: it comes when this standby follows", .0.display())]
    None(PathBuf),
    /// The copy is not what this standby has acknowledged.
    #[error(
        "the copy of the master in {} is damaged; while the master answers, `systemctl restart halite-master` on this host takes \
         another one", root.display()
    )]
    Damaged {
        /// The directory.
        root: PathBuf,
        /// What is wrong with it.
        #[source]
        damage: Box<Damage>,
    },
    /// The copy changes all the time.
    #[error("the copy of the master in {} changes faster than it can be read; try again", .0.display())]
    Busy(PathBuf),
    /// A file of another place.
    #[error("a standby takes no file {0:?}")]
    Place(String),
    /// A record that does not fit.
    #[error("the master sent {0}")]
    Unexpected(&'static str),
    /// A record of the copy cannot be read.
    #[error("cannot use {}", path.display())]
    Facts {
        /// The file.
        path: PathBuf,
        /// The mistake.
        source: serde_json::Error,
    },
    /// A master that was replaced.
    #[error(
        "the master has the epoch {master}, and this host has heard of {seen}: that master was replaced"
    )]
    Epoch {
        /// The master's.
        master: u64,
        /// The highest that this host has heard of.
        seen: u64,
    },
}

/// A part of a copy that is not as this standby has acknowledged it.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// The log ends too early.
    #[error(
        "the log of the store can be used up to frame {found} of the {acknowledged} that this standby has acknowledged"
    )]
    Log {
        /// Frames that follow each other.
        found: u32,
        /// Frames that were acknowledged.
        acknowledged: u32,
    },
    /// A file beside the store is not there.
    #[error("{0} is gone")]
    Gone(String),
    /// A file beside the store has another content.
    #[error("{0} has another content than the master sent")]
    Changed(String),
    /// A file cannot be read.
    #[error(transparent)]
    Unreadable(CopyError),
}

/// Has a file on disk.
pub(super) fn sync_file(file: &File, path: &Path) -> io::Result<()> {
    file.sync_all()?;
    #[cfg(test)]
    power::synced(path);
    #[cfg(not(test))]
    let _ = path;
    Ok(())
}

/// The error of an action on a file.
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

/// Makes a file for root only, empty.
pub(super) fn new_file(path: &Path) -> Result<File, CopyError> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(PRIVATE)
        .open(path)
        .map_err(file_error("write", path))
}

/// Opens the log as it is; a new one is in its directory when this returns.
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

/// Makes a directory for root only, with those above it.
pub fn make_directory(path: &Path) -> Result<(), CopyError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(file_error("make", path))
}

/// Removes a file or directory, if it is there; also across a power cut.
pub(super) fn remove(path: &Path) -> Result<(), CopyError> {
    Ok(files::remove(path)?)
}

pub(super) fn sync_directory(path: &Path) -> Result<(), CopyError> {
    File::open(path)
        .and_then(|directory| directory.sync_all())
        .map_err(file_error("write", path))
}

/// Writes a file for root only, whole or not at all.
pub(super) fn write_private(path: &Path, bytes: &[u8]) -> Result<(), CopyError> {
    write(path, bytes, PRIVATE)
}

/// Writes a file whole or not at all; it is on disk when this returns.
pub(super) fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<(), CopyError> {
    write_by(&files::sibling(path, "new"), path, bytes, mode)
}

/// As [`write`], with the name that the file has until it is whole.
pub(super) fn write_by(new: &Path, path: &Path, bytes: &[u8], mode: u32) -> Result<(), CopyError> {
    files::remove_any(new)?;
    files::write(new, mode, bytes)?;
    files::publish(new, path)?;
    #[cfg(test)]
    power::synced(path);
    Ok(())
}

/// Reads a record; none when there is none.
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

/// Writes a record, whole or not at all.
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
