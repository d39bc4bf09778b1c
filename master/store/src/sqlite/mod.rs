//! [`Store`], one SQLite file with a write-ahead log; every commit is on disk and on the standbys
//! before it is answered.

mod backup;
mod events;
mod files;
mod jobs;
mod keys;
mod lineage;
#[cfg(test)]
mod lineage_tests;
#[cfg(test)]
mod low_states_tests;
mod migrations;
mod notifications;
mod operators;
mod promotion;
mod revoked;
mod row_changes;
mod rows;
mod runs;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::unwrap_used, reason = "for tests, also in the crates above")]
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
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use backup::{advice, backup_path, check_suspect};
use prometheus_client::metrics::histogram::Histogram;
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
pub use migrations::check_migrations;
pub use promotion::{finish_copy, fold_log, note_epoch, noted_epoch, raise_epoch};

/// The schema's history. Released files never change; each change is a new file.
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
    (
        13,
        "notifications",
        include_str!("../../migrations/0013_notifications.sql"),
    ),
    (
        14,
        "paused runs",
        include_str!("../../migrations/0014_paused_runs.sql"),
    ),
    (
        15,
        "low states",
        include_str!("../../migrations/0015_low_states.sql"),
    ),
];

/// The page cache of each of the three connections: 256 KiB. The kernel's page cache has the same
/// pages, and a job of a thousand states would fill any cache for as long as the master runs.
const CACHE: &str = "-256";

/// The master's whole memory in one SQLite file. Each method is one transaction: when it returns,
/// the data is on disk and on each standby that follows.
pub struct Store {
    path: PathBuf,
    writer: Writer,
    /// Readers see the last commit and never wait for a writer.
    reader: SqlitePool,
    epoch: i64,
    holder: String,
    /// Changes that wait for the writer.
    row_changes: Arc<RowChanges>,
    /// `true` while rows of an earlier version may still have their low states.
    has_inline_low_states: AtomicBool,
    /// The write-ahead log, which standbys follow.
    log: Arc<Log>,
    /// Held while a copy is made.
    copying: tokio::sync::Mutex<()>,
}

impl Store {
    /// The durations of commits since the start, in seconds: until the change is on disk and on
    /// each standby that follows.
    #[must_use]
    pub fn commit_durations(&self) -> Histogram {
        self.writer.durations()
    }

    /// Opens the store, creates it if it does not exist, and brings its schema up to date. This
    /// takes as long for a large store as for a small one: [`keep_good`] reads the whole store
    /// later.
    ///
    /// # Errors
    /// The file is damaged, or missing although its good copy exists: the text contains the
    /// commands that restore the copy. Or a newer program has migrated it, or the settings on which
    /// durability depends are not in force.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        let fresh = std::fs::metadata(path).map_or(true, |found| found.len() == 0);
        if fresh && backup_path(path).exists() {
            return Err(StoreError::Corrupt(format!(
                "{} is missing, but a copy of it exists. {}",
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
        migrations::refuse_newer(path, &mut *writer.acquire().await?).await?;
        let migrated = migrator(MIGRATIONS).run(&writer).await;
        migrated.map_err(|error| explain(path, error.into()))?;
        let begun = lineage::begin(path, &writer).await;
        let (epoch, holder) = begun.map_err(|error| explain(path, error))?;
        let log = Arc::new(Log::new(path));
        Ok(Self {
            path: path.to_owned(),
            writer: Writer::new(writer, Arc::clone(&log)),
            // After the migrations: a connection prepares statements for the schema that it read
            // when it was opened, and with an old schema, `SELECT *` finds no rows once a column
            // was added.
            reader: pool(2, options(path).pragma("query_only", "on")).await?,
            epoch,
            holder,
            row_changes: Arc::default(),
            has_inline_low_states: AtomicBool::new(true),
            log,
            copying: tokio::sync::Mutex::default(),
        })
    }

    /// The epoch, which grows whenever the store goes back to an earlier state.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch.unsigned_abs()
    }

    /// The id that distinguishes two masters with the same epoch; it changes only with the epoch.
    #[must_use]
    pub fn holder(&self) -> &str {
        &self.holder
    }

    /// The write-ahead log, which standbys follow: each change waits for them before it is
    /// answered.
    #[must_use]
    pub fn log(&self) -> Arc<Log> {
        Arc::clone(&self.log)
    }

    /// Returns once the store is readable and writable; changes nothing.
    ///
    /// # Errors
    /// The store cannot be read or written.
    pub async fn probe(&self) -> Result<(), StoreError> {
        sqlx::query("SELECT epoch FROM lineage")
            .fetch_one(&self.reader)
            .await?;
        self.writer.begin().await.map(drop)
    }

    /// Closes all connections and writes the write-ahead log into the file. So a stopped master
    /// leaves its store in one file, which an operator may copy or replace.
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
        // Keep connections as long as the store is open: SQLite ends the log with the last
        // connection, and then each standby needs a new base.
        .max_lifetime(None)
        .idle_timeout(None)
        .connect_with(options)
        .await
}

/// Opens the connection that writes.
async fn connect(path: &Path) -> Result<SqlitePool, sqlx::Error> {
    // The store checkpoints the log itself: see `writer`.
    pool(1, options(path).pragma("wal_autocheckpoint", "0")).await
}

/// Reads the settings back: a file system or an old library may have ignored them silently.
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
            why: "readers would block writers",
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

/// Creates the store's file for root only, because it records the reports of hosts and the actions
/// of operators. SQLite gives its side files the same mode.
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

/// Turns SQLite's "malformed" and "not a database" into messages with a remedy.
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
