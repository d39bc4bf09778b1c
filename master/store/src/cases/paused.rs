//! Runs that an operator pauses.

use super::{fresh, job_id, run};
use crate::{Run, RunStatus};

#[tokio::test]
async fn a_paused_run_names_the_first_operator_and_ends_only_once() {
    let (store, _directory) = &fresh().await;
    for number in [11, 12] {
        store.create_run(&run(number, None), &[]).await.unwrap();
    }
    let pause = async |number, operator| {
        let paused = store.pause_run(&job_id(number), operator, 7).await;
        paused.unwrap()
    };
    assert!(pause(11, "alice").await);
    assert!(pause(11, "bob").await, "it has not ended");
    assert!(!pause(13, "alice").await, "there is no such run");
    let cancelled = store.cancel_run(&job_id(12), "alice", 7).await;
    assert!(cancelled.unwrap());
    assert!(!pause(12, "alice").await, "it is cancelled");
    let wanted = Run {
        paused_by: Some("alice".to_owned()),
        changed: 7,
        ..run(11, None)
    };
    assert_eq!(store.run(&job_id(11)).await.unwrap(), Some(wanted));
    let end = store.update_run(&job_id(11), RunStatus::Paused, 1, 8).await;
    end.unwrap();
    assert!(!pause(11, "bob").await, "it has ended");
    let open = store.open_runs().await.unwrap();
    assert!(
        open.iter().all(|run| run.id != job_id(11)),
        "its locks are free"
    );
}

#[tokio::test]
async fn the_newest_runs_of_an_orchestration_are_real_ones() {
    let (store, _directory) = &fresh().await;
    let other = Run {
        sls: "custom.roll".to_owned(),
        ..run(14, None)
    };
    let test = Run {
        test: true,
        ..run(13, None)
    };
    for run in [run(11, None), run(12, None), test, other] {
        store.create_run(&run, &[]).await.unwrap();
    }
    let sls = run(11, None).sls;
    let newest = async |limit| {
        let runs = store.newest_runs_of(&sls, limit).await.unwrap();
        runs.into_iter().map(|run| run.id).collect::<Vec<_>>()
    };
    assert_eq!(newest(1).await, [job_id(12)]);
    assert_eq!(newest(9).await, [job_id(12), job_id(11)]);
}
