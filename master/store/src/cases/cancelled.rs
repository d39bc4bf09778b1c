//! Runs that an operator cancels.

use super::{fresh, job_id, run};
use crate::{Run, RunStatus};

#[tokio::test]
async fn a_cancelled_run_names_the_first_operator() {
    let (store, _directory) = &fresh().await;
    store.create_run(&run(11, None), &[]).await.unwrap();
    let cancel = async |number, operator| {
        let cancelled = store.cancel_run(&job_id(number), operator, 7).await;
        cancelled.unwrap()
    };
    assert!(cancel(11, "alice").await);
    assert!(cancel(11, "bob").await, "it has not ended");
    assert!(!cancel(12, "alice").await, "there is no such run");
    let wanted = Run {
        cancelled_by: Some("alice".to_owned()),
        changed: 7,
        ..run(11, None)
    };
    // Until its step has ended, the run stays open and holds its locks.
    assert_eq!(store.open_runs().await.unwrap(), [wanted]);
    let end = store
        .update_run(&job_id(11), RunStatus::Cancelled, 1, 8)
        .await;
    end.unwrap();
    assert!(!cancel(11, "bob").await, "it has ended");
    let ended = store.run(&job_id(11)).await.unwrap().unwrap();
    assert_eq!(ended.status, RunStatus::Cancelled);
    assert_eq!(ended.cancelled_by.as_deref(), Some("alice"));
    assert!(store.open_runs().await.unwrap().is_empty());
}
