//! The epoch of the store, and the consequences of a store that has gone back to an earlier state.
//!
//! A file beside the store records the store's last epoch and number of starts. A store with lower
//! numbers, or that is marked as a copy, has gone back: minions and keys may have changed since
//! without its knowledge. Then the epoch grows, and nothing is repeated.

use std::path::{Path, PathBuf};

use halite_durable::files;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use sqlx::{Connection as _, Row as _, SqliteConnection};

use super::files::{PRIVATE, beside, read};
use super::{StoreError, revoked};
use crate::epoch::EpochError;

/// The error of each part of a job that had not ended.
const WENT_BACK: &str = "the master's store went back to an earlier state: it is unknown whether this part has run since; run it again";

/// Statements that end all open work of a store that has gone back. They use the times of the jobs,
/// because the copy does not know when it was restored.
const SETTLE: [&str; 6] = [
    "UPDATE job_rows SET state = 'lost', error = ?1, \
       ended = (SELECT created FROM jobs WHERE jobs.jid = job_rows.jid) \
     WHERE state IN ('queued', 'sent', 'started')",
    "UPDATE jobs SET status = 'finished', retcode = 1, finished = created WHERE status = 'running'",
    "UPDATE steps SET status = 'failed', detail_json = json_set(detail_json, '$.error', ?1) \
     WHERE status = 'running' AND run IN (SELECT id FROM runs WHERE status = 'running')",
    "UPDATE steps SET status = 'skipped' \
     WHERE status = 'waiting' AND run IN (SELECT id FROM runs WHERE status = 'running')",
    "UPDATE runs SET status = 'failed' WHERE status = 'running'",
    // Their uses may have been taken since then.
    "DELETE FROM tokens",
];

/// Creates the holder of an epoch that starts now, from the current name of the host.
fn new_holder(random: &str) -> String {
    let system = rustix::system::uname();
    format!("{}-{random}", system.nodename().to_string_lossy())
}

fn noted(path: &Path) -> PathBuf {
    beside(path, ".epoch")
}

/// The last recorded epoch and number of starts of the store at this path; `None` without a record.
///
/// # Errors
/// There is a record and it cannot be read.
pub(super) fn last(path: &Path) -> Result<Option<(i64, i64)>, StoreError> {
    let Some(text) = read(&noted(path))? else {
        return Ok(None);
    };
    let numbers = text.trim().split_once(' ');
    let numbers = numbers.and_then(|(epoch, starts)| epoch.parse().ok().zip(starts.parse().ok()));
    let damaged = || StoreError::Record(noted(path).display().to_string());
    numbers.map(Some).ok_or_else(damaged)
}

/// Marks a copy of the store as a copy.
pub(super) async fn mark_copy(options: &SqliteConnectOptions) -> Result<(), StoreError> {
    let mut copy = SqliteConnection::connect_with(options).await?;
    sqlx::query("UPDATE lineage SET is_copy = 1")
        .execute(&mut copy)
        .await?;
    Ok(copy.close().await?)
}

/// Counts this start, and ends all open work if the store has gone back. Recorded revocations apply
/// in any case. Returns the epoch and its holder.
pub(super) async fn begin(path: &Path, writer: &SqlitePool) -> Result<(i64, String), StoreError> {
    // Take the lock from the start: the previous master may still write, and a transaction that has
    // already read does not wait for it.
    let mut transaction = writer.begin_with("BEGIN IMMEDIATE").await?;
    let row = sqlx::query(
            "SELECT epoch, starts, is_copy, holder, holder_epoch, lower(hex(randomblob(8))) FROM lineage",
        )
        .fetch_one(&mut *transaction)
        .await?;
    let (epoch, starts): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    let last = last(path)?;
    let went_back = row.try_get(2)? || last.is_some_and(|last| (epoch, starts) < last);
    let (known, started) = last.unwrap_or_default();
    let epoch = epoch.max(known);
    let raised = epoch.checked_add(i64::from(went_back));
    let epoch = raised.ok_or(EpochError::UsedUp(epoch.unsigned_abs()))?;
    let holder = if row.try_get::<i64, _>(4)? == epoch {
        row.try_get(3)?
    } else {
        new_holder(row.try_get(5)?)
    };
    let starts = starts.max(started) + 1;
    sqlx::query(
        "UPDATE lineage SET epoch = ?1, starts = ?2, is_copy = 0, holder = ?3, holder_epoch = ?1",
    )
    .bind(epoch)
    .bind(starts)
    .bind(&holder)
    .execute(&mut *transaction)
    .await?;
    if went_back {
        for statement in SETTLE {
            sqlx::query(statement)
                .bind(WENT_BACK)
                .execute(&mut *transaction)
                .await?;
        }
        tracing::warn!(
            epoch,
            "the store went back to an earlier state: its open jobs have ended, tokens are void, keys that \
                 were accepted since are unknown"
        );
    }
    revoked::merge(path, &mut transaction).await?;
    transaction.commit().await?;
    // After the store: if the process ends in between, it must not look as if the store had gone
    // back.
    files::replace(
        &noted(path),
        PRIVATE,
        format!("{epoch} {starts}\n").as_bytes(),
    )?;
    Ok((epoch, holder))
}
