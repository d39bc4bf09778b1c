//! `listen`: the watch action after all states. The probes in `tests/salt` compare the rest with
//! Salt.

use serde_json::{Value, json};

use super::{chunk, go};
use crate::low::{Chunk, RunReturn};

#[test]
fn listeners_run_last_and_once() {
    let mut listener = chunk("l", json!({"mod_watch": true}));
    listener.requisites.listen = vec![1, 2];
    let (run, ..) = go(
        vec![
            listener,
            chunk("a", json!({"change": true})),
            chunk("b", json!({"change": true})),
        ],
        false,
    );
    let last = run.states.last().unwrap();
    assert_eq!(
        (run.states.len(), last.id.as_str(), last.run_num),
        (4, "listener_l", 3)
    );
    assert_eq!(last.function, "test.mod_watch");
}

/// The return of a listener to a changed state, as `change` makes it.
fn listen(args: Value, change: fn(&mut Chunk)) -> (RunReturn, Vec<String>) {
    let mut listener = chunk("l", args);
    listener.requisites.listen = vec![1];
    change(&mut listener);
    let (run, log, _) = go(vec![listener, chunk("a", json!({"change": true}))], false);
    (run, log)
}

#[test]
fn conditions_keep_a_listener_from_acting() {
    let keeps = |change: fn(&mut Chunk), comment: &str| {
        let (run, log) = listen(json!({"mod_watch": true}), change);
        let last = run.states.last().unwrap();
        assert_eq!((last.id.as_str(), last.ran), ("listener_l", false));
        assert_eq!(last.comment, comment);
        assert!(!log.contains(&"watch l".to_owned()), "{log:?}");
    };
    keeps(
        |chunk| chunk.controls.unless = vec![json!("true")],
        "unless condition is true",
    );
    keeps(
        |chunk| chunk.controls.onlyif = vec![json!("false")],
        "onlyif condition is false",
    );
    keeps(
        |chunk| chunk.controls.creates = vec!["/there".into()],
        "/there exists",
    );
}

#[test]
fn a_listener_is_checked_as_any_state() {
    let (run, _) = listen(json!({"mod_watch": true}), |chunk| {
        chunk.controls.check_cmd = vec!["false".into()];
    });
    assert_eq!(run.states.last().unwrap().result, Some(false));
}

#[test]
fn a_service_that_is_only_enabled_is_restarted_too() {
    let enabled = |only_enables: bool| {
        let args = json!({"change": true, "only_enables": only_enables, "mod_watch": true});
        let mut service = chunk("service", args);
        service.requisites.watch = vec![0];
        let (run, ..) = go(
            vec![chunk("config", json!({"change": true})), service],
            false,
        );
        run.states[1].clone()
    };
    let restarted = enabled(true);
    assert_eq!(restarted.comment, "Success!; Watch statement fired.");
    assert!(restarted.changes.contains_key("predicted"));
    assert!(restarted.changes.contains_key("restarted"));
    assert_eq!(
        enabled(false).comment,
        "Success!",
        "it was started, which is enough"
    );
}
