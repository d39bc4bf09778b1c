//! The screen of `ctl highstate`, from the events of its job.

use halite_api::{EventData, JobEnded, MinionAnswer, PartReturned, PartState, StateProgress};
use halite_proto::ids::JobId;
use halite_states::low::{RunReturn, StateReturn};
use halite_testkit::pty::Pty;
use serde_json::{Map, json};

use super::*;
use crate::job_watch::JobWatch;
use crate::output::Format;

fn job() -> JobId {
    JobId::from_number(1)
}

fn minion(name: &str) -> MinionId {
    name.parse().unwrap()
}

fn event(data: &EventData, last: bool) -> v1::Event {
    v1::Event {
        tag: data.tag().unwrap(),
        data_json: data.to_text(),
        last,
        retcode: 1,
        ..v1::Event::default()
    }
}

/// A state of a file. A change is one of its mode.
fn state(name: &str, result: bool, is_changed: bool) -> StateReturn {
    let change = ("mode".to_owned(), json!({"old": "0644", "new": "0600"}));
    StateReturn {
        index: 0,
        id: name.to_owned(),
        name: name.to_owned(),
        function: "file.managed".to_owned(),
        sls: "base".to_owned(),
        result: Some(result),
        changes: Map::from_iter(is_changed.then_some(change)),
        comment: "the disk is full".to_owned(),
        start_time: String::new(),
        duration: 1.0,
        run_num: 0,
        ran: true,
        fail_run: true,
    }
}

fn progress(name: &str, index: u32, path: &str) -> v1::Event {
    let data = StateProgress {
        job: job(),
        minion: minion(name),
        index,
        total: 36,
        state: Some(state(path, true, false)),
    };
    event(&EventData::StateProgress(Box::new(data)), false)
}

fn returned(name: &str, states: Vec<StateReturn>) -> v1::Event {
    let retcode = i32::from(states.iter().any(|state| state.result == Some(false)));
    let answer = MinionAnswer(serde_json::to_value(RunReturn { states }).unwrap());
    let part = (job(), minion(name));
    let part = PartReturned::new(part, PartState::Returned, retcode, Some(answer), None);
    event(&EventData::PartReturned(Box::new(part)), false)
}

fn ended() -> v1::Event {
    let data = JobEnded {
        job: job(),
        retcode: 1,
        succeeded: vec![minion("cp-1"), minion("worker-2")],
        failed: vec![minion("worker-1")],
        lost: Vec::new(),
    };
    event(&EventData::JobEnded(data), true)
}

#[test]
fn a_highstate_shows_each_host_as_it_ends_and_failures_in_full_at_the_end() {
    for columns in [80, 120] {
        let mut pty = Pty::new(columns, 24);
        let mut screen = Screen::on(Format::Table, pty.terminal(), pty.terminal());
        let mut watch = JobWatch::default();
        let mut take = |event: &v1::Event, screen: &mut Screen| {
            let mut show = |minion: &MinionId, returned: &MinionReturn, screen: &mut Screen| {
                show_return(minion, returned, View::default(), screen);
            };
            watch.take(event, screen, &mut show)
        };
        // Each host has one line, which the width of the terminal cuts.
        take(&progress("cp-1", 2, "/etc/a"), &mut screen);
        let long = format!("/{}", "x".repeat(200));
        take(&progress("worker-1", 11, &long), &mut screen);
        take(&progress("worker-2", 0, "/etc/a"), &mut screen);
        let lines = pty.lines();
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert_eq!(lines[0], "cp-1  3/36  file.managed /etc/a");
        assert!(lines[1].starts_with("worker-1  12/36  file.managed /xx"));
        assert!(lines[1].ends_with("x…"), "{lines:?}");
        assert_eq!(lines[1].chars().count(), usize::from(columns) - 1);
        assert_eq!(lines[2], "worker-2  1/36  file.managed /etc/a");

        // A failure is named, a success is shown, and the running host stays below both.
        let failed = vec![state("/etc/a", true, true), state("/etc/b", false, false)];
        take(&returned("worker-1", failed), &mut screen);
        let changed = vec![state("/etc/a", true, true)];
        take(&returned("cp-1", changed), &mut screen);
        let running = [
            "✗ worker-1 failed; the others continue",
            "cp-1: 1 state, 1 change (0.0 s)",
            "  ● file.managed /etc/a  (base)",
            "      mode: 0644 → 0600",
            "worker-2  1/36  file.managed /etc/a",
        ];
        assert_eq!(pty.lines(), running);

        let same = vec![state("/etc/a", true, false)];
        assert!(!take(&returned("worker-2", same), &mut screen));
        assert!(take(&ended(), &mut screen));
        screen.clear();
        let done = watch.done;
        let code = report(&done, View::default(), &Applying::default(), &mut screen);
        assert_eq!(code.unwrap(), FAILED);
        let lines = pty.lines();
        assert_eq!(lines[..4], running[..4]);
        let end = [
            "worker-2: 1 state, 0 changes (0.0 s)",
            "worker-1: 2 states, 1 change, 1 failed (0.0 s)",
            "  ● file.managed /etc/a  (base)",
            "      mode: 0644 → 0600",
            "  ✗ file.managed /etc/b  (base)",
            "      the disk is full",
            "",
            "3 minions, 4 states, 2 changes, 1 failed   (job 00000000000000000001)",
        ];
        assert_eq!(lines[4..], end);
    }
}
