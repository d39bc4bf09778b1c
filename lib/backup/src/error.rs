//! Errors of backups.

use std::io;
use std::path::PathBuf;

use crate::age::AgeError;
use crate::signature::BadSignature;
use crate::snapshot::SnapshotDamage;

/// The reason why a backup could not be made, read or restored.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file is no good backup.
    #[error("the backup {} cannot be used", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: Damage,
    },
    /// A new backup, read again before it gets its name, is no good.
    #[error(
        "cannot make the backup {}: its disk or share did not give back what was written",
        path.display()
    )]
    Reread {
        /// The name that it does not get.
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
    /// A file that belongs into the backup cannot be read whole.
    #[error("cannot read {path} for the backup")]
    Read {
        /// Its path in the archive.
        path: String,
        /// The reason.
        source: io::Error,
    },
}

/// The reason why a file is no good backup.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// It is another kind of file.
    #[error("it is no backup of a cluster: it does not begin with `halite-backup`")]
    Foreign,
    /// A newer program made it.
    #[error("it has the format {0:?}, which this version does not know; use a newer `ctl`")]
    Newer(String),
    /// Its end is missing.
    #[error("it is cut short: it does not end with its digest; use an older one")]
    Cut,
    /// A byte was changed.
    #[error("its content is not what was written: its digest differs; use an older one")]
    Digest,
    /// The header is malformed, although the digest fits.
    #[error("its header cannot be read")]
    Header(#[source] serde_json::Error),
    /// The archive is malformed, although the digest fits.
    #[error("its archive cannot be read")]
    Archive(#[source] io::Error),
    /// An entry has another content than its list says, or is not in it.
    #[error("{0} in it is not what the list of its files says")]
    Entry(String),
    /// An entry would be written outside of its directory.
    #[error("it has an entry that no backup has: {0:?}")]
    Unexpected(String),
    /// The list of its files is missing or malformed.
    #[error("the list of its files is missing or cannot be read")]
    List,
    /// The list belongs to another header.
    #[error("its header was replaced: the encrypted part has another one")]
    Replaced,
    /// It is plain, and its reader has a key: he expects one that only he can read.
    #[error(
        "it is not encrypted, although a key was given: who may write its directory may have put it in the place of an \
         encrypted one; use another one, or leave the key out if you know where it is from"
    )]
    Plain,
    /// Its signature counts for nothing.
    #[error("its signature is no good; it was changed or put there by another, use an older one")]
    Signature(#[source] BadSignature),
    /// etcd's snapshot in it is no good.
    #[error("etcd's snapshot in it is no good")]
    Snapshot(#[from] SnapshotDamage),
    /// There is no snapshot in it.
    #[error("it has no snapshot of etcd")]
    NoSnapshot,
}
