//! Changes of a job's rows, written in batches: changes that arrive during a commit share the next
//! one. A hundred minions that answer a ping at once would otherwise wait for a hundred commits,
//! one after the other.

use std::sync::{Arc, Mutex, PoisonError};

use halite_proto::ids::{JobId, MinionId};
use sqlx::SqliteConnection;
use tokio::sync::oneshot;

use super::Store;
use super::jobs::{finish_job, write_return};
use super::writer::{Write, Writer};
use crate::records::StoredAnswer;
use crate::{Millis, StoreError};

type Outcome<T> = Result<T, StoreError>;

const SENT: &str = "UPDATE job_rows SET state = 'sent', sent = ? \
                    WHERE jid = ? AND minion = ? AND state = 'queued'";
const STARTED: &str = "UPDATE job_rows SET state = 'started', started = ? \
                       WHERE jid = ? AND minion = ? AND state IN ('queued', 'sent')";

/// A change of one row.
#[derive(Debug, Clone)]
enum Change {
    /// The row was sent.
    Sent(Millis),
    /// The minion started it.
    Started(Millis),
    /// The minion answered.
    Returned(StoredAnswer),
    /// The minion answered, and the job is finished if no other answer is missing.
    LastReturned(StoredAnswer),
}

/// A change that waits to be written, with its caller.
struct Waiting {
    jid: JobId,
    minion: MinionId,
    change: Change,
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
    pub async fn mark_sent(&self, jid: &JobId, minion: &MinionId, now: Millis) -> Outcome<bool> {
        self.change_row(jid, minion, Change::Sent(now)).await
    }

    /// Marks a queued or sent row as started; returns `false` if it was already past that state.
    pub async fn mark_started(&self, jid: &JobId, minion: &MinionId, now: Millis) -> Outcome<bool> {
        self.change_row(jid, minion, Change::Started(now)).await
    }

    /// Stores the answer of a queued, sent, started or lost row; returns `false`, with nothing
    /// stored, if the row already has an answer (a repeated return) or does not exist. A late
    /// answer updates the return code of a finished job.
    pub async fn record_return(
        &self,
        jid: &JobId,
        minion: &MinionId,
        answer: &StoredAnswer,
    ) -> Outcome<bool> {
        let change = Change::Returned(answer.clone());
        self.change_row(jid, minion, change).await
    }

    /// Like [`Store::record_return`], but also finishes the job in the same transaction, like
    /// [`Store::finish_job`], if no part of it remains open: its return code is 0 if every part was
    /// returned with 0, otherwise 1.
    pub async fn record_last_return(
        &self,
        jid: &JobId,
        minion: &MinionId,
        answer: &StoredAnswer,
    ) -> Outcome<bool> {
        let change = Change::LastReturned(answer.clone());
        self.change_row(jid, minion, change).await
    }

    /// Changes a row, and returns when the change is stored. `false` means that the row's state did
    /// not allow the change.
    async fn change_row(&self, jid: &JobId, minion: &MinionId, change: Change) -> Outcome<bool> {
        let (caller, written) = oneshot::channel();
        let is_first = self.row_changes.add(Waiting {
            jid: jid.clone(),
            minion: minion.clone(),
            change,
            caller,
        });
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
    for Waiting {
        jid,
        minion,
        change,
        ..
    } in batch
    {
        written.push(match change {
            Change::Sent(now) => advance(&mut write, SENT, jid, minion, *now).await?,
            Change::Started(now) => advance(&mut write, STARTED, jid, minion, *now).await?,
            Change::Returned(answer) => write_return(&mut write, jid, minion, answer).await?,
            Change::LastReturned(answer) => {
                let first = write_return(&mut write, jid, minion, answer).await?;
                finish_job(&mut write, jid, answer.when).await?;
                first
            }
        });
    }
    write.commit().await?;
    Ok(written)
}

/// Advances a row with one of the statements above; returns `false` if it was already past that
/// state.
async fn advance(
    to: &mut SqliteConnection,
    statement: &'static str,
    jid: &JobId,
    minion: &MinionId,
    now: Millis,
) -> Outcome<bool> {
    let done = sqlx::query(statement)
        .bind(now)
        .bind(jid.as_str())
        .bind(minion.as_str())
        .execute(to)
        .await?;
    Ok(done.rows_affected() > 0)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt as _;
    use futures_util::future::join_all;
    use tempfile::TempDir;

    use super::*;
    use crate::records::{JobStatus, RowState};
    use crate::samples::jid;
    use crate::samples::minion;
    use crate::{JobRow, samples};

    const MINIONS: usize = 100;

    async fn with_job() -> (Store, TempDir, Vec<MinionId>) {
        let directory = TempDir::new().unwrap();
        let store = Store::open(&directory.path().join("store.db"))
            .await
            .unwrap();
        let minions: Vec<MinionId> = (0..MINIONS)
            .map(|number| minion(&format!("m{number}")))
            .collect();
        let rows: Vec<JobRow> = minions
            .iter()
            .map(|minion| JobRow::queued(&jid(1), minion, None))
            .collect();
        store
            .create_job(&samples::job(1, None), &rows)
            .await
            .unwrap();
        (store, directory, minions)
    }

    fn answer(text: String) -> StoredAnswer {
        StoredAnswer {
            retcode: 0,
            return_json: text,
            error: String::new(),
            when: 7,
        }
    }

    /// Submits all answers while the writer is held, and counts the commits that store them.
    async fn hand_in(
        store: &Store,
        minions: &[MinionId],
        answers: &[StoredAnswer],
    ) -> (Vec<Outcome<bool>>, usize) {
        let commits = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&commits);
        let mut writer = store.hold_writer().await;
        writer
            .lock_handle()
            .await
            .unwrap()
            .set_commit_hook(move || {
                counter.fetch_add(1, Ordering::SeqCst);
                true
            });
        let (job, calls) = (jid(1), minions.iter().zip(answers));
        let calls =
            join_all(calls.map(|(minion, answer)| store.record_last_return(&job, minion, answer)));
        let release = async {
            while store.row_changes.count() < minions.len() {
                tokio::task::yield_now().await;
            }
            drop(writer);
        };
        let (stored, ()) = tokio::join!(calls, release);
        (stored, commits.load(Ordering::SeqCst))
    }

    #[tokio::test]
    async fn answers_that_wait_together_are_one_commit() {
        let (store, _directory, minions) = with_job().await;
        let answers = vec![answer("null".to_owned()); MINIONS];
        let (stored, commits) = hand_in(&store, &minions, &answers).await;
        assert!(stored.into_iter().all(|stored| stored.unwrap()));
        assert_eq!(commits, 1);
        let parts = store.parts(&jid(1)).await.unwrap();
        assert_eq!(parts.len(), MINIONS);
        assert!(parts.iter().all(|part| part.state == RowState::Returned));
        let job = store.job(&jid(1)).await.unwrap().unwrap();
        assert_eq!(job.status, JobStatus::Finished);
    }

    #[tokio::test]
    async fn an_answer_without_room_does_not_take_the_others_with_it() {
        let (store, _directory, minions) = with_job().await;
        let mut answers = vec![answer("null".to_owned()); MINIONS];
        answers[5] = answer("x".repeat(4 << 20));
        store.limit_pages(None).await;
        let (stored, _) = hand_in(&store, &minions, &answers).await;
        for (number, stored) in stored.into_iter().enumerate() {
            match stored {
                Ok(first) => assert!(first && number != 5, "{number}"),
                Err(error) => assert!(
                    number == 5 && matches!(error, StoreError::Full(_)),
                    "{number}: {error}"
                ),
            }
        }
    }

    #[tokio::test]
    async fn a_caller_that_is_cut_off_takes_no_change_of_another_with_it() {
        let (store, _directory, minions) = with_job().await;
        let (job, writer) = (jid(1), store.hold_writer().await);
        let [cut, other, ..] = minions.as_slice() else {
            panic!("two minions")
        };
        let mut first = Box::pin(store.mark_sent(&job, cut, 1));
        let mut second = Box::pin(store.mark_sent(&job, other, 1));
        for call in [&mut first, &mut second] {
            assert!(
                call.now_or_never().is_none(),
                "stored while the writer is held"
            );
        }
        drop(first);
        drop(writer);
        assert!(second.await.unwrap());
    }
}
