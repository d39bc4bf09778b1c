//! The log of a store in use: its end, the part that a copy has, and the commits that wait for
//! followers.

use std::pin::pin;

use futures_util::FutureExt as _;
use tempfile::TempDir;

use super::*;
use crate::{Audit, Store};

async fn store() -> (TempDir, Store) {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("store.db");
    let store = Store::open(&path).await.unwrap();
    (directory, store)
}

async fn commit(store: &Store) -> End {
    let line = Audit {
        time: 1,
        who: "operator:root".to_owned(),
        method: "Test".to_owned(),
        what: "x".repeat(5000),
        outcome: "ok".to_owned(),
    };
    store.append_audit(&line).await.unwrap();
    store.log().end().unwrap().unwrap()
}

#[tokio::test]
async fn a_copy_is_continued_from_any_commit_of_this_log_and_from_the_end_of_the_one_before() {
    let (_directory, store) = store().await;
    let log = store.log();
    let (first, second) = (commit(&store).await, commit(&store).await);
    for end in [first, second] {
        let known = log.known(&end.position, &second).unwrap();
        assert_eq!(known, Some(end.position.frames));
    }
    store.checkpoint().await.unwrap();
    // The same log until the next commit.
    assert_eq!(log.end().unwrap(), Some(second));
    let known = log.known(&first.position, &second).unwrap();
    assert_eq!(known, Some(first.position.frames));
    let next = commit(&store).await;
    assert_ne!(next.position.salt, second.position.salt);
    assert_eq!(log.known(&second.position, &next).unwrap(), Some(0));
    assert_eq!(log.known(&first.position, &next).unwrap(), None);
    store.checkpoint().await.unwrap();
    let last = commit(&store).await;
    assert_eq!(log.known(&second.position, &last).unwrap(), None);
    assert_eq!(log.known(&next.position, &last).unwrap(), Some(0));
}

#[tokio::test]
async fn a_commit_waits_for_each_of_two_followers_and_for_none_that_has_left() {
    let (_directory, store) = store().await;
    let log = store.log();
    let (mut first, mut second) = (log.join(), log.join());
    let mut reached = pin!(log.reach_followers());
    assert!(reached.as_mut().now_or_never().is_none());
    let round = first.asked().await;
    first.done(round);
    assert!(reached.as_mut().now_or_never().is_none(), "the other one");
    let round = second.asked().await;
    second.done(round);
    reached.await;
    // Two commits share a round.
    let mut both = pin!(futures_util::future::join(
        log.reach_followers(),
        log.reach_followers()
    ));
    assert!(both.as_mut().now_or_never().is_none());
    let round = first.asked().await;
    first.done(round);
    assert!(first.asked().now_or_never().is_none(), "asked once");
    drop(second);
    both.await;
    drop(first);
    log.reach_followers().await;
}

#[tokio::test]
async fn a_round_that_was_asked_for_before_a_commit_is_not_enough_for_it() {
    let (_directory, store) = store().await;
    let log = store.log();
    let mut follower = log.join();
    let mut first = pin!(log.reach_followers());
    assert!(first.as_mut().now_or_never().is_none());
    let round = follower.asked().await;
    // The first round is still under way.
    let mut second = pin!(log.reach_followers());
    assert!(second.as_mut().now_or_never().is_none());
    follower.done(round);
    first.await;
    assert!(second.as_mut().now_or_never().is_none());
    let round = follower.asked().await;
    follower.done(round);
    second.await;
}

#[tokio::test]
async fn no_checkpoint_is_made_while_the_file_is_copied() {
    let (_directory, store) = store().await;
    let log = store.log();
    let end = commit(&store).await;
    let held = log.hold().await;
    store.checkpoint().await.unwrap();
    let same = commit(&store).await;
    assert_eq!(same.position.salt, end.position.salt);
    drop(held);
    store.checkpoint().await.unwrap();
    let next = commit(&store).await;
    assert_ne!(next.position.salt, end.position.salt);
}
