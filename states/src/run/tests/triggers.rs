//! Triggers across runs.

use std::future::Future as _;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use serde_json::{Value, json};

use super::requisites::{low, with_time};
use super::{Scripted, chunk, results};
use crate::engine::RunOptions;
use crate::low::{Chunk, FORMAT, LowState, Requisites, Retry, RunReturn};
use crate::run::run;

/// Runs once more on the same host; a run that hangs is interrupted there (`None`).
fn run_again(modules: &Scripted, chunks: Vec<Chunk>, test: bool) -> Option<RunReturn> {
    let low = LowState {
        format: FORMAT,
        minion: "m".into(),
        chunks,
    };
    let mut run = pin!(run(&low, modules, RunOptions { test }, |_| {}));
    match run.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(run) => Some(run),
        Poll::Pending => None,
    }
}

/// A file that `args` describes, a state that may hang, and a watcher of the file.
fn file_and_watcher(
    args: Value,
    between: Value,
    watcher: Value,
    tie: fn(&mut Requisites),
) -> Vec<Chunk> {
    let mut watcher = chunk("watcher", watcher);
    tie(&mut watcher.requisites);
    vec![chunk("file", args), chunk("between", between), watcher]
}

/// The requisites by which the first state triggers another.
const TIES: [fn(&mut Requisites); 5] = [
    |ties| ties.watch = vec![0],
    |ties| ties.watch_any = vec![0],
    |ties| ties.onchanges = vec![0],
    |ties| ties.onchanges_any = vec![0],
    |ties| ties.listen = vec![0],
];

fn acted(run: &RunReturn) -> bool {
    run.states
        .last()
        .is_some_and(|state| state.ran && !state.changes.is_empty())
}

#[test]
fn triggers_survive_an_interrupted_run() {
    for (number, tie) in TIES.into_iter().enumerate() {
        let modules = Scripted::default();
        // A command that has to run, or a service that has to restart.
        let watcher = if number == 2 || number == 3 {
            json!({"change": true})
        } else {
            json!({"mod_watch": true})
        };
        let hung = file_and_watcher(
            json!({"change": true}),
            json!({"change": true, "hang": true}),
            watcher.clone(),
            tie,
        );
        assert!(run_again(&modules, hung, false).is_none());
        assert!(
            !modules
                .log
                .lock()
                .unwrap()
                .contains(&"apply watcher".to_owned())
        );
        let states = || file_and_watcher(json!({}), json!({}), watcher.clone(), tie);
        // A prediction does not clear the trigger.
        for _ in 0..2 {
            let predicted = run_again(&modules, states(), true).unwrap();
            assert_eq!(predicted.states.last().unwrap().result, None, "{number}");
        }
        assert!(
            acted(&run_again(&modules, states(), false).unwrap()),
            "{number}"
        );
        assert!(
            !acted(&run_again(&modules, states(), false).unwrap()),
            "{number}"
        );
        assert!(modules.pending.lock().unwrap().is_empty());
    }
}

#[test]
fn a_watcher_that_another_requisite_keeps_from_running_is_triggered_when_it_runs() {
    let modules = Scripted::default();
    let states = |file: Value, other: Value| {
        let mut watcher = chunk("watcher", json!({"mod_watch": true}));
        watcher.requisites.watch = vec![0];
        watcher.requisites.onchanges = vec![1];
        vec![chunk("file", file), chunk("other", other), watcher]
    };
    let change = || json!({"change": true});
    let interrupted = states(change(), json!({"change": true, "hang": true}));
    assert!(run_again(&modules, interrupted, false).is_none());
    modules
        .pending
        .lock()
        .unwrap()
        .retain(|(of, _)| of == "file");
    let skipped = run_again(&modules, states(json!({}), json!({})), false).unwrap();
    assert!(
        skipped.succeeded() && !acted(&skipped),
        "onchanges is not met"
    );
    let due = run_again(&modules, states(json!({}), change()), false).unwrap();
    assert!(acted(&due), "the file's change was never acted on");
    assert!(modules.pending.lock().unwrap().is_empty());
}

#[test]
fn a_watcher_that_fails_is_triggered_again() {
    for tie in TIES.into_iter().skip(2).take(2) {
        let modules = Scripted::default();
        let changed = file_and_watcher(
            json!({"change": true}),
            json!({}),
            json!({"fail": true}),
            tie,
        );
        assert!(!run_again(&modules, changed, false).unwrap().succeeded());
        let still = file_and_watcher(json!({}), json!({}), json!({"fail": true}), tie);
        assert!(
            !run_again(&modules, still, false).unwrap().succeeded(),
            "a failure is not forgotten"
        );
        let repaired = || file_and_watcher(json!({}), json!({}), json!({"change": true}), tie);
        assert!(acted(&run_again(&modules, repaired(), false).unwrap()));
        assert!(!acted(&run_again(&modules, repaired(), false).unwrap()));
    }
}

#[test]
fn only_watchers_that_have_not_acted_are_triggered_again() {
    let states = |file: Value, second: Value| {
        let mut watchers = [
            chunk("first", json!({"change": true})),
            chunk("second", second),
        ];
        watchers
            .iter_mut()
            .for_each(|watcher| watcher.requisites.onchanges = vec![0]);
        let [first, second] = watchers;
        vec![chunk("file", file), first, second]
    };
    let modules = Scripted::default();
    run_again(
        &modules,
        states(json!({"change": true}), json!({"fail": true})),
        false,
    )
    .unwrap();
    assert_eq!(modules.pending.lock().unwrap().len(), 1);
    // A run without the second watcher triggers no one.
    let some = states(json!({}), json!({})).into_iter().take(2).collect();
    let run = run_again(&modules, some, false).unwrap();
    assert_eq!(results(&run)[1], ("first", Some(true), false));
    let run = run_again(&modules, states(json!({}), json!({"change": true})), false).unwrap();
    assert_eq!(
        results(&run)[1..],
        [("first", Some(true), false), ("second", Some(true), true)]
    );
    assert!(modules.pending.lock().unwrap().is_empty());
}

#[test]
fn a_failed_state_triggers_no_one_until_it_succeeds() {
    for (number, tie) in TIES.into_iter().enumerate() {
        let (modules, watcher) = (
            Scripted::default(),
            json!({"change": number != 4, "mod_watch": true}),
        );
        modules
            .pending
            .lock()
            .unwrap()
            .insert(("file".into(), "watcher".into()));
        for _ in 0..2 {
            let failed = file_and_watcher(json!({"fail": true}), json!({}), watcher.clone(), tie);
            let run = run_again(&modules, failed, false).unwrap();
            let acted = run
                .states
                .iter()
                .any(|state| state.id.contains("watcher") && !state.changes.is_empty());
            assert!(!acted, "{number}");
        }
        let repaired = || file_and_watcher(json!({}), json!({}), watcher.clone(), tie);
        assert!(
            acted(&run_again(&modules, repaired(), false).unwrap()),
            "{number}"
        );
        assert!(modules.pending.lock().unwrap().is_empty());
    }
}

/// The next attempt, or `check_cmd`, finds nothing more to change.
#[test]
fn a_change_of_a_failed_attempt_triggers() {
    for (number, tie) in TIES.into_iter().enumerate() {
        for has_retry in [true, false] {
            let modules = Scripted::default();
            let watcher = json!({"change": number == 2 || number == 3, "mod_watch": true});
            let file = json!({"change": true, "fails_halfway": true});
            let mut states = file_and_watcher(file, json!({}), watcher, tie);
            if has_retry {
                states[0].controls.retry = Some(Retry {
                    attempts: 2,
                    interval: 0.0,
                    until: true,
                    splay: 0,
                });
            } else {
                states[0].controls.check_cmd = vec!["true".into()];
            }
            let low = low(states);
            let run = with_time(run(&low, &modules, RunOptions::default(), |_| {}));
            assert!(run.succeeded() && acted(&run), "{number}, {has_retry}");
            assert!(modules.pending.lock().unwrap().is_empty());
        }
    }
}

/// Like a stateful command that reports `changed=no`.
#[test]
fn a_change_that_was_not_made_after_all_triggers_no_one() {
    for (number, tie) in TIES.into_iter().enumerate() {
        let modules = Scripted::default();
        let file = json!({"change": true, "applied": {"predicted": null}});
        let watcher = json!({"change": number == 2 || number == 3, "mod_watch": true});
        let states = file_and_watcher(file, json!({}), watcher, tie);
        let run = run_again(&modules, states, false).unwrap();
        assert!(run.succeeded() && !acted(&run), "{number}");
        assert!(modules.pending.lock().unwrap().is_empty(), "{number}");
    }
}

#[test]
fn a_change_whose_trigger_cannot_be_recorded_is_not_made() {
    let modules = Scripted::default();
    let states = file_and_watcher(
        json!({"change": true, "disk_full": true}),
        json!({}),
        json!({}),
        TIES[0],
    );
    let run = run_again(&modules, states, false).unwrap();
    assert_eq!(results(&run)[0], ("file", Some(false), true));
    assert_eq!(run.states[0].comment, "no space left");
    assert!(
        !modules
            .log
            .lock()
            .unwrap()
            .contains(&"apply file".to_owned())
    );
}

#[test]
fn a_change_without_watchers_is_not_recorded() {
    let modules = Scripted::default();
    let states = vec![chunk("file", json!({"change": true, "disk_full": true}))];
    assert!(run_again(&modules, states, false).unwrap().succeeded());
}
