//! Changes of minions' parts of jobs, and minions' reports about themselves, written in batches:
//! changes that arrive during a commit share the next one. A hundred minions that connect, answer a
//! ping or cannot be reached at once would otherwise wait for a hundred commits, one after the
//! other.

use std::sync::{Arc, Mutex, PoisonError};

use halite_proto::ids::{JobId, MinionId};
use sqlx::SqliteConnection;
use tokio::sync::oneshot;

use super::Store;
use super::events::{write_facts, write_last_seen};
use super::jobs::{finish_job, write_return};
use super::writer::{Write, Writer};
use crate::records::{Facts, StoredAnswer};
use crate::{Millis, StoreError};

type Outcome<T> = Result<T, StoreError>;

const SENT: &str = "UPDATE job_rows SET state = 'sent', sent = ? \
                    WHERE jid = ? AND minion = ? AND state = 'queued'";
const STARTED: &str = "UPDATE job_rows SET state = 'started', started = ? \
                       WHERE jid = ? AND minion = ? AND state IN ('queued', 'sent')";

const LOST: &str = "UPDATE job_rows SET state = 'lost', error = ?, retcode = ?, ended = ? \
                    WHERE jid = ? AND minion = ? AND state IN ('queued', 'sent', 'started')";

/// The return code of an interrupted job.
const INTERRUPTED: i32 = 2;

/// A change that can share a commit with others.
#[derive(Debug, Clone)]
enum SmallChange {
    /// A change of a minion's part of a job.
    Row(JobId, MinionId, RowChange),
    /// A minion's report about itself.
    Facts(Facts),
    /// The time of a minion's last message.
    LastSeen(MinionId, Millis),
}

/// A change of one row.
#[derive(Debug, Clone)]
enum RowChange {
    /// The row was sent.
    Sent(Millis),
    /// The minion started it.
    Started(Millis),
    /// The minion answered.
    Returned(StoredAnswer),
    /// The minion answered, and the job is finished if no other answer is missing.
    LastReturned(StoredAnswer),
    /// The answer did not arrive.
    Lost {
        /// The reason.
        why: String,
        /// The return code of an interrupted job.
        retcode: Option<i32>,
        /// The time at which this was found.
        now: Millis,
    },
}

/// A change that waits to be written, with its caller.
struct Waiting {
    change: SmallChange,
    caller: oneshot::Sender<Outcome<bool>>,
}

/// The waiting changes, in order of arrival.
#[derive(Default)]
pub(super) struct RowChanges(Mutex<Vec<Waiting>>);

impl RowChanges {
    fn take(&self) -> Vec<Waiting> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds a change; returns `true` if no other change waits.
    fn add(&self, waiting: Waiting) -> bool {
        let mut changes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        changes.push(waiting);
        changes.len() == 1
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl Store {
    /// Marks a queued row as sent; returns `false` if it was already past that state.
    pub async fn mark_sent(&self, job_id: &JobId, minion: &MinionId, now: Millis) -> Outcome<bool> {
        self.change_row(job_id, minion, RowChange::Sent(now)).await
    }

    /// Marks a queued or sent row as started; returns `false` if it was already past that state.
    pub async fn mark_started(
        &self,
        job_id: &JobId,
        minion: &MinionId,
        now: Millis,
    ) -> Outcome<bool> {
        self.change_row(job_id, minion, RowChange::Started(now))
            .await
    }

    /// Stores the answer of a queued, sent, started or lost row; returns `false`, with nothing
    /// stored, if the row already has an answer (a repeated return) or does not exist. A late
    /// answer updates the return code of a finished job.
    pub async fn record_return(
        &self,
        job_id: &JobId,
        minion: &MinionId,
        answer: &StoredAnswer,
    ) -> Outcome<bool> {
        let change = RowChange::Returned(answer.clone());
        self.change_row(job_id, minion, change).await
    }

    /// Like [`Store::record_return`], but also finishes the job in the same transaction, like
    /// [`Store::finish_job`], if no part of it remains open: its return code is 0 if every part was
    /// returned with 0, otherwise 1.
    pub async fn record_last_return(
        &self,
        job_id: &JobId,
        minion: &MinionId,
        answer: &StoredAnswer,
    ) -> Outcome<bool> {
        let change = RowChange::LastReturned(answer.clone());
        self.change_row(job_id, minion, change).await
    }

    /// Marks a queued, sent or started row as lost, with the reason as its error; returns `false`
    /// if the row has already ended.
    pub async fn mark_lost(
        &self,
        job_id: &JobId,
        minion: &MinionId,
        why: &str,
        now: Millis,
    ) -> Outcome<bool> {
        let (why, retcode) = (why.to_owned(), None);
        let change = RowChange::Lost { why, retcode, now };
        self.change_row(job_id, minion, change).await
    }

    /// Like [`Store::mark_lost`], with the return code of an interrupted job: its minion no longer
    /// knows the job.
    pub async fn mark_interrupted(
        &self,
        job_id: &JobId,
        minion: &MinionId,
        why: &str,
        now: Millis,
    ) -> Outcome<bool> {
        let (why, retcode) = (why.to_owned(), Some(INTERRUPTED));
        let change = RowChange::Lost { why, retcode, now };
        self.change_row(job_id, minion, change).await
    }

    /// Stores a minion's report about itself.
    pub async fn put_facts(&self, facts: &Facts) -> Outcome<()> {
        let change = SmallChange::Facts(facts.clone());
        self.write_with_others(change).await.map(drop)
    }

    /// Sets the time of a minion's last message; without facts this does nothing.
    pub async fn touch(&self, minion: &MinionId, now: Millis) -> Outcome<()> {
        let change = SmallChange::LastSeen(minion.clone(), now);
        self.write_with_others(change).await.map(drop)
    }

    /// Changes a row, and returns when the change is stored. `false` means that the row's state did
    /// not allow the change.
    async fn change_row(
        &self,
        job_id: &JobId,
        minion: &MinionId,
        change: RowChange,
    ) -> Outcome<bool> {
        let change = SmallChange::Row(job_id.clone(), minion.clone(), change);
        self.write_with_others(change).await
    }

    /// Writes a change together with those that wait for the writer at the same time.
    async fn write_with_others(&self, change: SmallChange) -> Outcome<bool> {
        let (caller, written) = oneshot::channel();
        let is_first = self.row_changes.add(Waiting { change, caller });
        if is_first {
            // A separate task, because a caller that is cancelled must not cancel the changes of
            // others. It also writes the changes that arrive until it has the writer.
            let (writer, changes) = (self.writer.clone(), Arc::clone(&self.row_changes));
            tokio::spawn(async move { write_waiting(&writer, &changes).await });
        }
        written
            .await
            .unwrap_or(Err(StoreError::Database(sqlx::Error::WorkerCrashed)))
    }
}

/// Writes all waiting changes, as soon as the writer is free.
async fn write_waiting(writer: &Writer, changes: &RowChanges) {
    let write = writer.begin().await;
    let batch = changes.take();
    let write = match write {
        Ok(write) => write,
        Err(error) => {
            // The writer is gone or busy for too long: the waiting changes must be repeated.
            let mut waiting = batch.into_iter();
            if let Some(first) = waiting.next() {
                first.caller.send(Err(error)).ok();
            }
            for other in waiting {
                let closed = StoreError::Database(sqlx::Error::PoolTimedOut);
                other.caller.send(Err(closed)).ok();
            }
            return;
        }
    };
    match write_batch(write, &batch).await {
        Ok(written) => {
            for (waiting, written) in batch.into_iter().zip(written) {
                waiting.caller.send(Ok(written)).ok();
            }
        }
        // One of the changes cannot be stored, for example because it is too large: store each
        // separately.
        Err(_) => {
            for waiting in batch {
                let written = write_alone(writer, &waiting).await;
                waiting.caller.send(written).ok();
            }
        }
    }
}

async fn write_alone(writer: &Writer, waiting: &Waiting) -> Outcome<bool> {
    let write = writer.begin().await?;
    let written = write_batch(write, std::slice::from_ref(waiting)).await?;
    Ok(written.into_iter().any(|done| done))
}

/// Writes changes in one transaction.
async fn write_batch(mut write: Write, batch: &[Waiting]) -> Outcome<Vec<bool>> {
    let mut written = Vec::with_capacity(batch.len());
    for waiting in batch {
        written.push(match &waiting.change {
            SmallChange::Row(job_id, minion, change) => {
                write_row_change(&mut write, job_id, minion, change).await?
            }
            SmallChange::Facts(facts) => {
                write_facts(&mut write, facts).await?;
                true
            }
            SmallChange::LastSeen(minion, now) => {
                write_last_seen(&mut write, minion, *now).await?;
                true
            }
        });
    }
    write.commit().await?;
    Ok(written)
}

async fn write_row_change(
    to: &mut SqliteConnection,
    job_id: &JobId,
    minion: &MinionId,
    change: &RowChange,
) -> Outcome<bool> {
    match change {
        RowChange::Sent(now) => advance(to, SENT, job_id, minion, *now).await,
        RowChange::Started(now) => advance(to, STARTED, job_id, minion, *now).await,
        RowChange::Returned(answer) => write_return(to, job_id, minion, answer).await,
        RowChange::LastReturned(answer) => {
            let first = write_return(to, job_id, minion, answer).await?;
            finish_job(to, job_id, answer.when).await?;
            Ok(first)
        }
        RowChange::Lost { why, retcode, now } => {
            let done = sqlx::query(LOST)
                .bind(why)
                .bind(retcode)
                .bind(now)
                .bind(job_id.as_str())
                .bind(minion.as_str())
                .execute(to)
                .await?;
            Ok(done.rows_affected() > 0)
        }
    }
}

/// Advances a row with one of the statements above; returns `false` if it was already past that
/// state.
async fn advance(
    to: &mut SqliteConnection,
    statement: &'static str,
    job_id: &JobId,
    minion: &MinionId,
    now: Millis,
) -> Outcome<bool> {
    let done = sqlx::query(statement)
        .bind(now)
        .bind(job_id.as_str())
        .bind(minion.as_str())
        .execute(to)
        .await?;
    Ok(done.rows_affected() > 0)
}

#[cfg(test)]
#[path = "row_changes_tests.rs"]
mod tests;
