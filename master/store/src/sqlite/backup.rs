//! The backup of the store, `store.db.backup` beside it, which is written atomically.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use halite_durable::files;
use halite_errors::chain;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};
use sqlx::{Connection as _, Row as _, SqliteConnection};

use super::files::{beside, file_error};
use super::{Store, StoreError, explain, lineage, options};

/// Interval between two backups of a running master.
const EVERY: Duration = Duration::from_secs(24 * 60 * 60);

pub(super) fn backup_path(path: &Path) -> PathBuf {
    beside(path, ".backup")
}

/// The remedy for an unusable store.
pub(super) fn advice(path: &Path) -> String {
    let shown = path.display();
    let good = backup_path(path);
    let Ok(found) = std::fs::metadata(&good) else {
        return format!(
            "There is no backup beside it. Restore a copy of {shown}, or move the file away to start with an empty \
             store: all minions must then be accepted again"
        );
    };
    let age = found
        .modified()
        .ok()
        .and_then(|time| jiff::Timestamp::try_from(time).ok());
    let when = age.map_or_else(|| "an unknown time".to_owned(), |time| format!("{time:.0}"));
    format!(
        "The last backup was made at {when}; to restore it: systemctl stop halite-master; mkdir -p {shown}.damaged; \
         mv {shown} {shown}-wal {shown}-shm {shown}.damaged/; cp -p {} {shown}; systemctl start halite-master",
        good.display()
    )
}

/// The mark of a store in which damage was found while it was in use: the next start reads all of
/// it.
fn suspect(path: &Path) -> PathBuf {
    beside(path, ".suspect")
}

impl Store {
    /// Reads the whole file on a connection of its own: pages, indexes, constraints. Writers and
    /// readers continue.
    ///
    /// # Errors
    /// The file is damaged, or cannot be read. For a damaged file, the text contains the commands
    /// that restore the copy, and the next start refuses the file.
    pub async fn check(&self) -> Result<(), StoreError> {
        let options = options(&self.path).pragma("query_only", "on");
        let checked = check_whole(&options).await;
        let checked = checked.map_err(|error| explain(&self.path, error));
        if let Err(StoreError::Corrupt(_)) = checked {
            let mark = suspect(&self.path);
            std::fs::write(&mark, "").map_err(file_error("write", &mark))?;
        }
        checked
    }

    /// Copies the store in its current state, and returns the path of the copy. A store that is
    /// opened from the copy has gone back to an earlier state. The next copy replaces the file
    /// atomically.
    ///
    /// # Errors
    /// The copy could not be written; the previous copy stays.
    pub async fn copy(&self) -> Result<PathBuf, StoreError> {
        self.write_backup().await?;
        Ok(backup_path(&self.path))
    }

    /// Copies the store in its current state to `store.db.backup`. Replaces the previous copy only
    /// once the new one is complete, valid and on disk. Writers and readers continue.
    ///
    /// # Errors
    /// The copy could not be written; the previous copy stays.
    pub async fn write_backup(&self) -> Result<(), StoreError> {
        // The daily copy and an operator's copy use the same file.
        let _one_at_a_time = self.copying.lock().await;
        let new = beside(&self.path, ".backup.new");
        let copied = self.copy_to(&new).await;
        if copied.is_err() {
            // Half a copy must not take up the space that the store needs.
            let _ = std::fs::remove_file(&new);
        }
        copied
    }

    async fn copy_to(&self, new: &Path) -> Result<(), StoreError> {
        // SQLite vacuums only into an absent or empty file; create it here, so that it is private
        // from the start.
        std::fs::OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(new)
            .map_err(file_error("write", new))?;
        // On a connection of its own: it reads one snapshot and blocks no writer.
        let mut source = SqliteConnection::connect_with(&options(&self.path)).await?;
        let copied = sqlx::query("VACUUM INTO ?")
            .bind(new.display().to_string())
            .execute(&mut source)
            .await;
        source.close().await?;
        copied?;
        let alone = SqliteConnectOptions::new()
            .filename(new)
            .journal_mode(SqliteJournalMode::Memory);
        lineage::mark_copy(&alone).await?;
        check_whole(&alone).await?;
        let (new, good) = (new.to_owned(), backup_path(&self.path));
        let placed = tokio::task::spawn_blocking(move || Ok(files::publish(&new, &good)?));
        // The runtime is ending: the previous copy stays.
        placed.await.unwrap_or(Ok(()))
    }
}

/// Checks a store in which damage was found earlier: it may have been replaced since.
pub(super) async fn check_suspect(path: &Path) -> Result<(), StoreError> {
    let mark = suspect(path);
    if !mark.exists() {
        return Ok(());
    }
    check_whole(&options(path)).await?;
    std::fs::remove_file(&mark).map_err(file_error("remove", &mark))
}

/// Runs SQLite's own check of a whole file.
pub(super) async fn check_whole(options: &SqliteConnectOptions) -> Result<(), StoreError> {
    let mut connection = SqliteConnection::connect_with(options).await?;
    let rows = sqlx::query("PRAGMA integrity_check(3)")
        .fetch_all(&mut connection)
        .await;
    connection.close().await?;
    let lines: Vec<String> = rows?
        .iter()
        .map(|row| row.try_get(0))
        .collect::<Result<_, _>>()?;
    if lines == ["ok"] {
        Ok(())
    } else {
        Err(StoreError::Corrupt(lines.join("; ")))
    }
}

/// Checks the store and makes a good copy, immediately and then every day; ends when the store is
/// damaged. A failed copy is logged and retried the next day.
pub async fn keep_good(store: Arc<Store>) -> StoreError {
    let mut days = tokio::time::interval(EVERY);
    loop {
        days.tick().await;
        // In this order: a damaged store must not replace a good copy.
        let kept = match store.check().await {
            Ok(()) => store.write_backup().await,
            Err(error @ StoreError::Corrupt(_)) => return error,
            other => other,
        };
        match kept {
            Ok(()) => tracing::info!("made a good copy of the store"),
            Err(error) => tracing::error!(
                error = chain(&error),
                "cannot make a good copy of the store"
            ),
        }
    }
}
