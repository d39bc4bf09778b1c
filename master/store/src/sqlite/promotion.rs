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

/// Writes the log of a store that no process uses into its file, and removes the log.
///
/// # Errors
/// The log cannot be written into the file; the log stays.
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

/// Creates a store from copies of another store's file and log, checks all of it, and marks it as a
/// copy. No other process may use it.
///
/// # Errors
/// The copies do not match, or a file cannot be written.
pub async fn finish_copy(path: &Path) -> Result<(), StoreError> {
    fold_log(path).await?;
    let alone = SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Memory);
    lineage::mark_copy(&alone).await?;
    check_whole(&alone).await
}

/// Makes a standby's copy the store of a new master: checks all of it and raises its epoch; returns
/// the number of its starts. Jobs stay open: their minions report their state. Tokens become void,
/// because the previous master may have taken their uses. It may be repeated.
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

/// Records beside a store its epoch and number of starts, so that it does not count as gone back.
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

/// The last recorded epoch of the store at this path; 0 if there is no record.
///
/// # Errors
/// The file cannot be read.
pub fn noted_epoch(store: &Path) -> Result<u64, StoreError> {
    let last = super::lineage::last(store)?;
    Ok(last.map_or(0, |(epoch, _)| epoch.unsigned_abs()))
}
