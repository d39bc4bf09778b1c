//! Tests of the place of low states, by the pages that changes write.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use super::tests::of_version;
use crate::samples::{answer, fresh, job, job_id, minion};
use crate::{Job, JobRow, Millis, OpenPart, RowState, Store};

/// The number of minions of a job.
const MINIONS: u32 = 20;
/// The bytes of a low state: 25 pages.
const LOW: usize = 100_000;
const PAGE: usize = 4096;
const DAY: Millis = 24 * 60 * 60 * 1000;

fn low(name: &str) -> Option<String> {
    Some(format!("{{\"{name}\":\"{}\"}}", "x".repeat(LOW)))
}

#[tokio::test]
async fn a_part_writes_its_low_state_once() {
    let (store, _directory) = fresh().await;
    let _no_checkpoint = store.log().hold().await;
    let names: Vec<String> = (0..MINIONS).map(|number| format!("m{number}")).collect();
    let rows: Vec<JobRow> = names
        .iter()
        .map(|name| JobRow::queued(&job_id(1), &minion(name), low(name)))
        .collect();
    let before = store.log_pages();
    store.create_job(&job(1, None), &rows).await.unwrap();
    let made = store.log_pages() - before;
    let pages = MINIONS * u32::try_from(LOW / PAGE).unwrap();
    assert!(made >= pages, "the low states are stored: {made} pages");
    assert!(made <= pages * 13 / 10, "the job wrote {made} pages");
    let before = store.log_pages();
    for name in &names {
        let minion = minion(name);
        assert!(store.mark_sent(&job_id(1), &minion, 1).await.unwrap());
        assert!(store.mark_started(&job_id(1), &minion, 2).await.unwrap());
        let stored = store.record_return(&job_id(1), &minion, &answer(0)).await;
        assert!(stored.unwrap());
    }
    let written = store.log_pages() - before;
    // Three commits for each minion: the row and its entries in two indexes.
    assert!(
        written <= 3 * 4 * MINIONS,
        "{MINIONS} parts of {} pages wrote {written} pages",
        LOW / PAGE
    );
    let row = store.row(&job_id(1), &minion("m7")).await.unwrap().unwrap();
    assert_eq!((row.state, row.low_json), (RowState::Returned, low("m7")));
}

#[tokio::test]
async fn the_removal_of_low_states_does_not_write_the_returns_again() {
    let (store, _directory) = fresh().await;
    let _no_checkpoint = store.log().hold().await;
    for number in 1..=10 {
        let row = JobRow::queued(&job_id(number), &minion("a"), low("a"));
        store.create_job(&job(number, None), &[row]).await.unwrap();
        let mut answer = answer(0);
        answer.return_json = "x".repeat(LOW);
        let (job_id, minion) = (job_id(number), minion("a"));
        assert!(
            store
                .record_return(&job_id, &minion, &answer)
                .await
                .unwrap()
        );
    }
    let before = store.log_pages();
    assert_eq!(store.prune_unused(2 * DAY, 100).await.unwrap(), 10);
    let written = store.log_pages() - before;
    assert!(written <= 40, "10 removed low states wrote {written} pages");
    let row = store.row(&job_id(1), &minion("a")).await.unwrap().unwrap();
    assert_eq!((row.low_json, row.return_json.unwrap().len()), (None, LOW));
}

/// Stores a job as the version without the table of low states did.
async fn put_inline(earlier: &sqlx::SqlitePool, job: &Job, state: &str, ended: Option<Millis>) {
    sqlx::query(
        "INSERT INTO jobs (jid, function, args_json, test, operator, target, minions, created, status) \
         VALUES (?, 'state.apply', '{}', 0, 'root', '*', '[\"a\"]', 1, 'running')",
    )
    .bind(job.job_id.as_str())
    .execute(earlier)
    .await
    .unwrap();
    sqlx::query(
        "INSERT INTO job_rows (jid, minion, low_json, state, error, ended) VALUES (?, 'a', ?, ?, '', ?)",
    )
    .bind(job.job_id.as_str())
    .bind(low("a"))
    .bind(state)
    .bind(ended)
    .execute(earlier)
    .await
    .unwrap();
}

#[tokio::test]
async fn a_store_of_an_earlier_version_keeps_its_low_states_in_place() {
    let (earlier, directory) = of_version(14).await;
    let path = directory.path().join("store.db");
    put_inline(&earlier, &job(1, None), "queued", None).await;
    for number in 2..=50 {
        put_inline(&earlier, &job(number, None), "returned", Some(1)).await;
    }
    earlier.close().await;
    let store = Store::open(&path).await.unwrap();
    // However many low states it has: they are more than a thousand pages.
    let written = store.log_pages();
    assert!(written <= 30, "the upgrade wrote {written} pages");
    let part = OpenPart {
        job_id: job_id(1),
        minion: minion("a"),
        state: RowState::Queued,
        has_low_state: true,
    };
    assert_eq!(store.open_parts(&[minion("a")]).await.unwrap(), [part]);
    // An open part can be sent, and later changes still find it.
    assert!(store.mark_sent(&job_id(1), &minion("a"), 1).await.unwrap());
    let row = store.row(&job_id(1), &minion("a")).await.unwrap().unwrap();
    assert_eq!((row.state, row.low_json), (RowState::Sent, low("a")));
    // A file that only such a low state names stays.
    store.put_blob("xxxx", b"x", 1).await.unwrap();
    let mut removed = 0;
    loop {
        match store.prune_unused(30 * DAY, 20).await.unwrap() {
            0 => break,
            some => removed += some,
        }
    }
    assert_eq!(removed, 49);
    assert!(store.blob("xxxx").await.unwrap().is_some());
    let low_of = async |number| {
        let row = store.row(&job_id(number), &minion("a")).await.unwrap();
        row.unwrap().low_json
    };
    assert!(low_of(1).await.is_some() && low_of(2).await.is_none());
    // The rest goes as well once its part has ended.
    let stored = store
        .record_return(&job_id(1), &minion("a"), &answer(0))
        .await;
    assert!(stored.unwrap());
    assert_eq!(store.prune_unused(30 * DAY, 20).await.unwrap(), 2);
    assert!(low_of(1).await.is_none() && store.blob("xxxx").await.unwrap().is_none());
}

#[tokio::test]
async fn an_upgrade_that_is_killed_leaves_the_earlier_version_or_the_later_one() {
    let (earlier, directory) = of_version(14).await;
    let path = directory.path().join("store.db");
    put_inline(&earlier, &job(1, None), "queued", None).await;
    // The statements of the upgrade, without its commit, and its files as a kill leaves them.
    let mut killed = earlier.begin().await.unwrap();
    let migration = include_str!("../../migrations/0015_low_states.sql");
    sqlx::raw_sql(migration)
        .execute(&mut *killed)
        .await
        .unwrap();
    let copy = tempfile::TempDir::new().unwrap();
    for suffix in ["", "-wal"] {
        let name = format!("store.db{suffix}");
        std::fs::copy(directory.path().join(&name), copy.path().join(&name)).unwrap();
    }
    killed.rollback().await.unwrap();
    earlier.close().await;
    for path in [copy.path().join("store.db"), path] {
        for _ in 0..2 {
            // The second time after a kill behind the upgrade: the store is not closed.
            let store = Store::open(&path).await.unwrap();
            let row = store.row(&job_id(1), &minion("a")).await.unwrap().unwrap();
            assert_eq!((row.state, row.low_json), (RowState::Queued, low("a")));
        }
    }
}

#[tokio::test]
async fn a_job_takes_its_low_states_with_it() {
    let (store, _directory) = fresh().await;
    for number in [1, 2] {
        let row = JobRow::queued(&job_id(number), &minion("a"), low("a"));
        store.create_job(&job(number, None), &[row]).await.unwrap();
        let stored = store
            .record_return(&job_id(number), &minion("a"), &answer(0))
            .await;
        assert!(stored.unwrap());
        store.finish_job(&job_id(number), 0, 1).await.unwrap();
    }
    let size = store.size().await.unwrap();
    assert_eq!(store.prune_jobs(2, 1, 1, 9).await.unwrap(), 1);
    let freed = size - store.size().await.unwrap();
    assert!(
        freed >= u64::try_from(LOW - 2 * PAGE).unwrap(),
        "{freed} bytes"
    );
    assert_eq!(store.row(&job_id(1), &minion("a")).await.unwrap(), None);
}

#[tokio::test]
async fn the_files_of_a_job_share_commits() {
    let (store, _directory) = fresh().await;
    let file = |number: usize, length: usize| (format!("f{number}"), vec![7; length]);
    let small = (0..100).map(|number| file(number, 1000)).collect();
    let counted = store.count_commits().await;
    let commits = async |files: &BTreeMap<String, Vec<u8>>, now| {
        counted.store(0, Ordering::SeqCst);
        store.put_blobs(files, now).await.unwrap();
        counted.load(Ordering::SeqCst)
    };
    assert_eq!(commits(&small, 1).await, 1);
    assert_eq!(commits(&small, 2).await, 1);
    // A standby must receive each commit within seconds.
    let large = (200..210).map(|number| file(number, 1 << 20)).collect();
    assert_eq!(commits(&large, 3).await, 3);
    assert_eq!(commits(&large, 4).await, 1);
    assert_eq!(store.blob("f209").await.unwrap().unwrap().len(), 1 << 20);
}
