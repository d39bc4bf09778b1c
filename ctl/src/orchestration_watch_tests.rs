use halite_api::{
    JobCreated, JobEnded, MinionAnswer, PartReturned, PartState, RunStep, StateProgress,
};
use halite_proto::ids::JobId;
use halite_states::low::{RunReturn, StateReturn};
use halite_testkit::pty::Pty;
use serde_json::Map;

use super::*;
use crate::output::Format;

fn id(number: u64) -> JobId {
    JobId::from_number(number)
}

fn event(data: &EventData, last: bool) -> v1::Event {
    v1::Event {
        tag: data.tag().unwrap(),
        data_json: data.to_text(),
        last,
        ..v1::Event::default()
    }
}

fn step(index: u32, name: &str, status: StepStatus, detail: StepDetail) -> v1::Event {
    let step = Step {
        index,
        name: name.to_owned(),
        status,
        started: None,
        ended: None,
        seconds: Some(1.5),
        detail,
    };
    let data = RunStep {
        run: id(1),
        total: 2,
        step,
    };
    event(&EventData::RunStep(Box::new(data)), false)
}

fn failed(name: &str, error: &str) -> v1::Event {
    let detail = StepDetail {
        error: Some(error.to_owned()),
        ..StepDetail::default()
    };
    step(1, name, StepStatus::Failed, detail)
}

fn done(cancelled_by: Option<&str>) -> v1::Event {
    let data = RunEnded {
        run: id(1),
        status: RunStatus::Failed,
        cancelled_by: cancelled_by.map(str::to_owned),
        paused_by: None,
        retcode: 1,
        steps: Vec::new(),
    };
    event(&EventData::RunEnded(Box::new(data)), true)
}

fn wait(step: &str, because: &str, seconds: u64) -> v1::Event {
    let wait = StepWait {
        run: Some(id(1)),
        step: step.to_owned(),
        until: "it is free".to_owned(),
        because: because.to_owned(),
        seconds,
        ..StepWait::default()
    };
    event(&EventData::Wait(wait), false)
}

fn returned((job, minion): (u64, &str), retcode: i32, error: Option<&str>) -> v1::Event {
    let part = (id(job), minion.parse().unwrap());
    let error = error.map(str::to_owned);
    let data = PartReturned::new(part, PartState::Returned, retcode, None, error);
    event(&EventData::PartReturned(Box::new(data)), false)
}

fn state() -> StateReturn {
    StateReturn {
        index: 0,
        id: String::new(),
        name: String::new(),
        function: String::new(),
        sls: String::new(),
        result: Some(true),
        changes: Map::new(),
        comment: String::new(),
        start_time: String::new(),
        duration: 1.0,
        run_num: 0,
        ran: true,
        fail_run: true,
    }
}

#[test]
fn a_repeated_step_event_is_shown_once() {
    let screen = &mut Screen::new(Format::Json);
    let mut watch = StepsWatch::new("b");
    for status in [
        StepStatus::Running,
        StepStatus::Succeeded,
        StepStatus::Succeeded,
    ] {
        assert!(!watch.take(&step(0, "host", status, StepDetail::default()), screen));
    }
    assert_eq!(watch.finished, ["b  host ✓  1.5 s"]);
    assert!(!watch.take(&failed("x", "why"), screen));
    assert!(watch.take(&done(None), screen));
    assert_eq!(watch.done.failures, ["step x: why"]);
}

/// A newer master may know other ends of a step.
#[test]
fn a_step_with_a_status_of_another_version_does_not_run_for_ever() {
    let mut pty = Pty::new(80, 8);
    let screen = &mut Screen::on(Format::Table, pty.terminal(), pty.terminal());
    let mut watch = StepsWatch::new("b");
    let of = |status| step(0, "host", status, StepDetail::default());
    watch.take(&of(StepStatus::Running), screen);
    assert_eq!(pty.lines(), ["b  host …"]);
    watch.take(&of(StepStatus::Other("deferred".to_owned())), screen);
    assert_eq!(pty.lines(), ["b  host deferred  1.5 s"]);
    assert_eq!(watch.finished.len(), 1);
}

/// Of 36 steps, the running one and its hosts are always visible, and the finished ones have
/// scrolled up.
#[test]
fn a_terminal_shows_the_finished_steps_the_running_one_and_each_host() {
    let of = |index: u32, status: StepStatus, error: Option<&str>| {
        let detail = StepDetail {
            error: error.map(str::to_owned),
            ..StepDetail::default()
        };
        step(index, &format!("step-{index}"), status, detail)
    };
    let progress = |minion: &str, index: u32| {
        let state = StateReturn {
            name: format!("/{}", "x".repeat(200)),
            function: "file.managed".to_owned(),
            ..state()
        };
        let data = StateProgress {
            job: id(1),
            minion: minion.parse().unwrap(),
            index,
            total: 36,
            state: Some(state),
        };
        event(&EventData::StateProgress(Box::new(data)), false)
    };
    for columns in [80, 120] {
        let mut pty = Pty::new(columns, 8);
        let screen = &mut Screen::on(Format::Table, pty.terminal(), pty.terminal());
        let mut watch = StepsWatch::new("upgrade");
        for index in 0..35 {
            watch.take(&of(index, StepStatus::Running, None), screen);
            watch.take(&of(index, StepStatus::Succeeded, None), screen);
        }
        watch.take(&of(35, StepStatus::Running, None), screen);
        watch.take(&progress("w2", 2), screen);
        watch.take(&progress("w1", 11), screen);
        let lines = pty.lines();
        let finished = [31, 32, 33, 34].map(|n| format!("upgrade  step-{n} ✓  1.5 s"));
        assert_eq!(lines[..4], finished);
        assert_eq!(lines[4], "upgrade  step-35 …");
        for (line, begin) in [
            (5, "  w1  12/36  file.managed /xx"),
            (6, "  w2  3/36  file.managed /xx"),
        ] {
            assert!(lines[line].starts_with(begin), "{lines:?}");
        }
        assert_eq!(lines[5].chars().count(), usize::from(columns) - 1);

        watch.take(&returned((1, "w1"), 0, None), screen);
        assert!(!pty.lines().iter().any(|line| line.contains("w1")));
        watch.take(&wait("step-35", "a holds it", 10), screen);
        watch.take(&of(35, StepStatus::Failed, Some("why")), screen);
        let lines = pty.lines();
        assert_eq!(lines.last().unwrap(), "upgrade  step-35 ✗  1.5 s");
        let waits = "! upgrade  step-35: waiting for 10 s";
        assert!(
            lines.iter().any(|line| line.starts_with(waits)),
            "{lines:?}"
        );
    }
}

#[test]
fn a_wait_is_reported_also_where_only_the_document_is_on_standard_output() {
    let mut pty = Pty::new(120, 24);
    let out = tempfile::NamedTempFile::new().unwrap();
    let mut screen = Screen::on(Format::Json, out.reopen().unwrap(), pty.terminal());
    let mut watch = StepsWatch::new("b");
    watch.take(&wait("turn", "a holds it", 10), &mut screen);
    let line = "! b  turn: waiting for 10 s until it is free: a holds it";
    assert_eq!(pty.lines(), [line]);
    assert_eq!(std::fs::read_to_string(out.path()).unwrap(), "");
}

#[test]
fn the_end_of_a_job_is_not_the_end_of_its_run() {
    let screen = &mut Screen::new(Format::Json);
    let mut watch = StepsWatch::new("b");
    let ended = JobEnded {
        job: id(2),
        retcode: 0,
        succeeded: Vec::new(),
        failed: Vec::new(),
        lost: Vec::new(),
    };
    assert!(!watch.take(&event(&EventData::JobEnded(ended), true), screen));
    // The end from a master of another version counts, too.
    let unknown = v1::Event {
        data_json: "{}".to_owned(),
        retcode: 1,
        ..done(None)
    };
    assert!(watch.take(&unknown, screen));
    assert_eq!(watch.done.retcode, 1);
}

#[test]
fn enrolments_and_omitted_minions_are_shown() {
    let screen = &mut Screen::new(Format::Json);
    let mut watch = StepsWatch::new("b");
    let steps = [
        (
            "enrolled",
            StepDetail {
                fingerprint: Some("ab:cd".to_owned()),
                ..StepDetail::default()
            },
        ),
        (
            "peers",
            StepDetail {
                left_out: vec!["w2".parse().unwrap(), "w3".parse().unwrap()],
                ..StepDetail::default()
            },
        ),
        (
            "preflight",
            StepDetail {
                checks: Some(30),
                warnings: vec!["  mtu: it differs\n    make it equal".to_owned()],
                ..StepDetail::default()
            },
        ),
    ];
    for (index, (name, detail)) in (0..).zip(steps) {
        watch.take(&step(index, name, StepStatus::Succeeded, detail), screen);
    }
    assert_eq!(
        watch.finished,
        [
            "b  enrolled (fingerprint ab:cd) ✓  1.5 s",
            "b  peers (offline: w2, w3) ✓  1.5 s",
            "b  preflight (30 checks) ✓  1.5 s"
        ]
    );
    assert!(
        matches!(&watch.done.notes[..], [note, warning] if note.contains("left out of `peers`: w2, w3")
            && warning.starts_with("preflight: mtu: it differs"))
    );
}

#[test]
fn a_cancelled_run_names_the_operator_first() {
    let screen = &mut Screen::new(Format::Json);
    let mut watch = StepsWatch::new("b");
    let cancel = RunCancelled {
        run: id(1),
        operator: "alice".to_owned(),
    };
    assert!(!watch.take(&event(&EventData::RunCancelled(cancel), false), screen));
    watch.take(&failed("turn", "cancelled by alice"), screen);
    watch.take(&done(Some("alice")), screen);
    assert_eq!(
        watch.done.failures,
        [
            format!("the run {} was cancelled by alice", id(1)),
            "step turn: cancelled by alice".to_owned()
        ]
    );
}

#[test]
fn a_wait_is_said_once_for_each_reason() {
    let screen = &mut Screen::new(Format::Json);
    let mut watch = StepsWatch::new("b");
    let mut said = Vec::new();
    for (seconds, because) in [(10, "a holds it"), (20, "a holds it"), (30, "c holds it")] {
        let before = watch.waits.clone();
        assert!(!watch.take(&wait("turn", because, seconds), screen));
        said.push(before != watch.waits);
    }
    assert_eq!(said, [true, false, true]);
}

#[test]
fn only_the_last_attempt_of_a_minion_counts() {
    let screen = &mut Screen::new(Format::Json);
    let mut watch = StepsWatch::new("b");
    watch.take(&returned((1, "w"), 1, Some("interrupted")), screen);
    watch.take(&returned((2, "w"), 1, Some("no such package")), screen);
    watch.take(&failed("x", "w: no such package"), screen);
    watch.take(&done(None), screen);
    assert_eq!(watch.done.failures, ["w: no such package"]);

    let mut watch = StepsWatch::new("b");
    watch.take(&returned((1, "w"), 1, Some("interrupted")), screen);
    watch.take(&returned((2, "w"), 0, None), screen);
    watch.take(&done(None), screen);
    assert!(watch.done.failures.is_empty());
}

#[test]
fn a_test_keeps_what_the_highstate_of_each_host_would_change() {
    let screen = &mut Screen::new(Format::Json);
    let mut watch = StepsWatch::new("b");
    let job = |number: u64, function: &str, test: bool| {
        let created = JobCreated {
            job: id(number),
            function: function.to_owned(),
            target: "a".to_owned(),
            minions: vec!["a".parse().unwrap()],
            order: Vec::new(),
            test,
            operator: "run:1".to_owned(),
        };
        event(&EventData::JobCreated(created), false)
    };
    let predicts = |number: u64, changed: bool| {
        let run = RunReturn {
            states: vec![StateReturn {
                result: if changed { None } else { Some(true) },
                id: "motd".to_owned(),
                name: "/etc/motd".to_owned(),
                function: "file.managed".to_owned(),
                ..state()
            }],
        };
        let part = (id(number), "a".parse().unwrap());
        let answer = MinionAnswer::from_json(&serde_json::to_string(&run).unwrap());
        let data = PartReturned::new(part, PartState::Returned, 0, answer, None);
        event(&EventData::PartReturned(Box::new(data)), false)
    };
    for one in [
        job(7, "state.apply", true),
        predicts(7, true),
        job(8, "state.highstate", true),
        predicts(8, true),
        job(9, "state.highstate", false),
        predicts(9, false),
    ] {
        assert!(!watch.take(&one, screen));
    }
    let [(minion, returned)] = watch.done.predicted.as_slice() else {
        panic!("one host: {:?}", watch.done.predicted)
    };
    let changed = returned.run.as_ref().map(RunReturn::changed);
    assert_eq!((minion.as_str(), changed), ("a", Some(1)));
}

#[test]
fn a_paused_run_has_no_failure_but_the_pause() {
    let screen = &mut Screen::new(Format::Json);
    let mut watch = StepsWatch::new("b");
    watch.take(&failed("cp-2-turn", "paused by alice"), screen);
    let ended = RunEnded {
        run: id(1),
        status: RunStatus::Paused,
        cancelled_by: None,
        paused_by: Some("alice".to_owned()),
        retcode: 1,
        steps: Vec::new(),
    };
    assert!(watch.take(&event(&EventData::RunEnded(Box::new(ended)), true), screen));
    let line = format!("the run {} was paused by alice", id(1));
    assert_eq!(watch.done.failures, [line]);
}
