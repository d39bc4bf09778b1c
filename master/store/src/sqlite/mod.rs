//! [`Store`]: one SQLite file, write-ahead log, every commit on disk and on the standbys before it is
//! answered.

mod backup;
mod events;
mod files;
mod jobs;
mod keys;
mod lineage;
#[cfg(test)]
mod lineage_tests;
mod operators;
mod promotion;
mod revoked;
mod row_changes;
mod rows;
mod runs;
#[cfg(any(test, feature = "testing"))]
#[allow(
    clippy::unwrap_used,
    reason = "for tests, also those of the crates above"
)]
mod testing;
#[cfg(test)]
mod tests;
mod turns;
mod unused;
mod writer;

use std::borrow::Cow;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use backup::{advice, backup_path, check_suspect};
use row_changes::RowChanges;
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{Row as _, SqlSafeStr as _};
use writer::Writer;

use super::StoreError;
use super::log::Log;

pub use backup::keep_good;
pub use promotion::{finish_copy, fold_log, note_epoch, noted_epoch, raise_epoch};

/// The schema's history. A released file never changes; a change is a new file.
const MIGRATIONS: &[(i64, &str, &str)] = &[
    (1, "first", include_str!("../../migrations/0001_first.sql")),
    (
        2,
        "bundles",
        include_str!("../../migrations/0002_bundles.sql"),
    ),
    (3, "order", include_str!("../../migrations/0003_order.sql")),
    (
        4,
        "operators",
        include_str!("../../migrations/0004_operators.sql"),
    ),
    (
        5,
        "steady",
        include_str!("../../migrations/0005_steady.sql"),
    ),
    (
        6,
        "lineage",
        include_str!("../../migrations/0006_lineage.sql"),
    ),
    (7, "used", include_str!("../../migrations/0007_used.sql")),
    (8, "locks", include_str!("../../migrations/0008_locks.sql")),
    (
        9,
        "row bundles",
        include_str!("../../migrations/0009_row_bundles.sql"),
    ),
    (
        10,
        "cancelled runs",
        include_str!("../../migrations/0010_cancelled_runs.sql"),
    ),
    (
        11,
        "holder",
        include_str!("../../migrations/0011_holder.sql"),
    ),
    (12, "turns", include_str!("../../migrations/0012_turns.sql")),
];

/// The pages that each of the three connections retains: 256 KiB. The page cache of the kernel has
/// the same pages, and a job of a thousand states would fill any cache for as long as the master
/// runs.
const CACHE: &str = "-256";

/// Everything that the master remembers, in one SQLite file. Each method is one transaction: when it
/// returns, it is on disk and on each standby that follows.
pub struct Store {
    path: PathBuf,
    writer: Writer,
    /// Readers see the last commit and never wait for a writer.
    reader: SqlitePool,
    epoch: i64,
    holder: String,
    /// Changes of rows that wait for the writer.
    row_changes: Arc<RowChanges>,
    /// The write-ahead log, which standbys follow.
    log: Arc<Log>,
    /// Held while a copy is made.
    copying: tokio::sync::Mutex<()>,
}

impl Store {
    /// Opens the store, makes it when there is none, and brings its schema up to date. That takes
    /// as long for a large store as for a small one: [`keep_good`] reads it whole later.
    ///
    /// # Errors
    /// The file is damaged, or gone while its good copy is there: the text says how to go back to
    /// the copy. Or the settings that durability rests on are not in force.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        let fresh = std::fs::metadata(path).map_or(true, |found| found.len() == 0);
        if fresh && backup_path(path).exists() {
            return Err(StoreError::Corrupt(format!(
                "{} is gone, but a copy of it is there. {}",
                path.display(),
                advice(path)
            )));
        }
        create_private(path)?;
        let connected = connect(path).await;
        let writer = connected.map_err(|error| explain(path, error.into()))?;
        let sound = check_suspect(path).await;
        sound.map_err(|error| explain(path, error))?;
        assert_durable(&writer).await?;
        let migrated = migrator(MIGRATIONS).run(&writer).await;
        migrated.map_err(|error| explain(path, error.into()))?;
        let begun = lineage::begin(path, &writer).await;
        let (epoch, holder) = begun.map_err(|error| explain(path, error))?;
        let log = Arc::new(Log::new(path));
        Ok(Self {
            path: path.to_owned(),
            writer: Writer::new(writer, Arc::clone(&log)),
            // After the migrations: a connection prepares statements by the schema that it read when
            // it was opened, and with one from before, `SELECT *` finds no rows once a column was
            // added.
            reader: pool(2, options(path).pragma("query_only", "on")).await?,
            epoch,
            holder,
            row_changes: Arc::default(),
            log,
            copying: tokio::sync::Mutex::default(),
        })
    }

    /// The epoch: it grows whenever the store goes back to an earlier state.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch.unsigned_abs()
    }

    /// Which of two masters with the same epoch this one is: it changes with the epoch only.
    #[must_use]
    pub fn holder(&self) -> &str {
        &self.holder
    }

    /// The write-ahead log, which standbys follow: each change waits for them before it is answered.
    #[must_use]
    pub fn log(&self) -> Arc<Log> {
        Arc::clone(&self.log)
    }

    /// Answers when the store can be read and takes changes; changes nothing.
    ///
    /// # Errors
    /// It cannot be read, or takes no changes.
    pub async fn probe(&self) -> Result<(), StoreError> {
        sqlx::query("SELECT epoch FROM lineage")
            .fetch_one(&self.reader)
            .await?;
        self.writer.begin().await.map(drop)
    }

    /// Closes all connections; the write-ahead log goes into the file. So a master that has ended leaves
    /// its store in one file, which an operator may copy or replace.
    pub async fn close(&self) {
        self.reader.close().await;
        self.writer.close().await;
    }
}

fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(Duration::from_secs(10))
        .pragma("cache_size", CACHE)
}

async fn pool(connections: u32, options: SqliteConnectOptions) -> Result<SqlitePool, sqlx::Error> {
    SqlitePoolOptions::new()
        .max_connections(connections)
        .min_connections(1)
        // As long as the store is open: SQLite ends the log with the last connection, and then each
        // standby takes a base.
        .max_lifetime(None)
        .idle_timeout(None)
        .connect_with(options)
        .await
}

/// Opens the connection that writes.
async fn connect(path: &Path) -> Result<SqlitePool, sqlx::Error> {
    // The log is checkpointed by the store itself: see `writer`.
    pool(1, options(path).pragma("wal_autocheckpoint", "0")).await
}

/// Reads back what was asked for: a file system or an old library may have said no in silence.
async fn assert_durable(writer: &SqlitePool) -> Result<(), StoreError> {
    let synchronous: i64 = sqlx::query("PRAGMA synchronous")
        .fetch_one(writer)
        .await?
        .try_get(0)?;
    // 2 is FULL, 3 is EXTRA.
    if synchronous < 2 {
        return Err(StoreError::Unsafe {
            setting: "synchronous",
            found: synchronous.to_string(),
            wanted: "2 (FULL)",
            why: "a power cut would lose answered jobs",
        });
    }
    let journal: String = sqlx::query("PRAGMA journal_mode")
        .fetch_one(writer)
        .await?
        .try_get(0)?;
    if journal != "wal" {
        return Err(StoreError::Unsafe {
            setting: "journal_mode",
            found: journal,
            wanted: "wal",
            why: "readers would stop writers",
        });
    }
    Ok(())
}

fn migrator(migrations: &[(i64, &'static str, &'static str)]) -> Migrator {
    let migrations = migrations.iter().map(|(version, name, sql)| {
        Migration::new(
            *version,
            Cow::Borrowed(*name),
            MigrationType::Simple,
            (*sql).into_sql_str(),
            false,
        )
    });
    Migrator::with_migrations(migrations.collect())
}

/// The store holds what hosts said and who did what: for root only. SQLite gives its side files the
/// same mode.
fn create_private(path: &Path) -> Result<(), StoreError> {
    let file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path);
    file.map(drop).map_err(|source| StoreError::File {
        action: "open",
        path: path.display().to_string(),
        source,
    })
}

/// Turns SQLite's "malformed" and "not a database" into words that lead on.
fn explain(path: &Path, error: StoreError) -> StoreError {
    let reason = match &error {
        StoreError::Corrupt(reason) => reason.clone(),
        StoreError::Database(sqlx::Error::Database(inner))
        | StoreError::Migration(
            MigrateError::Execute(sqlx::Error::Database(inner))
            | MigrateError::ExecuteMigration(sqlx::Error::Database(inner), _),
        ) => {
            // Primary result codes: SQLITE_CORRUPT 11, SQLITE_NOTADB 26.
            let code = inner
                .code()
                .and_then(|code| code.parse::<u32>().ok())
                .map(|code| code & 0xff);
            if !matches!(code, Some(11 | 26)) {
                return error;
            }
            inner.message().to_owned()
        }
        _ => return error,
    };
    StoreError::Corrupt(format!(
        "{} is damaged: {reason}. {}",
        path.display(),
        advice(path)
    ))
}
