//! The store, which records the past. The *desired* state (cluster and node documents) stays in
//! files and is never stored here.
//!
//! All times are milliseconds since the Unix epoch ([`Millis`]); JSON fields are text that the
//! store does not interpret.

#[cfg(test)]
mod cases;
pub mod epoch;
pub mod log;
mod parts;
mod records;
#[cfg(test)]
mod samples;
mod sqlite;
pub mod wal;

use crate::epoch::EpochError;

pub use parts::{OpenPart, StoredPart};
pub use records::*;
pub use sqlite::{
    Store, check_migrations, finish_copy, fold_log, keep_good, note_epoch, noted_epoch, raise_epoch,
};

/// Milliseconds since the Unix epoch, UTC.
pub type Millis = i64;

/// The `tracing` target of audit lines: each one is logged with its fields before it is stored.
pub const AUDIT_TARGET: &str = "halite_audit";

/// An error of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database refused or failed.
    #[error("the store failed")]
    Database(#[source] sqlx::Error),
    /// The file system is full; nothing was stored. Reading continues.
    #[error(
        "the master's store is out of space ({0}): nothing was stored. Free space on its file system (by default the one of \
         /var/lib/halite/master); minions keep their answers and deliver them afterwards"
    )]
    Full(String),
    /// The database's schema could not be brought up to date.
    #[error("cannot bring the store's schema up to date")]
    Migration(#[from] sqlx::migrate::MigrateError),
    /// A newer program has brought the database's schema up to date.
    #[error(
        "cannot open the store {path}: a newer halite-master has changed it (migration {last}; this program knows {known}); \
         install the newer program from its bundle in /var/lib/halite/bundles, or from its mounted ISO: `install -m 0755 \
         BUNDLE/bin/halite-master /usr/local/bin/halite-master`, then `systemctl restart halite-master`, and repeat the \
         `ctl upgrade` that stopped: a `ctl highstate` before that installs this program again"
    )]
    Newer {
        /// The store's file.
        path: String,
        /// The number of the last migration of the store.
        last: i64,
        /// The number of the last migration that this program knows.
        known: i64,
    },
    /// A file beside the database could not be written or moved.
    #[error("cannot {action} {path}")]
    File {
        /// Verb, for example `write`.
        action: &'static str,
        /// The file.
        path: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file beside the database could not be replaced.
    #[error(transparent)]
    Durable(#[from] halite_durable::Error),
    /// The write-ahead log of the store failed.
    #[error("cannot follow the store's log")]
    Log(#[from] wal::WalError),
    /// No higher epoch exists.
    #[error(transparent)]
    Epoch(#[from] EpochError),
    /// The record of the last epoch cannot be read.
    #[error(
        "cannot read {0}: it is not an epoch and a number of starts, so it is unknown whether the store went back to an \
         earlier state; if the store is the one that the master used last, remove the file, otherwise restore a backup with \
         `ctl bootstrap --restore`"
    )]
    Record(String),
    /// The file is not a valid database. The text contains the commands that restore the last good
    /// copy.
    #[error("{0}")]
    Corrupt(String),
    /// A setting on which durability depends is not in force.
    #[error("the store runs with {setting} = {found}, but {wanted} is required: {why}")]
    Unsafe {
        /// The pragma.
        setting: &'static str,
        /// The value that SQLite reports.
        found: String,
        /// The required value.
        wanted: &'static str,
        /// The consequence of the wrong value.
        why: &'static str,
    },
    /// A row contains a value that this version does not know.
    #[error("the store contains the unknown {what} {value:?}; a newer version wrote it")]
    Unknown {
        /// The name of the column.
        what: &'static str,
        /// The value.
        value: String,
    },
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        // This is SQLite's primary result code SQLITE_FULL.
        let full = |code: &str| code.parse::<u32>().is_ok_and(|code| code & 0xff == 13);
        match &error {
            sqlx::Error::Database(inner) if inner.code().is_some_and(|code| full(&code)) => {
                Self::Full(inner.message().to_owned())
            }
            _ => Self::Database(error),
        }
    }
}

/// The result of a create with a request id.
#[derive(Debug, Clone, PartialEq)]
pub enum Created<T> {
    /// The record is new and was stored.
    New,
    /// A record with the same request id existed already; nothing was stored.
    Existing(T),
}
