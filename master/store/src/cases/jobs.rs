//! Rules of jobs and their rows.

use super::*;
use crate::samples::minion;

/// The last two digits of a job id.
fn short(id: &JobId) -> String {
    id.as_str()[18..].to_owned()
}

#[tokio::test]
async fn a_repeated_request_finds_its_job() {
    let (store, _directory) = &fresh().await;
    let rows = [
        JobRow::queued(&job_id(1), &minion("a"), Some("{}".to_owned())),
        JobRow::queued(&job_id(1), &minion("b"), None),
    ];
    assert_eq!(
        store.create_job(&job(1, Some("r")), &rows).await.unwrap(),
        Created::New
    );
    let again = store
        .create_job(
            &job(2, Some("r")),
            &[JobRow::queued(&job_id(2), &minion("a"), None)],
        )
        .await
        .unwrap();
    assert_eq!(again, Created::Existing(job(1, Some("r"))));
    assert_eq!(store.job(&job_id(2)).await.unwrap(), None);
    for row in rows {
        assert_eq!(store.row(&job_id(1), &row.minion).await.unwrap(), Some(row));
    }
    // Without an id every request is new.
    for number in [3, 4] {
        assert_eq!(
            store.create_job(&job(number, None), &[]).await.unwrap(),
            Created::New
        );
    }
    let listed: Vec<JobId> = store
        .jobs(2)
        .await
        .unwrap()
        .into_iter()
        .map(|job| job.job_id)
        .collect();
    assert_eq!(listed, [job_id(4), job_id(3)]);
}

#[tokio::test]
async fn a_job_that_cannot_be_stored_whole_is_not_stored() {
    let (store, _directory) = &fresh().await;
    let twice = [
        JobRow::queued(&job_id(1), &minion("a"), None),
        JobRow::queued(&job_id(1), &minion("a"), None),
    ];
    store
        .create_job(&job(1, Some("r")), &twice)
        .await
        .unwrap_err();
    assert_eq!(store.job(&job_id(1)).await.unwrap(), None);
    assert_eq!(
        store
            .create_job(&job(1, Some("r")), &twice[..1])
            .await
            .unwrap(),
        Created::New
    );
}

#[tokio::test]
async fn a_row_only_moves_forward() {
    let (store, _directory) = &fresh().await;
    let rows = [
        JobRow::queued(&job_id(1), &minion("a"), None),
        JobRow::queued(&job_id(1), &minion("b"), None),
        JobRow::queued(&job_id(1), &minion("c"), None),
    ];
    store.create_job(&job(1, None), &rows).await.unwrap();
    assert!(store.mark_sent(&job_id(1), &minion("a"), 20).await.unwrap());
    assert!(!store.mark_sent(&job_id(1), &minion("a"), 21).await.unwrap());
    assert!(
        store
            .mark_started(&job_id(1), &minion("a"), 30)
            .await
            .unwrap()
    );
    assert!(
        !store
            .mark_started(&job_id(1), &minion("a"), 31)
            .await
            .unwrap()
    );
    assert!(!store.mark_sent(&job_id(1), &minion("a"), 32).await.unwrap());
    assert!(
        store
            .record_return(&job_id(1), &minion("a"), &answer(0))
            .await
            .unwrap()
    );
    assert!(
        !store
            .record_return(&job_id(1), &minion("a"), &answer(1))
            .await
            .unwrap(),
        "a repeated return changes nothing"
    );
    assert!(
        !store
            .mark_lost(&job_id(1), &minion("a"), "late", 60)
            .await
            .unwrap()
    );
    let row = store.row(&job_id(1), &minion("a")).await.unwrap().unwrap();
    assert_eq!(
        (row.state, row.retcode, row.sent, row.started),
        (RowState::Returned, Some(0), Some(20), Some(30))
    );
    assert_eq!(
        (row.return_json.as_deref(), row.ended),
        (Some("{\"a\":1}"), Some(50))
    );
    // The true return replaces the master's conclusion from the minion's silence.
    store
        .create_job(
            &job(7, None),
            &[JobRow::queued(&job_id(7), &minion("a"), None)],
        )
        .await
        .unwrap();
    assert!(
        store
            .mark_interrupted(&job_id(7), &minion("a"), "forgotten", 60)
            .await
            .unwrap()
    );
    let row = store.row(&job_id(7), &minion("a")).await.unwrap().unwrap();
    assert_eq!((row.state, row.retcode), (RowState::Lost, Some(2)));
    store.finish_job(&job_id(7), 1, 60).await.unwrap();
    assert!(
        store
            .record_return(&job_id(7), &minion("a"), &answer(0))
            .await
            .unwrap()
    );
    let finished = store.job(&job_id(7)).await.unwrap().unwrap();
    assert_eq!(finished.retcode, Some(0));
    // Started without a record that it was sent; expired; answered nevertheless.
    assert!(
        store
            .mark_started(&job_id(1), &minion("b"), 30)
            .await
            .unwrap()
    );
    assert!(
        store
            .mark_lost(&job_id(1), &minion("b"), "no answer", 60)
            .await
            .unwrap()
    );
    assert_eq!(
        store
            .row(&job_id(1), &minion("b"))
            .await
            .unwrap()
            .unwrap()
            .error,
        "no answer"
    );
    assert!(
        store
            .record_return(&job_id(1), &minion("b"), &answer(2))
            .await
            .unwrap()
    );
    assert_eq!(
        store
            .row(&job_id(1), &minion("b"))
            .await
            .unwrap()
            .unwrap()
            .retcode,
        Some(2)
    );
    assert!(
        !store
            .record_return(&job_id(1), &minion("unknown"), &answer(0))
            .await
            .unwrap()
    );
    assert!(
        !store
            .record_return(&job_id(9), &minion("a"), &answer(0))
            .await
            .unwrap()
    );
}

#[tokio::test]
async fn open_jobs_and_rows_are_found_after_a_restart() {
    let (store, _directory) = &fresh().await;
    for number in [1, 2] {
        store
            .create_job(
                &job(number, None),
                &[
                    JobRow::queued(&job_id(number), &minion("a"), None),
                    JobRow::queued(&job_id(number), &minion("b"), None),
                ],
            )
            .await
            .unwrap();
    }
    store
        .record_return(&job_id(1), &minion("a"), &answer(0))
        .await
        .unwrap();
    let open: Vec<JobId> = store
        .open_parts(&[minion("a")])
        .await
        .unwrap()
        .into_iter()
        .map(|row| row.job_id)
        .collect();
    assert_eq!(open, [job_id(2)]);
    assert_eq!(store.open_parts(&[minion("b")]).await.unwrap().len(), 2);
    assert_eq!(store.open_jobs().await.unwrap().len(), 2);
    store.finish_job(&job_id(1), 1, 70).await.unwrap();
    let finished = store.job(&job_id(1)).await.unwrap().unwrap();
    assert_eq!(
        (finished.status, finished.retcode, finished.finished),
        (JobStatus::Finished, Some(1), Some(70))
    );
    assert_eq!(store.open_jobs().await.unwrap(), [job(2, None)]);
}

#[tokio::test]
async fn the_last_return_finishes_its_job() {
    let (store, _directory) = &fresh().await;
    for number in [1, 2] {
        let rows = [
            JobRow::queued(&job_id(number), &minion("a"), None),
            JobRow::queued(&job_id(number), &minion("b"), None),
        ];
        store.create_job(&job(number, None), &rows).await.unwrap();
        assert!(
            store
                .record_last_return(&job_id(number), &minion("a"), &answer(0))
                .await
                .unwrap()
        );
        assert_eq!(
            store.job(&job_id(number)).await.unwrap(),
            Some(job(number, None)),
            "b has not answered"
        );
    }
    assert!(
        store
            .record_last_return(&job_id(1), &minion("b"), &answer(0))
            .await
            .unwrap()
    );
    assert!(
        !store
            .record_last_return(&job_id(1), &minion("b"), &answer(3))
            .await
            .unwrap(),
        "a repeated return"
    );
    assert!(
        store
            .record_last_return(&job_id(2), &minion("b"), &answer(3))
            .await
            .unwrap()
    );
    for (number, retcode) in [(1, 0), (2, 1)] {
        let finished = Job {
            status: JobStatus::Finished,
            retcode: Some(retcode),
            finished: Some(50),
            ..job(number, None)
        };
        assert_eq!(store.job(&job_id(number)).await.unwrap(), Some(finished));
        assert_eq!(store.parts(&job_id(number)).await.unwrap().len(), 2);
    }
    assert!(
        !store
            .record_last_return(&job_id(9), &minion("a"), &answer(0))
            .await
            .unwrap()
    );
}

#[tokio::test]
async fn old_jobs_go_and_what_is_open_stays() {
    let (store, _directory) = &fresh().await;
    store.put_key(&key("a", KeyState::Accepted)).await.unwrap();
    let made = async |number: u64, operator: &str, name: &str| {
        let job = Job {
            operator: operator.to_owned(),
            ..job(number, None)
        };
        store
            .create_job(
                &job,
                &[JobRow::queued(&job_id(number), &minion(name), None)],
            )
            .await
            .unwrap();
    };
    let answered = async |number: u64, ended: Millis| {
        store
            .record_return(&job_id(number), &minion("a"), &answer(0))
            .await
            .unwrap();
        store.finish_job(&job_id(number), 0, ended).await.unwrap();
    };
    store
        .create_run(&run(92, None), &[step(92, 0)])
        .await
        .unwrap();
    store
        .create_run(&run(91, None), &[step(91, 0)])
        .await
        .unwrap();
    store
        .update_run(&job_id(91), RunStatus::Succeeded, 1, 20)
        .await
        .unwrap();
    let of_run = |number| format!("run:{}", job_id(number));
    for (number, operator) in [(1, "root".to_owned()), (3, of_run(92)), (4, of_run(91))] {
        made(number, &operator, "a").await;
        answered(number, 20).await;
    }
    let lost = async |number: u64, name: &str| {
        let job_id = job_id(number);
        let is_lost = store.mark_lost(&job_id, &minion(name), "away", 20).await;
        assert!(is_lost.unwrap());
        store.finish_job(&job_id, 1, 20).await.unwrap();
    };
    // Never sent, so that no answer comes.
    made(2, "root", "a").await;
    lost(2, "a").await;
    // Not finished; expired, though its minion may still answer; expired with no answer possible;
    // not old.
    made(5, "root", "a").await;
    for (number, name) in [(6, "a"), (7, "gone")] {
        made(number, "root", name).await;
        let sent = store.mark_sent(&job_id(number), &minion(name), 10).await;
        assert!(sent.unwrap());
        lost(number, name).await;
    }
    made(8, "root", "a").await;
    answered(8, 100).await;
    made(9, "root", "a").await;
    answered(9, 20).await;

    let left = async || {
        let jobs = store.jobs(99).await.unwrap();
        jobs.into_iter()
            .rev()
            .map(|job| short(&job.job_id))
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(
        store.prune_jobs(100, 9, 9, 9).await.unwrap(),
        0,
        "the last nine are all"
    );
    assert_eq!(
        store.prune_jobs(20, 0, 0, 9).await.unwrap(),
        0,
        "nothing ended before"
    );
    assert_eq!(
        store.prune_jobs(100, 1, 1, 1).await.unwrap(),
        2,
        "one job and one run at a time"
    );
    assert_eq!(left().await, "02 03 04 05 06 07 08 09");
    assert_eq!(store.run(&job_id(91)).await.unwrap(), None);
    assert!(
        store.steps(&job_id(91)).await.unwrap().is_empty()
            && store.parts(&job_id(1)).await.unwrap().is_empty()
    );
    assert_eq!(store.prune_jobs(100, 1, 1, 99).await.unwrap(), 3);
    assert_eq!(
        left().await,
        "03 05 06 08 09",
        "the last one stays, however old"
    );
    assert_eq!(store.run(&job_id(92)).await.unwrap(), Some(run(92, None)));

    // The reasons that held them back are gone.
    store
        .update_run(&job_id(92), RunStatus::Failed, 1, 20)
        .await
        .unwrap();
    store
        .record_return(&job_id(6), &minion("a"), &answer(0))
        .await
        .unwrap();
    store.create_run(&run(93, None), &[]).await.unwrap();
    assert_eq!(store.prune_jobs(100, 1, 1, 99).await.unwrap(), 3);
    assert_eq!(left().await, "05 08 09");
}

#[tokio::test]
async fn of_which_bundles_a_minion_has_something_outlives_its_jobs() {
    let (store, _directory) = &fresh().await;
    let made = async |number: u64, function: &str, bundle: &str, test: bool| {
        let (function, bundle) = (function.to_owned(), bundle.parse().ok());
        let job = Job {
            function,
            bundle,
            test,
            ..job(number, None)
        };
        store
            .create_job(&job, &[JobRow::queued(&job_id(number), &minion("a"), None)])
            .await
            .unwrap();
    };
    let returned = async |number: u64, retcode: i32| {
        store
            .record_return(&job_id(number), &minion("a"), &answer(retcode))
            .await
            .unwrap();
        store
            .finish_job(&job_id(number), retcode, 20)
            .await
            .unwrap();
    };
    let known = async || {
        let known = store.minion_bundles().await.unwrap();
        assert!(known.iter().all(|known| known.minion == "a"), "{known:?}");
        let of = |known: MinionBundle| {
            format!(
                "{}:{}:{}",
                known.bundle,
                short(&known.job_id),
                known.highstate.as_ref().map(short).unwrap_or_default()
            )
        };
        known.into_iter().map(of).collect::<Vec<_>>().join(" ")
    };
    store
        .create_job(
            &job(0, None),
            &[JobRow::queued(&job_id(0), &minion("a"), None)],
        )
        .await
        .unwrap();
    made(1, "state.highstate", "A", true).await;
    returned(1, 0).await;
    assert_eq!(
        known().await,
        "",
        "test runs and jobs without a bundle leave no record"
    );
    made(2, "state.highstate", "A", false).await;
    assert_eq!(known().await, "A:02:", "before anything is sent");
    returned(2, 0).await;
    assert_eq!(known().await, "A:02:02");
    // Half of one bundle, half of another.
    made(3, "state.highstate", "B", false).await;
    returned(3, 1).await;
    made(4, "state.apply", "C", false).await;
    assert!(
        store
            .record_last_return(&job_id(4), &minion("a"), &answer(0))
            .await
            .unwrap()
    );
    assert_eq!(known().await, "A:02:02 B:03: C:04:");
    // Jobs under way stay while a highstate succeeds.
    made(5, "state.highstate", "B", false).await;
    made(6, "state.apply", "A", false).await;
    assert!(
        store
            .record_last_return(&job_id(5), &minion("a"), &answer(0))
            .await
            .unwrap()
    );
    assert_eq!(known().await, "A:06:02 B:05:05");
    store
        .record_return(&job_id(6), &minion("a"), &answer(0))
        .await
        .unwrap();
    store.finish_job(&job_id(6), 0, 20).await.unwrap();
    store.create_job(&job(99, None), &[]).await.unwrap();
    assert!(store.prune_jobs(100, 1, 1, 99).await.unwrap() >= 5);
    assert_eq!(store.job(&job_id(5)).await.unwrap(), None);
    store.put_key(&key("a", KeyState::Accepted)).await.unwrap();
    store.delete_key(&minion("a")).await.unwrap();
    assert_eq!(known().await, "A:06:02 B:05:05");
}
