use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use tempfile::TempDir;

use super::*;
use crate::records::{JobStatus, RowState};
use crate::samples::job_id;
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
        .map(|minion| JobRow::queued(&job_id(1), minion, None))
        .collect();
    store
        .create_job(&samples::job(1, None), &rows)
        .await
        .unwrap();
    (store, directory, minions)
}

/// A report of 20 kB.
fn facts(minion: &MinionId, last_seen: Millis) -> Facts {
    Facts {
        minion: minion.clone(),
        grains_json: format!("{{\"os\":\"{}\"}}", "x".repeat(20_000)),
        version: "1".to_owned(),
        last_seen,
    }
}

fn answer(text: String) -> StoredAnswer {
    StoredAnswer {
        retcode: 0,
        return_json: text,
        error: String::new(),
        when: 7,
    }
}

/// Makes all calls while the writer is held, and counts the commits that store them.
async fn together<T>(
    store: &Store,
    calls: impl ExactSizeIterator<Item = impl Future<Output = T>>,
) -> (Vec<T>, usize) {
    let number = calls.len();
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
    let release = async {
        // Changes that do not wait together are never counted.
        for _ in 0..10_000 {
            if store.row_changes.count() >= number {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(writer);
    };
    let (stored, ()) = tokio::join!(join_all(calls), release);
    (stored, commits.load(Ordering::SeqCst))
}

/// Submits all answers while the writer is held, and counts the commits that store them.
async fn hand_in(
    store: &Store,
    minions: &[MinionId],
    answers: &[StoredAnswer],
) -> (Vec<Outcome<bool>>, usize) {
    let job = job_id(1);
    let calls = minions.iter().zip(answers);
    let calls = calls.map(|(minion, answer)| store.record_last_return(&job, minion, answer));
    together(store, calls).await
}

#[tokio::test]
async fn answers_that_wait_together_are_one_commit() {
    let (store, _directory, minions) = with_job().await;
    let answers = vec![answer("null".to_owned()); MINIONS];
    let (stored, commits) = hand_in(&store, &minions, &answers).await;
    assert!(stored.into_iter().all(|stored| stored.unwrap()));
    assert_eq!(commits, 1);
    let parts = store.parts(&job_id(1)).await.unwrap();
    assert_eq!(parts.len(), MINIONS);
    assert!(parts.iter().all(|part| part.state == RowState::Returned));
    let job = store.job(&job_id(1)).await.unwrap().unwrap();
    assert_eq!(job.status, JobStatus::Finished);
}

#[tokio::test]
async fn losses_that_wait_together_are_one_commit() {
    let (store, _directory, minions) = with_job().await;
    let job = job_id(1);
    let calls = minions
        .iter()
        .map(|minion| store.mark_lost(&job, minion, "away", 7));
    let (stored, commits) = together(&store, calls).await;
    assert!(stored.into_iter().all(|stored| stored.unwrap()));
    assert_eq!(commits, 1);
    let parts = store.parts(&job).await.unwrap();
    assert!(
        parts
            .iter()
            .all(|part| part.state == RowState::Lost && part.error == "away")
    );
}

#[tokio::test]
async fn reports_of_minions_that_wait_together_are_one_commit() {
    let (store, _directory, minions) = with_job().await;
    let facts: Vec<Facts> = minions.iter().map(|minion| facts(minion, 1)).collect();
    let (stored, commits) =
        together(&store, facts.iter().map(|facts| store.put_facts(facts))).await;
    stored.into_iter().for_each(|stored| stored.unwrap());
    assert_eq!(commits, 1);
    let (stored, commits) =
        together(&store, minions.iter().map(|minion| store.touch(minion, 9))).await;
    stored.into_iter().for_each(|stored| stored.unwrap());
    assert_eq!(commits, 1);
    let found = store.all_facts().await.unwrap();
    assert_eq!(found.len(), MINIONS);
    assert!(found.iter().all(|facts| facts.last_seen == 9));
}

#[tokio::test]
async fn an_equal_report_of_a_minion_writes_its_grains_once() {
    let (store, _directory, minions) = with_job().await;
    let _no_checkpoint = store.log().hold().await;
    let now = 1_800_000_000_000;
    store.put_facts(&facts(&minions[0], now)).await.unwrap();
    let before = store.log_pages();
    for second in 1..=10 {
        let again = facts(&minions[0], now + second);
        store.put_facts(&again).await.unwrap();
    }
    let written = store.log_pages() - before;
    assert!(written <= 20, "10 equal reports wrote {written} pages");
    let found = store.facts(&minions[0]).await.unwrap();
    assert_eq!(found, Some(facts(&minions[0], now + 10)));
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
    let (job, writer) = (job_id(1), store.hold_writer().await);
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
