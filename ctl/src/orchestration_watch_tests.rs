use halite_api::{JobEnded, PartReturned, PartState, RunStatus, RunStep};
use halite_proto::ids::JobId;

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
        retcode: 1,
        steps: Vec::new(),
    };
    event(&EventData::RunEnded(Box::new(data)), true)
}

#[test]
fn a_repeated_step_event_is_shown_once() {
    let screen = &mut Screen::new(Format::Json);
    let board = &mut Board::new(screen, false);
    let mut watch = StepsWatch::new("b");
    for status in [
        StepStatus::Running,
        StepStatus::Succeeded,
        StepStatus::Succeeded,
    ] {
        assert!(!watch.take(&step(0, "host", status, StepDetail::default()), board));
    }
    assert_eq!(watch.line, ["host ✓"]);
    assert!(!watch.take(&failed("x", "why"), board));
    assert!(watch.take(&done(None), board));
    assert_eq!(watch.done.failures, ["step x: why"]);
}

#[test]
fn the_end_of_a_job_is_not_the_end_of_its_run() {
    let screen = &mut Screen::new(Format::Json);
    let board = &mut Board::new(screen, false);
    let mut watch = StepsWatch::new("b");
    let ended = JobEnded {
        job: id(2),
        retcode: 0,
        succeeded: Vec::new(),
        failed: Vec::new(),
        lost: Vec::new(),
    };
    assert!(!watch.take(&event(&EventData::JobEnded(ended), true), board));
    // That of a master of another version, too, is an end.
    let unknown = v1::Event {
        data_json: "{}".to_owned(),
        retcode: 1,
        ..done(None)
    };
    assert!(watch.take(&unknown, board));
    assert_eq!(watch.done.retcode, 1);
}

#[test]
fn enrolments_and_omitted_minions_are_shown() {
    let screen = &mut Screen::new(Format::Json);
    let board = &mut Board::new(screen, false);
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
        watch.take(&step(index, name, StepStatus::Succeeded, detail), board);
    }
    assert_eq!(
        watch.line,
        [
            "enrolled (fingerprint ab:cd) ✓",
            "peers (offline: w2, w3) ✓",
            "preflight (30 checks) ✓"
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
    let board = &mut Board::new(screen, false);
    let mut watch = StepsWatch::new("b");
    let cancel = RunCancelled {
        run: id(1),
        operator: "alice".to_owned(),
    };
    assert!(!watch.take(&event(&EventData::RunCancelled(cancel), false), board));
    watch.take(&failed("turn", "cancelled by alice"), board);
    watch.take(&done(Some("alice")), board);
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
    let board = &mut Board::new(screen, false);
    let mut watch = StepsWatch::new("b");
    let mut said = Vec::new();
    for (seconds, because) in [(10, "a holds it"), (20, "a holds it"), (30, "c holds it")] {
        let wait = StepWait {
            run: Some(id(1)),
            step: "turn".to_owned(),
            until: "it is free".to_owned(),
            because: because.to_owned(),
            seconds,
            ..StepWait::default()
        };
        let before = watch.waits.clone();
        assert!(!watch.take(&event(&EventData::Wait(wait), false), board));
        said.push(before != watch.waits);
    }
    assert_eq!(said, [true, false, true]);
}

#[test]
fn only_the_last_attempt_of_a_minion_counts() {
    let screen = &mut Screen::new(Format::Json);
    let board = &mut Board::new(screen, false);
    let returned = |job: u64, retcode: i32, error: Option<&str>| {
        let part = (id(job), "w".parse().unwrap());
        let error = error.map(str::to_owned);
        let data = PartReturned::new(part, PartState::Returned, retcode, None, error);
        event(&EventData::PartReturned(Box::new(data)), false)
    };
    let mut watch = StepsWatch::new("b");
    watch.take(&returned(1, 1, Some("interrupted")), board);
    watch.take(&returned(2, 1, Some("no such package")), board);
    watch.take(&failed("x", "w: no such package"), board);
    watch.take(&done(None), board);
    assert_eq!(watch.done.failures, ["w: no such package"]);

    let mut watch = StepsWatch::new("b");
    watch.take(&returned(1, 1, Some("interrupted")), board);
    watch.take(&returned(2, 0, None), board);
    watch.take(&done(None), board);
    assert!(watch.done.failures.is_empty());
}
