//! `prereq`: the checks of its targets before the state runs. The probes in `tests/salt` compare
//! the rest with Salt.

use serde_json::json;

use super::{chunk, go, results};
use crate::low::Chunk;

#[test]
fn a_failing_prereq_keeps_its_target_from_running() {
    let mut before = chunk("before", json!({"fail": true}));
    before.requisites.prereq = vec![1];
    let (run, log, _) = go(
        vec![before, chunk("target", json!({"change": true}))],
        false,
    );
    assert_eq!(
        results(&run),
        [
            ("before", Some(false), true),
            ("target", Some(false), false)
        ]
    );
    assert_eq!(
        run.states[1].comment,
        "One or more requisite failed: s.before"
    );
    assert_eq!(log, ["check target", "check before"]);
}

#[test]
fn a_prereq_target_that_unless_stops_asks_for_nothing() {
    let mut before = chunk("before", json!({}));
    before.requisites.prereq = vec![1];
    let mut target = chunk("target", json!({"change": true}));
    target.controls.unless = vec![json!("true")];
    let (run, ..) = go(vec![before, target], false);
    assert_eq!(run.states[0].comment, "No changes detected");
}

fn before(id: &str, target: usize) -> Chunk {
    let mut before = chunk(id, json!({}));
    before.requisites.prereq = vec![target];
    before
}

#[test]
fn a_target_that_only_its_watch_action_would_change_counts() {
    let watched = |changes: bool| {
        let mut target = chunk("target", json!({"mod_watch": true}));
        target.requisites.watch = vec![0];
        let config = chunk("config", json!({"change": changes}));
        go(vec![config, before("drain", 2), target], false)
    };
    let (run, log, _) = watched(true);
    assert!(run.states[1].ran);
    assert_eq!(
        log[2..],
        [
            "check target",
            "watch target",
            "check drain",
            "check target",
            "watch target",
            "apply target"
        ]
    );
    let (run, ..) = watched(false);
    assert_eq!(run.states[1].comment, "No changes detected");
}

#[test]
fn a_chain_is_checked_from_its_end() {
    for (change, ran) in [(true, true), (false, false)] {
        let mut middle = chunk("middle", json!({"change": true}));
        middle.requisites.prereq = vec![2];
        let end = chunk("end", json!({"change": change}));
        let (run, ..) = go(vec![before("first", 1), middle, end], false);
        assert_eq!((run.states[0].ran, run.states[1].ran), (ran, ran));
    }
}

#[test]
fn a_target_whose_check_fails_does_not_run_even_if_it_would_succeed_later() {
    let target = chunk("target", json!({"change": true, "fail_times": 1}));
    let (run, log, _) = go(vec![before("drain", 1), target], false);
    assert_eq!(
        results(&run),
        [("drain", Some(false), false), ("target", Some(false), true)]
    );
    assert_eq!(
        run.states[0].comment,
        "One or more requisite failed: s.target"
    );
    assert_eq!(run.states[1].comment, "Failure!");
    assert_eq!(log, ["check target"]);
}

#[test]
fn a_target_waits_for_a_parallel_state_that_checks_it() {
    let mut drain = chunk("drain", json!({"slow": true, "change": true}));
    drain.requisites.prereq = vec![1];
    drain.controls.parallel = true;
    let target = chunk("target", json!({"change": true}));
    let (run, _, reported) = go(vec![drain, target], false);
    assert_eq!(reported, ["drain", "target"]);
    assert_eq!(
        results(&run),
        [("drain", Some(true), true), ("target", Some(true), true)]
    );
}

#[test]
fn a_check_waits_for_what_its_target_requires() {
    let mut directory = chunk("directory", json!({"slow": true, "change": true}));
    directory.controls.parallel = true;
    let mut target = chunk("target", json!({"change": true}));
    target.requisites.require = vec![0];
    let (_, log, _) = go(vec![directory, before("drain", 2), target], false);
    assert_eq!(
        log[..3],
        ["check directory", "apply directory", "check target"]
    );
}
