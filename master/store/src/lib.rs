//! The store: what happened. What is *wanted* (cluster and node documents) stays in files and is
//! never kept here.
//!
//! All times are milliseconds since the Unix epoch ([`Millis`]); JSON fields are text and are not
//! interpreted.

#[cfg(test)]
mod cases;
pub mod epoch;
pub mod log;
mod records;
#[cfg(test)]
mod samples;
mod sqlite;
pub mod wal;

use crate::epoch::EpochError;

pub use records::*;
pub use sqlite::{Store, finish_copy, fold_log, keep_good, note_epoch, noted_epoch, raise_epoch};

/// Milliseconds since the Unix epoch, UTC.
pub type Millis = i64;

/// Why the store could not do something.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database refused or failed.
    #[error("the store failed")]
    Database(#[source] sqlx::Error),
    /// There is no room for what should be stored; nothing of it was. Reading goes on.
    #[error(
        "the master's store has no room ({0}): nothing was stored. Make room on its file system (by default the one of \
         /var/lib/halite/master); minions keep their answers and hand them in then"
    )]
    Full(String),
    /// The database's schema could not be brought up to date.
    #[error("cannot bring the store's schema up to date")]
    Migration(#[from] sqlx::migrate::MigrateError),
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
    /// The write-ahead log of the store.
    #[error("cannot follow the store's log")]
    Log(#[from] wal::WalError),
    /// No epoch is left.
    #[error(transparent)]
    Epoch(#[from] EpochError),
    /// The file is not a sound database. The text says how to go back to the last good copy.
    #[error("{0}")]
    Corrupt(String),
    /// A setting that durability rests on is not in force.
    #[error("the store runs with {setting} = {found}, {wanted} is needed: {why}")]
    Unsafe {
        /// The pragma.
        setting: &'static str,
        /// What it reads back as.
        found: String,
        /// What it must be.
        wanted: &'static str,
        /// What would be lost.
        why: &'static str,
    },
    /// A row holds a value that this version does not know.
    #[error(
        "the store holds {value:?} as {what}, which this version does not know; it was written by a newer one"
    )]
    Unknown {
        /// Which column.
        what: &'static str,
        /// The value.
        value: String,
    },
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        // SQLite's primary result code SQLITE_FULL.
        let full = |code: &str| code.parse::<u32>().is_ok_and(|code| code & 0xff == 13);
        match &error {
            sqlx::Error::Database(inner) if inner.code().is_some_and(|code| full(&code)) => {
                Self::Full(inner.message().to_owned())
            }
            _ => Self::Database(error),
        }
    }
}

/// Result of a create with a request id.
#[derive(Debug, Clone, PartialEq)]
pub enum Created<T> {
    /// It was stored now.
    New,
    /// A record with the same request id was there; nothing was stored.
    Existing(T),
}
