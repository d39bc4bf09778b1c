//! The only writer of the store. A commit is on each standby that follows before its caller is
//! notified, so no answer of the master is lost with its host.
//!
//! Checkpoints: the log is written into the store's file once it is large and each standby has all
//! of it. SQLite's own checkpoint would lose the part that a standby has not read.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use halite_errors::chain;
use prometheus_client::metrics::histogram::Histogram;
use sqlx::sqlite::SqlitePool;
use sqlx::{Row as _, Sqlite, SqliteConnection, Transaction};
use tokio::time::Instant;

use crate::StoreError;
use crate::log::Log;

/// The number of frames of a large log: SQLite's own limit.
const LARGE: u32 = 1000;
/// The upper bounds of the durations of commits, in seconds: from a fast disk to a standby that
/// does not answer.
const DURATIONS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0, 10.0];

/// The connection that writes. Writers queue for it instead of failing with "busy".
#[derive(Clone)]
pub(super) struct Writer {
    pool: SqlitePool,
    log: Arc<Log>,
    /// The durations of commits, in seconds.
    durations: Histogram,
}

impl Writer {
    /// Creates a writer over the only connection of this pool.
    pub(super) fn new(pool: SqlitePool, log: Arc<Log>) -> Self {
        Self {
            pool,
            log,
            durations: Histogram::new(DURATIONS),
        }
    }

    /// Starts a change, once the previous changes have ended.
    pub(super) async fn begin(&self) -> Result<Write, StoreError> {
        Ok(Write {
            transaction: self.pool.begin().await?,
            writer: self.clone(),
        })
    }

    /// The durations of commits, in seconds.
    pub(super) fn durations(&self) -> Histogram {
        self.durations.clone()
    }

    /// Closes the connection, which ends the log.
    pub(super) async fn close(&self) {
        self.pool.close().await;
    }

    /// Writes the log into the store's file, unless a standby is copying that file. It ends even if
    /// its caller is gone: a standby can continue its copy only over a recorded checkpoint.
    pub(super) async fn checkpoint(&self) -> Result<(), StoreError> {
        let writer = self.clone();
        let done = tokio::spawn(async move { checkpoint(&writer.log, &writer.pool).await });
        // The task was cancelled: the master is stopping.
        done.await.unwrap_or(Ok(()))
    }

    /// Checkpoints a large log.
    async fn shorten(&self) {
        match self.log.end() {
            Ok(Some(end)) if end.position.frames >= LARGE => {
                if let Err(error) = self.checkpoint().await {
                    // The log grows; the next write retries.
                    tracing::error!(error = chain(&error), "cannot checkpoint the store's log");
                }
            }
            Ok(_) => {}
            Err(error) => {
                tracing::error!(
                    error = chain(&error),
                    "cannot read the end of the store's log"
                );
            }
        }
    }

    #[cfg(any(test, feature = "testing"))]
    pub(super) fn pool(&self) -> &SqlitePool {
        &self.pool
    }
}

/// A change that is not stored yet. Dropping it without a commit rolls it back.
#[must_use = "nothing is stored without a commit"]
pub(super) struct Write {
    transaction: Transaction<'static, Sqlite>,
    writer: Writer,
}

impl Write {
    /// Commits, and returns when the change is on disk and on each standby that follows. A
    /// transaction that changed nothing waits as well: it may have read a commit that a standby
    /// does not have yet.
    pub(super) async fn commit(self) -> Result<(), StoreError> {
        let begun = Instant::now();
        let committed = self.transaction.commit().await;
        self.writer.log.reach_followers().await;
        let took = begun.elapsed().as_secs_f64();
        self.writer.durations.observe(took);
        self.writer.shorten().await;
        Ok(committed?)
    }
}

impl Deref for Write {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        &self.transaction
    }
}

impl DerefMut for Write {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        &mut self.transaction
    }
}

async fn checkpoint(log: &Log, writer: &SqlitePool) -> Result<(), StoreError> {
    let Some(_still) = log.try_hold() else {
        return Ok(());
    };
    // Nothing is committed while this holds the writer.
    let mut writer = writer.acquire().await?;
    log.reach_followers().await;
    let Some(end) = log.end()? else {
        return Ok(());
    };
    // Until the result is known, SQLite may start the next log over one whose end is not recorded.
    let before = log.note_complete(None);
    let row = sqlx::query("PRAGMA wal_checkpoint(PASSIVE)")
        .fetch_one(&mut *writer)
        .await?;
    let (busy, frames, written): (i64, i64, i64) =
        (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    // A reader of an earlier commit leaves a part of the log for the next checkpoint; then the log
    // continues, and still follows the previous end.
    let is_whole = busy == 0 && written == frames && frames == i64::from(end.position.frames);
    log.note_complete(if is_whole { Some(end.position) } else { before });
    Ok(())
}
