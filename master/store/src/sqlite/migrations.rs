//! The migrations that a store records, compared with those that this program knows.

use std::path::Path;

use halite_durable::files;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Connection as _, SqliteConnection};

use super::files::beside;
use super::{MIGRATIONS, explain};
use crate::StoreError;

/// Refuses a store that a newer program has migrated. No other process may use it. No file changes
/// and none is left, so a standby's copy can be continued afterwards.
///
/// # Errors
/// The store has a migration that this program does not know ([`StoreError::Newer`]), or cannot be
/// read.
pub async fn check_migrations(path: &Path) -> Result<(), StoreError> {
    // SQLite creates those that are missing, and a connection that only reads leaves them behind.
    let mut made = ["-wal", "-shm"].map(|suffix| beside(path, suffix)).to_vec();
    made.retain(|file| !file.exists());
    let checked = check_at_rest(path).await;
    for file in made {
        files::remove_any(&file)?;
    }
    checked
}

async fn check_at_rest(path: &Path) -> Result<(), StoreError> {
    // A connection that can write would write the log into the file when it is closed.
    let options = SqliteConnectOptions::new().filename(path).read_only(true);
    let mut store = SqliteConnection::connect_with(&options).await?;
    let checked = refuse_newer(path, &mut store).await;
    store.close().await?;
    checked
}

/// Refuses the store of this connection, like [`check_migrations`].
pub(super) async fn refuse_newer(
    path: &Path,
    store: &mut SqliteConnection,
) -> Result<(), StoreError> {
    let last = last_migration(store).await;
    let last = last.map_err(|error| explain(path, error.into()))?;
    let versions = MIGRATIONS.iter().map(|(version, _, _)| *version);
    let known = versions.max().unwrap_or_default();
    if last > known {
        return Err(StoreError::Newer {
            path: path.display().to_string(),
            last,
            known,
        });
    }
    Ok(())
}

/// The number of the last migration; 0 if the store is empty.
async fn last_migration(store: &mut SqliteConnection) -> Result<i64, sqlx::Error> {
    let table = "SELECT count(*) FROM sqlite_master WHERE name = '_sqlx_migrations'";
    let tables: i64 = sqlx::query_scalar(table).fetch_one(&mut *store).await?;
    if tables == 0 {
        return Ok(0);
    }
    let last = "SELECT coalesce(max(version), 0) FROM _sqlx_migrations";
    sqlx::query_scalar(last).fetch_one(store).await
}
