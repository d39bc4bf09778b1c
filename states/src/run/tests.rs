use std::collections::BTreeSet;
use std::future::Future;
use std::pin::pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use serde_json::json;

use super::*;
use crate::engine::{Applied, Checked, Failure};
use crate::low::{Controls, FORMAT, Requisites, Retry};

/// Does what the chunk's arguments say: `fail`, `change`, `mod_watch`, `fail_times`, `hang`; and
/// writes down what it was asked.
#[derive(Default)]
struct Scripted {
    log: Mutex<Vec<String>>,
    /// Ids of states, and of those who have to act on their changes yet.
    owed: Mutex<BTreeSet<(String, String)>>,
}

impl Scripted {
    fn note(&self, what: &str, chunk: &Chunk) {
        self.log
            .lock()
            .unwrap()
            .push(format!("{what} {}", chunk.id));
    }

    fn says(chunk: &Chunk, what: &str) -> bool {
        chunk
            .args
            .get(what)
            .and_then(Value::as_bool)
            .unwrap_or(false)
    }
}

impl Modules for Scripted {
    type Diff = ();

    async fn check(&self, chunk: &Chunk) -> Result<Checked<()>, Failure> {
        self.note("check", chunk);
        let tries = self
            .log
            .lock()
            .unwrap()
            .iter()
            .filter(|line| **line == format!("check {}", chunk.id))
            .count();
        let fail_times = chunk
            .args
            .get("fail_times")
            .and_then(Value::as_u64)
            .unwrap_or(0) as usize;
        if Self::says(chunk, "fail") || tries <= fail_times {
            return Err(Failure("Failure!".into()));
        }
        if Self::says(chunk, "slow") {
            yield_once().await;
        }
        let mut checked = Checked {
            comment: "Success!".into(),
            ..Checked::default()
        };
        if Self::says(chunk, "change") {
            checked
                .changes
                .insert("predicted".into(), json!("secret text"));
        }
        Ok(checked)
    }

    async fn apply(&self, chunk: &Chunk, _: &()) -> Result<Applied, Failure> {
        self.note("apply", chunk);
        if Self::says(chunk, "hang") {
            std::future::pending::<()>().await;
        }
        match chunk.args.get("applied") {
            Some(Value::Object(changes)) => Ok(Applied {
                changes: changes.clone(),
                comment: "done".into(),
            }),
            _ => Ok(Applied::default()),
        }
    }

    async fn predict(&self, chunk: &Chunk, _: &()) {
        self.note("predict", chunk);
    }

    async fn watch(&self, chunk: &Chunk) -> Option<Result<Checked<()>, Failure>> {
        Self::says(chunk, "mod_watch").then(|| {
            self.note("watch", chunk);
            let changes = json!({"restarted": true});
            Ok(Checked {
                changes: changes.as_object().cloned().unwrap_or_default(),
                comment: "Watch statement fired.".into(),
                diff: (),
            })
        })
    }

    async fn condition(&self, _: &Chunk, condition: &Value) -> Result<bool, Failure> {
        Ok(condition == "true")
    }

    async fn exists(&self, path: &str) -> bool {
        path == "/there"
    }

    fn owe(&self, chunk: &Chunk, hearers: &[&Chunk]) -> Result<(), Failure> {
        if Self::says(chunk, "disk_full") && !hearers.is_empty() {
            return Err(Failure("no space left".into()));
        }
        let pairs = hearers
            .iter()
            .map(|hearer| (chunk.id.clone(), hearer.id.clone()));
        self.owed.lock().unwrap().extend(pairs);
        Ok(())
    }

    fn is_owed(&self, chunk: &Chunk, hearer: &Chunk) -> bool {
        self.owed
            .lock()
            .unwrap()
            .contains(&(chunk.id.clone(), hearer.id.clone()))
    }

    fn heard(&self, chunk: &Chunk, hearer: &Chunk) {
        self.owed
            .lock()
            .unwrap()
            .remove(&(chunk.id.clone(), hearer.id.clone()));
    }
}

/// Gives way once, as a state does that waits for something.
async fn yield_once() {
    let mut first = true;
    std::future::poll_fn(move |context| {
        if std::mem::take(&mut first) {
            context.waker().wake_by_ref();
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    })
    .await;
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            return value;
        }
    }
}

fn chunk(id: &str, args: Value) -> Chunk {
    Chunk {
        state: "test".into(),
        fun: "state".into(),
        id: id.into(),
        name: id.into(),
        sls: "s".into(),
        source: crate::low::Position::default(),
        args: args.as_object().cloned().unwrap_or_default(),
        requisites: Requisites::default(),
        controls: Controls::default(),
        sensitive: false,
    }
}

fn go(chunks: Vec<Chunk>, test: bool) -> (RunReturn, Vec<String>, Vec<String>) {
    let low = LowState {
        format: FORMAT,
        minion: "m".into(),
        chunks,
    };
    let modules = Scripted::default();
    let mut reported = Vec::new();
    let result = block_on(run(&low, &modules, RunOptions { test }, |state| {
        reported.push(state.id.clone())
    }));
    (result, modules.log.into_inner().unwrap(), reported)
}

fn results(run: &RunReturn) -> Vec<(&str, Option<bool>, bool)> {
    run.states
        .iter()
        .map(|s| (s.id.as_str(), s.result, s.ran))
        .collect()
}

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
    assert!(go(states(false), false).0.succeeded());
    assert!(!go(states(true), false).0.succeeded());
}

#[test]
fn an_isolated_failure_does_not_fail_the_run() {
    let mut own = chunk("own", json!({"fail": true}));
    own.controls.fail_run = false;
    let (run, ..) = go(vec![own], false);
    assert!(run.succeeded());
    assert_eq!(run.failed(), 1);
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
fn retry_keeps_all_comments_and_stops_at_success() {
    let mut again = chunk("again", json!({"fail_times": 2}));
    again.controls.retry = Some(Retry {
        attempts: 5,
        interval: 0.0,
        until: true,
    });
    let low = LowState {
        format: FORMAT,
        minion: "m".into(),
        chunks: vec![again],
    };
    let modules = Scripted::default();
    let run = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap()
        .block_on(run(&low, &modules, RunOptions::default(), |_| {}));
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

#[test]
fn a_requisite_on_nothing_is_a_failure_not_a_panic() {
    let mut wrong = chunk("a", json!({}));
    wrong.requisites.require = vec![7];
    let (run, ..) = go(vec![wrong], false);
    assert_eq!(results(&run), [("a", Some(false), false)]);
}

/// One run after the other on the same host; one that hangs is cut off there.
fn again(modules: &Scripted, chunks: Vec<Chunk>, test: bool) -> Option<RunReturn> {
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

/// A file that `args` describes, something that may hang, and who acts on the file's changes.
fn file_and(args: Value, between: Value, hearer: Value, tie: fn(&mut Requisites)) -> Vec<Chunk> {
    let mut hearer = chunk("hearer", hearer);
    tie(&mut hearer.requisites);
    vec![chunk("file", args), chunk("between", between), hearer]
}

/// The ways to act on the changes of the first state.
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
fn a_run_that_is_cut_off_leaves_it_to_the_next_to_tell_who_must_act() {
    for (number, tie) in TIES.into_iter().enumerate() {
        let modules = Scripted::default();
        // A command that has to run, or a service that has to restart.
        let hearer = if number == 2 || number == 3 {
            json!({"change": true})
        } else {
            json!({"mod_watch": true})
        };
        let hung = file_and(
            json!({"change": true}),
            json!({"change": true, "hang": true}),
            hearer.clone(),
            tie,
        );
        assert!(again(&modules, hung, false).is_none());
        assert!(
            !modules
                .log
                .lock()
                .unwrap()
                .contains(&"apply hearer".to_owned())
        );
        let states = || file_and(json!({}), json!({}), hearer.clone(), tie);
        // To look at it is not to do it.
        for _ in 0..2 {
            let predicted = again(&modules, states(), true).unwrap();
            assert_eq!(predicted.states.last().unwrap().result, None, "{number}");
        }
        assert!(
            acted(&again(&modules, states(), false).unwrap()),
            "{number}"
        );
        assert!(
            !acted(&again(&modules, states(), false).unwrap()),
            "{number}"
        );
        assert!(modules.owed.lock().unwrap().is_empty());
    }
}

#[test]
fn who_fails_to_act_acts_again() {
    for tie in TIES.into_iter().skip(2).take(2) {
        let modules = Scripted::default();
        let changed = file_and(
            json!({"change": true}),
            json!({}),
            json!({"fail": true}),
            tie,
        );
        assert!(!again(&modules, changed, false).unwrap().succeeded());
        let still = file_and(json!({}), json!({}), json!({"fail": true}), tie);
        assert!(
            !again(&modules, still, false).unwrap().succeeded(),
            "a failure is not forgotten"
        );
        let mended = || file_and(json!({}), json!({}), json!({"change": true}), tie);
        assert!(acted(&again(&modules, mended(), false).unwrap()));
        assert!(!acted(&again(&modules, mended(), false).unwrap()));
    }
}

#[test]
fn of_several_who_hear_only_those_act_again_that_have_not() {
    let states = |file: Value, second: Value| {
        let mut hearers = [
            chunk("first", json!({"change": true})),
            chunk("second", second),
        ];
        hearers
            .iter_mut()
            .for_each(|hearer| hearer.requisites.onchanges = vec![0]);
        let [first, second] = hearers;
        vec![chunk("file", file), first, second]
    };
    let modules = Scripted::default();
    again(
        &modules,
        states(json!({"change": true}), json!({"fail": true})),
        false,
    )
    .unwrap();
    assert_eq!(modules.owed.lock().unwrap().len(), 1);
    // In a run without the second nothing is told to it.
    let some = states(json!({}), json!({})).into_iter().take(2).collect();
    let run = again(&modules, some, false).unwrap();
    assert_eq!(results(&run)[1], ("first", Some(true), false));
    let run = again(&modules, states(json!({}), json!({"change": true})), false).unwrap();
    assert_eq!(
        results(&run)[1..],
        [("first", Some(true), false), ("second", Some(true), true)]
    );
    assert!(modules.owed.lock().unwrap().is_empty());
}

#[test]
fn nobody_acts_on_what_fails_and_all_do_once_it_succeeds() {
    for (number, tie) in TIES.into_iter().enumerate() {
        let (modules, hearer) = (
            Scripted::default(),
            json!({"change": number != 4, "mod_watch": true}),
        );
        modules
            .owed
            .lock()
            .unwrap()
            .insert(("file".into(), "hearer".into()));
        for _ in 0..2 {
            let failed = file_and(json!({"fail": true}), json!({}), hearer.clone(), tie);
            let run = again(&modules, failed, false).unwrap();
            let acted = run
                .states
                .iter()
                .any(|state| state.id.contains("hearer") && !state.changes.is_empty());
            assert!(!acted, "{number}");
        }
        let mended = || file_and(json!({}), json!({}), hearer.clone(), tie);
        assert!(
            acted(&again(&modules, mended(), false).unwrap()),
            "{number}"
        );
        assert!(modules.owed.lock().unwrap().is_empty());
    }
}

#[test]
fn what_cannot_be_noted_is_not_begun() {
    let modules = Scripted::default();
    let states = file_and(
        json!({"change": true, "disk_full": true}),
        json!({}),
        json!({}),
        TIES[0],
    );
    let run = again(&modules, states, false).unwrap();
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
fn what_nobody_acts_on_is_not_noted() {
    let modules = Scripted::default();
    let states = vec![chunk("file", json!({"change": true, "disk_full": true}))];
    assert!(again(&modules, states, false).unwrap().succeeded());
}
