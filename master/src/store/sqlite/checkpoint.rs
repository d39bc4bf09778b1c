//! Checkpoints: the log goes into the store's file when it is large, and when each standby has all
//! of it. SQLite's own would lose what a standby has not read.

use halite_errors::chain;

use super::SqliteStore;
use crate::store::StoreError;

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

    /// Writes the log into the store's file, unless a standby is copying that.
    pub(crate) async fn checkpoint(&self) -> Result<(), StoreError> {
        let Some(_still) = self.log.try_hold() else {
            return Ok(());
        };
        // Nothing is committed while this has the writer.
        let mut writer = self.writer.acquire().await?;
        self.log.reach_followers().await;
        let end = self.log.end()?;
        sqlx::query("PRAGMA wal_checkpoint(PASSIVE)")
            .execute(&mut *writer)
            .await?;
        if let Some(end) = end {
            self.log.note_complete(end.position);
        }
        Ok(())
    }
}
