//! Locks of runs.

use super::{fresh, job_id, run};
use crate::RunStatus;

#[tokio::test]
async fn a_lock_is_held_until_its_run_has_ended() {
    let (store, _directory) = &fresh().await;
    for number in [11, 12, 13] {
        store.create_run(&run(number, None), &[]).await.unwrap();
    }
    let take = async |name, number| {
        let holder = store.take_lock(name, &job_id(number), 1).await.unwrap();
        holder.map(|run| run.id)
    };
    assert_eq!(take("members", 11).await, None);
    assert_eq!(take("members", 12).await, Some(job_id(11)));
    assert_eq!(take("others", 12).await, None, "another lock");
    assert_eq!(take("members", 11).await, None, "its own, after a restart");
    let release = async |number| {
        store
            .release_lock("members", &job_id(number))
            .await
            .unwrap()
    };
    release(12).await;
    assert_eq!(take("members", 12).await, Some(job_id(11)), "not its own");
    release(11).await;
    release(11).await;
    assert_eq!(take("members", 12).await, None, "released before the end");
    release(12).await;
    assert_eq!(take("members", 11).await, None);
    let end = async |number, status| {
        store
            .update_run(&job_id(number), status, 1, 2)
            .await
            .unwrap();
    };
    end(11, RunStatus::Failed).await;
    assert_eq!(take("members", 12).await, None, "taken over");
    assert_eq!(take("members", 13).await, Some(job_id(12)));
    end(12, RunStatus::Succeeded).await;
    assert_eq!(take("members", 13).await, None);
}
