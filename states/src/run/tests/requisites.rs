//! Requisites and global arguments, as in Salt.

use std::future::Future;

use futures_util::future::FutureExt as _;
use serde_json::{Value, json};

use super::{Scripted, chunk, go, results};
use crate::engine::RunOptions;
use crate::low::{Chunk, FORMAT, LowState, Retry};
use crate::run::run;

#[test]
fn failhard_ends_the_run_but_not_the_prediction() {
    let states = || {
        let mut first = chunk("a", json!({"fail": true}));
        first.controls.failhard = true;
        vec![first, chunk("b", json!({}))]
    };
    assert_eq!(results(&go(states(), false).0), [("a", Some(false), true)]);
    assert_eq!(results(&go(states(), true).0).len(), 2);
}

#[test]
fn test_mode_predicts_and_never_applies() {
    let mut watcher = chunk("w", json!({"mod_watch": true}));
    watcher.requisites.watch = vec![0];
    let (run, log, _) = go(vec![chunk("a", json!({"change": true})), watcher], true);
    assert_eq!(results(&run), [("a", None, true), ("w", None, true)]);
    assert_eq!(
        log,
        ["check a", "predict a", "check w", "watch w", "predict w"]
    );
}

#[test]
fn watch_without_mod_watch_is_require() {
    let mut watcher = chunk("w", json!({}));
    watcher.requisites.watch = vec![0];
    let (run, ..) = go(vec![chunk("a", json!({"change": true})), watcher], false);
    assert!(run.states[1].changes.is_empty());
    assert_eq!(run.states[1].comment, "Success!");
}

#[test]
fn a_handled_failure_does_not_fail_the_run() {
    let states = |stop| {
        let mut handler = chunk("h", json!({}));
        handler.requisites.onfail = vec![0];
        handler.controls.onfail_stop = stop;
        vec![chunk("a", json!({"fail": true})), handler]
    };
    let (handled, ..) = go(states(false), false);
    assert!(handled.succeeded());
    assert_eq!((handled.failed(), handled.handled()), (0, 1));
    let (stopped, ..) = go(states(true), false);
    assert!(!stopped.succeeded());
    assert_eq!((stopped.failed(), stopped.handled()), (1, 0));
}

#[test]
fn a_parallel_state_does_not_hold_up_the_next_but_holds_its_dependents() {
    let mut slow = chunk("slow", json!({"slow": true, "change": true}));
    slow.controls.parallel = true;
    let mut dependent = chunk("dependent", json!({}));
    dependent.requisites.onchanges = vec![0];
    let (run, _, reported) = go(vec![slow, chunk("next", json!({})), dependent], false);
    assert_eq!(reported, ["next", "slow", "dependent"]);
    assert_eq!(
        results(&run),
        [
            ("slow", Some(true), true),
            ("next", Some(true), true),
            ("dependent", Some(true), true)
        ]
    );
    assert_eq!(
        run.states.iter().map(|s| s.run_num).collect::<Vec<_>>(),
        [0, 1, 2]
    );
}

#[test]
fn a_parallel_state_has_begun_before_the_next_one_starts() {
    for slow_check in [false, true] {
        let mut backup = chunk(
            "backup",
            json!({"slow": true, "slow_check": slow_check, "change": true}),
        );
        backup.controls.parallel = true;
        let (_, log, reported) = go(vec![backup, chunk("file", json!({"change": true}))], false);
        assert_eq!(
            log,
            ["check backup", "apply backup", "check file", "apply file"]
        );
        assert_eq!(reported, ["file", "backup"], "and they overlap");
    }
}

#[test]
fn a_parallel_state_that_changes_nothing_or_fails_holds_up_nothing() {
    for args in [
        json!({"slow_check": true}),
        json!({"fail": true}),
        json!({"change": true}),
    ] {
        let mut first = chunk("first", args);
        first.controls.parallel = true;
        let (_, _, reported) = go(vec![first, chunk("next", json!({}))], false);
        assert_eq!(reported, ["first", "next"]);
    }
}

#[test]
fn a_parallel_state_that_is_tried_again_does_not_hold_up_the_next() {
    let mut again = again(json!({"fail_times": 2}), 0.001);
    again.controls.parallel = true;
    let modules = Scripted::default();
    let low = low(vec![again, chunk("next", json!({}))]);
    let run = with_time(run(&low, &modules, RunOptions::default(), |_| {}));
    assert!(run.succeeded());
    assert_eq!(
        modules.log.into_inner().unwrap()[..2],
        ["check again", "check next"]
    );
}

#[test]
fn a_request_to_stop_ends_the_attempts() {
    for (interval, until) in [(3600.0, true), (0.0, true), (3600.0, false)] {
        let args = json!({"fail": until, "change": true});
        let mut again = again(args, interval);
        again.controls.retry.as_mut().unwrap().until = until;
        let modules = Scripted::default();
        modules.stop.send_replace(Some("cancelled by anna".into()));
        let low = low(vec![again]);
        let run = with_time(run(&low, &modules, RunOptions::default(), |_| {}));
        let state = &run.states[0];
        assert_eq!(state.result, Some(false));
        assert!(
            state
                .comment
                .ends_with("\nnot tried again: cancelled by anna"),
            "{}",
            state.comment
        );
        assert_eq!(state.changes.is_empty(), until, "changes stay");
        let tries = modules.log.into_inner().unwrap();
        assert_eq!(
            tries.iter().filter(|line| *line == "check again").count(),
            1
        );
    }
}

#[test]
fn a_request_to_stop_ends_a_pause_that_has_begun() {
    let modules = Scripted::default();
    let low = low(vec![again(json!({"fail": true}), 3600.0)]);
    let run = with_time(async {
        let mut run = std::pin::pin!(run(&low, &modules, RunOptions::default(), |_| {}));
        assert!(run.as_mut().now_or_never().is_none());
        modules.stop.send_replace(Some("the master stops".into()));
        run.await
    });
    assert_eq!(results(&run), [("again", Some(false), true)]);
}

fn again(args: Value, interval: f64) -> Chunk {
    let mut again = chunk("again", args);
    again.controls.retry = Some(Retry {
        attempts: 5,
        interval,
        until: true,
        splay: 0,
    });
    again
}

pub(super) fn low(chunks: Vec<Chunk>) -> LowState {
    LowState {
        format: FORMAT,
        minion: "m".into(),
        chunks,
    }
}

pub(super) fn with_time<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap()
        .block_on(future)
}

#[test]
fn retry_keeps_all_comments_and_stops_at_success() {
    let modules = Scripted::default();
    let low = low(vec![again(json!({"fail_times": 2}), 0.0)]);
    let run = with_time(run(&low, &modules, RunOptions::default(), |_| {}));
    let attempt = |n| {
        format!(
            "Attempt {n}: Returned a result of \"False\", with the following comment: \"Failure!\"\n"
        )
    };
    assert_eq!(
        run.states[0].comment,
        format!("{}{}Success!", attempt(1), attempt(2))
    );
    assert_eq!(modules.log.into_inner().unwrap().len(), 3);
}

#[test]
fn an_apply_can_take_back_a_predicted_change() {
    let (run, ..) = go(
        vec![chunk(
            "a",
            json!({"change": true, "applied": {"predicted": null}}),
        )],
        false,
    );
    assert!(run.states[0].changes.is_empty());
    assert_eq!(run.states[0].comment, "done");
}

#[test]
fn values_of_sensitive_states_are_not_shown() {
    let mut own = chunk("a", json!({"change": true}));
    own.sensitive = true;
    let (run, ..) = go(vec![own], false);
    assert_eq!(
        Value::Object(run.states[0].changes.clone()),
        json!({"predicted": "(sensitive, not shown)"})
    );
}

#[test]
fn a_requisite_on_nothing_is_a_failure_not_a_panic() {
    let mut wrong = chunk("a", json!({}));
    wrong.requisites.require = vec![7];
    let (run, ..) = go(vec![wrong], false);
    assert_eq!(results(&run), [("a", Some(false), false)]);
}
