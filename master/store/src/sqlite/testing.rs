//! Operations of tests on a store: they hold its writer, limit its size, and make it refuse writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sqlx::Row as _;

use super::{Store, StoreError};

impl Store {
    /// Simulates a full file system: the file may not grow beyond its current size, or, with
    /// `pages`, beyond that many pages. Returns the previous limit.
    pub async fn limit_pages(&self, pages: Option<i64>) -> i64 {
        let number = async |sql: String| -> i64 {
            let row = sqlx::query(sqlx::AssertSqlSafe(sql))
                .fetch_one(self.writer.pool())
                .await
                .unwrap();
            row.try_get(0).unwrap()
        };
        let before = number("PRAGMA max_page_count".to_owned()).await;
        let now = number("PRAGMA page_count".to_owned()).await;
        number(format!("PRAGMA max_page_count = {}", pages.unwrap_or(now))).await;
        before
    }

    /// Records a migration that this program does not know, as a newer one does.
    pub async fn record_unknown_migration(&self) {
        let sql = "UPDATE _sqlx_migrations SET version = 1000 \
             WHERE version = (SELECT max(version) FROM _sqlx_migrations)";
        let recorded = sqlx::query(sql).execute(self.writer.pool());
        recorded.await.unwrap();
    }

    /// Refuses writes, as if the disk were full: those that `what`, the event, table and condition
    /// of SQLite's `CREATE TRIGGER`, describes. Returns a receiver of the number of refused writes
    /// so far.
    pub async fn refuse(&self, what: &str) -> tokio::sync::watch::Receiver<u32> {
        let (count, refused) = tokio::sync::watch::channel(0);
        let mut writer = self.writer.pool().acquire().await.unwrap();
        for statement in [
            "CREATE TABLE refused (n)".to_owned(),
            format!(
                "CREATE TRIGGER refuse BEFORE {what} BEGIN INSERT INTO refused VALUES (1); SELECT RAISE(FAIL, 'no room'); END"
            ),
        ] {
            let done = sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&mut *writer);
            done.await.unwrap();
        }
        // The row is rolled back with the refused transaction; the hook has seen it.
        let mut handle = writer.lock_handle().await.unwrap();
        handle.set_update_hook(move |change| {
            if change.table == "refused" {
                count.send_modify(|count| *count += 1);
            }
        });
        refused
    }

    /// Ends the refusal of writes.
    pub async fn refuse_no_more(&self) {
        let mut writer = self.writer.pool().acquire().await.unwrap();
        for statement in ["DROP TRIGGER refuse", "DROP TABLE refused"] {
            let done = sqlx::query(statement).execute(&mut *writer);
            done.await.unwrap();
        }
    }

    /// Returns the number of commits from now on.
    pub async fn count_commits(&self) -> Arc<AtomicUsize> {
        let commits: Arc<AtomicUsize> = Arc::default();
        let counter = Arc::clone(&commits);
        let mut writer = self.writer.pool().acquire().await.unwrap();
        let mut handle = writer.lock_handle().await.unwrap();
        handle.set_commit_hook(move || {
            counter.fetch_add(1, Ordering::SeqCst);
            true
        });
        commits
    }

    /// The number of pages in the store's log; a checkpoint begins a new log.
    pub fn log_pages(&self) -> u32 {
        let end = self.log.end().unwrap();
        end.map_or(0, |end| end.position.frames)
    }

    /// Makes texts unreadable, so that a test notices a query that reads them without need.
    pub async fn spoil(&self, table_and_columns: &[(&str, &[&str])]) {
        for (table, columns) in table_and_columns {
            for column in *columns {
                let sql = format!("UPDATE {table} SET {column} = CAST(x'ff' AS TEXT)");
                let done = sqlx::query(sqlx::AssertSqlSafe(sql)).execute(self.writer.pool());
                done.await.unwrap();
            }
        }
    }

    /// Writes the log into the store's file, as happens with a large log after a commit.
    pub async fn checkpoint(&self) -> Result<(), StoreError> {
        self.writer.checkpoint().await
    }

    /// Holds the only writer, so that every change waits until this is dropped.
    pub async fn hold_writer(&self) -> sqlx::pool::PoolConnection<sqlx::Sqlite> {
        self.writer.pool().acquire().await.unwrap()
    }
}
