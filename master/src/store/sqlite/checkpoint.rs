//! Checkpoints: the log goes into the store's file when it is large, and when each standby has all
//! of it. SQLite's own would lose what a standby has not read.

use std::sync::Arc;

use halite_errors::chain;
use sqlx::Row as _;
use sqlx::sqlite::SqlitePool;

use super::SqliteStore;
use crate::store::StoreError;
use crate::store::log::Log;

/// The frames of a large log: SQLite's own limit.
const LARGE: u32 = 1000;

impl SqliteStore {
    /// Ends a write: it is on each connected standby when this returns.
    pub(super) async fn ended<T>(
        &self,
        write: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let written = write.await;
        self.log.reach_followers().await;
        let large = self.log.end();
        match large {
            Ok(Some(end)) if end.position.frames >= LARGE => {
                if let Err(error) = self.checkpoint().await {
                    // The log grows; the next write tries again.
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
        written
    }

    /// Writes the log into the store's file, unless a standby is copying that. It ends also when its
    /// caller is gone: a standby can continue its copy only over a checkpoint that was noted.
    pub(crate) async fn checkpoint(&self) -> Result<(), StoreError> {
        let (log, writer) = (Arc::clone(&self.log), self.writer.clone());
        let done = tokio::spawn(async move { checkpoint(&log, &writer).await });
        // Cancelled: the master is stopping.
        done.await.unwrap_or(Ok(()))
    }
}

async fn checkpoint(log: &Log, writer: &SqlitePool) -> Result<(), StoreError> {
    let Some(_still) = log.try_hold() else {
        return Ok(());
    };
    // Nothing is committed while this has the writer.
    let mut writer = writer.acquire().await?;
    log.reach_followers().await;
    let Some(end) = log.end()? else {
        return Ok(());
    };
    // Until the answer is there, SQLite may begin the next log over one that no note describes.
    let before = log.note_complete(None);
    let row = sqlx::query("PRAGMA wal_checkpoint(PASSIVE)")
        .fetch_one(&mut *writer)
        .await?;
    let (busy, frames, written): (i64, i64, i64) =
        (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    // A reader of an earlier commit leaves a part of the log for the next checkpoint; so the log goes
    // on, and is still the one that follows the end before.
    let is_whole = busy == 0 && written == frames && frames == i64::from(end.position.frames);
    log.note_complete(if is_whole { Some(end.position) } else { before });
    Ok(())
}
