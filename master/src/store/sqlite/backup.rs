//! The backup of the store: `store.db.backup` beside it, written whole or not at all.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use halite_errors::chain;

use super::{SqliteStore, StoreError};

/// Interval between two backups of a running master.
const EVERY: Duration = Duration::from_secs(24 * 60 * 60);

pub(super) fn backup_path(path: &Path) -> PathBuf {
    beside(path, ".backup")
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// What to do about a store that cannot be used.
pub(super) fn advice(path: &Path) -> String {
    let shown = path.display();
    let good = backup_path(path);
    let Ok(found) = std::fs::metadata(&good) else {
        return format!(
            "There is no backup beside it. Put back a copy of {shown}, or move the file away to begin with an empty \
             store: accepted minions then have to be accepted again"
        );
    };
    let age = found
        .modified()
        .ok()
        .and_then(|time| jiff::Timestamp::try_from(time).ok());
    let when = age.map_or_else(|| "an unknown time".to_owned(), |time| format!("{time:.0}"));
    format!(
        "The last backup is of {when}; to go back to it: systemctl stop halite-master; mkdir -p {shown}.damaged; \
         mv {shown} {shown}-wal {shown}-shm {shown}.damaged/; cp -p {} {shown}; systemctl start halite-master",
        good.display()
    )
}

impl SqliteStore {
    /// Copies the store as it is now to `store.db.backup`, replacing the copy before only when the
    /// new one is complete and on disk.
    ///
    /// # Errors
    /// The copy could not be written; the one before stays.
    pub async fn write_backup(&self) -> Result<(), StoreError> {
        let new = beside(&self.path, ".backup.new");
        let copied = self.copy(&new).await;
        if copied.is_err() {
            // Half a copy must not hold the room that the store needs.
            let _ = std::fs::remove_file(&new);
        }
        copied
    }

    async fn copy(&self, new: &Path) -> Result<(), StoreError> {
        let file_error = |path: &Path| {
            let path = path.display().to_string();
            move |source| StoreError::File {
                action: "write",
                path,
                source,
            }
        };
        // SQLite vacuums only into an absent or empty file; made here to be private from the start.
        std::fs::OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(new)
            .map_err(file_error(new))?;
        sqlx::query("VACUUM INTO ?")
            .bind(new.display().to_string())
            .execute(&self.writer)
            .await?;
        let good = backup_path(&self.path);
        let copied = std::fs::File::open(new).and_then(|file| file.sync_all());
        copied
            .and_then(|()| std::fs::rename(new, &good))
            .map_err(file_error(&good))?;
        let directory = good.parent().unwrap_or(Path::new("."));
        std::fs::File::open(directory)
            .and_then(|d| d.sync_all())
            .map_err(file_error(directory))
    }
}

/// Keeps a good copy every day until dropped; a failure is logged and tried again the next day.
pub async fn write_backups(store: Arc<SqliteStore>) {
    let mut days = tokio::time::interval_at(tokio::time::Instant::now() + EVERY, EVERY);
    loop {
        days.tick().await;
        match store.write_backup().await {
            Ok(()) => tracing::info!("kept a good copy of the store"),
            Err(error) => tracing::error!(
                error = chain(&error),
                "could not keep a good copy of the store"
            ),
        }
    }
}
