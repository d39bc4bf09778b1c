//! The store's file on a standby, while no master has it open.

use std::path::Path;

use halite_durable::files;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};
use sqlx::{Connection as _, Row as _, SqliteConnection};

use super::backup::check_whole;
use super::files::{PRIVATE, beside};
use super::{explain, lineage, options};
use crate::StoreError;
use crate::epoch::EpochError;

/// Writes the log of a store that no process uses into its file; the log is gone then.
///
/// # Errors
/// It cannot be written; the log stays.
pub async fn fold_log(path: &Path) -> Result<(), StoreError> {
    let mut store = SqliteConnection::connect_with(&options(path)).await?;
    let row = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)")
        .fetch_one(&mut store)
        .await;
    let busy: i64 = row?.try_get(0)?;
    store.close().await?;
    if busy != 0 {
        return Err(StoreError::Corrupt(format!(
            "cannot write the log of {} into it: another process uses it",
            path.display()
        )));
    }
    Ok(())
}

/// Makes a store of the copies of another one's file and log, and checks all of it. It knows that it
/// is a copy. No other process may use it.
///
/// # Errors
/// They do not fit together, or a file cannot be written.
pub async fn finish_copy(path: &Path) -> Result<(), StoreError> {
    fold_log(path).await?;
    let alone = SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Memory);
    lineage::mark_copy(&alone).await?;
    check_whole(&alone).await
}

/// Makes a standby's copy the store of a new master: checks all of it and raises its epoch; answers
/// with the number of its starts. Jobs stay open: their minions say what became of them. Tokens are
/// void: the master before may have taken their uses. It may be repeated.
///
/// # Errors
/// The copy is damaged or cannot be written, or the store cannot count to this epoch.
pub async fn raise_epoch(path: &Path, epoch: u64) -> Result<i64, StoreError> {
    let epoch = i64::try_from(epoch).map_err(|_| EpochError::UsedUp(epoch))?;
    let options = options(path);
    let checked = check_whole(&options).await;
    checked.map_err(|error| explain(path, error))?;
    let mut store = SqliteConnection::connect_with(&options).await?;
    let mut transaction = store.begin_with("BEGIN IMMEDIATE").await?;
    sqlx::query("UPDATE lineage SET epoch = ?, is_copy = 0")
        .bind(epoch)
        .execute(&mut *transaction)
        .await?;
    sqlx::query("DELETE FROM tokens")
        .execute(&mut *transaction)
        .await?;
    let starts = sqlx::query_scalar("SELECT starts FROM lineage")
        .fetch_one(&mut *transaction)
        .await?;
    transaction.commit().await?;
    store.close().await?;
    fold_log(path).await?;
    Ok(starts)
}

/// Notes beside a store which epoch and number of starts it has: it has not gone back.
///
/// # Errors
/// The file cannot be written.
pub fn note_epoch(store: &Path, epoch: u64, starts: i64) -> Result<(), StoreError> {
    let text = format!("{epoch} {starts}\n");
    Ok(files::replace(
        &beside(store, ".epoch"),
        PRIVATE,
        text.as_bytes(),
    )?)
}

/// The epoch that a store of this place had last; 0 when there was none.
///
/// # Errors
/// The file cannot be read.
pub fn noted_epoch(store: &Path) -> Result<u64, StoreError> {
    let last = super::lineage::last(store)?;
    Ok(last.map_or(0, |(epoch, _)| epoch.unsigned_abs()))
}
