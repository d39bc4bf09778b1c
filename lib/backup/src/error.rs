//! Errors of backups.

use std::io;
use std::path::PathBuf;

use halite_age::AgeError;

use crate::signature::BadSignature;
use crate::snapshot::SnapshotDamage;

/// The reason why a backup could not be made, read or restored.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file is not a good backup.
    #[error("the backup {} cannot be used", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: BackupDamage,
    },
    /// A new backup failed the check before it is renamed.
    #[error(
        "cannot make the backup {}: its disk or share did not return the written data",
        path.display()
    )]
    Reread {
        /// The path that it would have had.
        path: PathBuf,
        /// The finding.
        source: Box<Error>,
    },
    /// An encrypted backup cannot be decrypted.
    #[error("cannot decrypt the backup {}", path.display())]
    Decrypt {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: AgeError,
    },
    /// A backup cannot be encrypted.
    #[error("cannot encrypt the backup")]
    Encrypt(#[source] AgeError),
    /// The header cannot be written as JSON.
    #[error("cannot describe the backup as JSON")]
    Json(#[source] serde_json::Error),
    /// A file or directory could not be used.
    #[error(transparent)]
    Files(#[from] halite_durable::Error),
    /// Writing the archive failed.
    #[error("cannot write the backup")]
    Write(#[source] io::Error),
    /// A file for the backup cannot be read completely.
    #[error("cannot read {path} for the backup")]
    Read {
        /// Its path in the archive.
        path: String,
        /// The reason.
        source: io::Error,
    },
}

/// The reason why a file is not a good backup.
#[derive(Debug, thiserror::Error)]
pub enum BackupDamage {
    /// It is another kind of file.
    #[error("it is not a backup of a cluster: it does not begin with `halite-backup`")]
    Foreign,
    /// A newer program made it.
    #[error("it has the format {0:?}, which this version does not know; use a newer `ctl`")]
    Newer(String),
    /// Its end is missing.
    #[error("it is cut short: it does not end with its digest; use an older backup")]
    Cut,
    /// A byte was changed.
    #[error("its content was changed: its digest differs; use an older backup")]
    Digest,
    /// The header is malformed, although the digest fits.
    #[error("its header cannot be read")]
    Header(#[source] serde_json::Error),
    /// The archive is malformed, although the digest fits.
    #[error("its archive cannot be read")]
    Archive(#[source] io::Error),
    /// An entry differs from the list, or is missing in it.
    #[error("{0} in it does not match the list of its files")]
    Entry(String),
    /// An entry would be written outside its directory.
    #[error("it has an entry that no backup has: {0:?}")]
    Unexpected(String),
    /// The list of its files is missing or malformed.
    #[error("the list of its files is missing or cannot be read")]
    List,
    /// The list belongs to another header.
    #[error("its header was replaced: the encrypted part has another one")]
    Replaced,
    /// It is not encrypted, although its reader has a key and expects an encrypted one.
    #[error(
        "it is not encrypted, although a key was given: anyone with write access to its directory may have replaced an \
         encrypted backup with it; use another backup, or omit the key if you trust its source"
    )]
    Plain,
    /// Its signature is invalid.
    #[error("its signature is invalid; it was changed or forged, use an older backup")]
    Signature(#[source] BadSignature),
    /// etcd's snapshot in it is damaged.
    #[error("etcd's snapshot in it is damaged")]
    Snapshot(#[from] SnapshotDamage),
    /// There is no snapshot in it.
    #[error("it has no snapshot of etcd")]
    NoSnapshot,
}
