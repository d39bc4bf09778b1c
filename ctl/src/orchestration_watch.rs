//! An orchestration, from its start to the last step.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Instant;

use futures_util::future::join_all;
use halite_proto::v1;
use serde_json::Value;

use crate::cli::Global;
use crate::client::Operator;
use crate::event_stream::{Heard, follow, kind};
use crate::finished_run::LEFT_OUT;
pub use crate::finished_run::{FinishedRun, print_outcome, print_outcomes};
use crate::job_watch::{failures, progress, waiting};
use crate::output::{Screen, seconds};

/// Starts an orchestration, or joins a running one, and waits for its end. Shows its steps on one
/// growing line (`label host ✓ images ✓`), or without a terminal on one line each.
///
/// # Errors
/// The master refuses the orchestration, or does not answer any more.
pub async fn run_orchestration(
    global: &Global,
    request: v1::OrchestrateRequest,
    label: &str,
    screen: &mut Screen,
) -> anyhow::Result<FinishedRun> {
    let board = RefCell::new(Board::new(screen, false));
    run_on(global, request, label, &board).await
}

/// Starts orchestrations side by side, or joins running ones, and waits for the end of all; each
/// has a label. On a terminal, the growing line shows the running step of each, and the steps of
/// one are a line of their own when it has ended.
pub async fn run_orchestrations(
    global: &Global,
    requests: Vec<(String, v1::OrchestrateRequest)>,
    screen: &mut Screen,
) -> Vec<(String, anyhow::Result<FinishedRun>)> {
    let board = RefCell::new(Board::new(screen, true));
    let board = &board;
    let runs = requests.into_iter().map(async |(label, request)| {
        let done = run_on(global, request, &label, board).await;
        (label, done)
    });
    join_all(runs).await
}

async fn run_on(
    global: &Global,
    request: v1::OrchestrateRequest,
    label: &str,
    board: &RefCell<Board<'_>>,
) -> anyhow::Result<FinishedRun> {
    let request = v1::OrchestrateRequest {
        request_id: uuid::Uuid::now_v7().to_string(),
        ..request
    };
    let started = Instant::now();
    let mut watch = StepsWatch::new(label);
    let start = async |mut operator: Operator| {
        operator
            .orchestrate(request.clone())
            .await
            .map(|answer| answer.into_inner())
    };
    let followed = follow(global, start, |heard| match heard {
        Heard::Event(event) => watch.take(event, &mut board.borrow_mut()),
        Heard::Silence(line) => {
            let screen = &mut *board.borrow_mut().screen;
            let mark = screen.paint().notable("!");
            screen.line(format!("{mark} {label}  {line}"));
            false
        }
    });
    let followed = followed.await;
    let board = &mut board.borrow_mut();
    board.running.remove(label);
    followed?;
    let mut done = watch.done;
    done.seconds = started.elapsed().as_secs_f64();
    if board.screen.is_live() && !watch.line.is_empty() {
        board.screen.line(format!(
            "{label}  {}  {}",
            watch.line.join("  "),
            seconds(done.seconds)
        ));
    }
    Ok(done)
}

/// The screen that runs share.
struct Board<'a> {
    screen: &'a mut Screen,
    /// More than one run.
    several: bool,
    /// The running step of each run, by its label.
    running: BTreeMap<String, String>,
}

impl<'a> Board<'a> {
    fn new(screen: &'a mut Screen, several: bool) -> Self {
        Self {
            screen,
            several,
            running: BTreeMap::new(),
        }
    }

    /// Replaces the line that grows: `line` of the only run, or the running step of each run.
    fn progress(&mut self, label: &str, line: &str, running: String) {
        if !self.several {
            return self.screen.progress(line);
        }
        self.running.insert(label.to_owned(), running);
        let each: Vec<String> = (self.running.iter())
            .map(|(label, running)| format!("{label}{running}"))
            .collect();
        self.screen.progress(&each.join("   "));
    }
}

/// The state of an orchestration, collected from its events.
struct StepsWatch {
    label: String,
    /// The finished steps with their marks, in the order in which they ended.
    line: Vec<String>,
    running: String,
    /// What a step was last said to wait for: step, end and reason.
    waits: [String; 3],
    /// The statuses that were shown, by the position of the step.
    displayed: BTreeMap<u64, String>,
    /// The failures of each minion in its last attempt. A repeated attempt replaces the interrupted
    /// one.
    failed: BTreeMap<String, Vec<String>>,
    /// The errors of failed steps. If minions failed, these repeat the minions' failures.
    failed_steps: Vec<String>,
    done: FinishedRun,
}

impl StepsWatch {
    fn new(label: &str) -> Self {
        Self {
            label: label.to_owned(),
            line: Vec::new(),
            running: String::new(),
            waits: Default::default(),
            displayed: BTreeMap::new(),
            failed: BTreeMap::new(),
            failed_steps: Vec::new(),
            done: FinishedRun::default(),
        }
    }

    fn take(&mut self, event: &v1::Event, board: &mut Board<'_>) -> bool {
        let data: Value = serde_json::from_str(&event.data_json).unwrap_or_default();
        let of_run = event.tag.starts_with("halite/run/");
        match kind(&event.tag) {
            "step" if of_run => self.step(&data, board),
            "wait" if of_run => self.wait(&data, board),
            "cancel" if of_run => self.cancelled(&data, board),
            "prog" => self.show(&progress(&data), board),
            "ret" => {
                let minion = data["minion"].as_str().unwrap_or_default().to_owned();
                self.failed.insert(minion, failures(&data));
            }
            _ => {}
        }
        if event.last && of_run {
            self.done.retcode = event.retcode;
            self.done.summary = data;
            let failed = std::mem::take(&mut self.failed).into_values().flatten();
            self.done.failures = failed.collect();
            if self.done.failures.is_empty() {
                self.done.failures = std::mem::take(&mut self.failed_steps);
            }
            if let Some(by) = self.done.cancelled_by() {
                let id = self.done.summary["id"].as_str().unwrap_or_default();
                let line = format!("the run {id} was cancelled by {by}");
                self.done.failures.insert(0, line);
            }
            return true;
        }
        false
    }

    fn step(&mut self, data: &Value, board: &mut Board<'_>) {
        let name = data["id"].as_str().unwrap_or_default();
        let status = data["status"].as_str().unwrap_or_default();
        let index = data["index"].as_u64().unwrap_or(0);
        if self.displayed.insert(index, status.to_owned()).as_deref() == Some(status) {
            return;
        }
        let paint = board.screen.paint();
        let mark = match status {
            "succeeded" => paint.good("✓"),
            "failed" => paint.bad("✗"),
            "skipped" => "–".to_owned(),
            _ => {
                self.running = name.to_owned();
                return self.show("", board);
            }
        };
        self.running.clear();
        let mark = self.remarks(name, &data["detail"]) + &mark;
        // A fingerprint is too long for a line that has to leave room for other steps.
        if board.screen.is_live() && data["detail"]["fingerprint"].is_string() {
            board.screen.line(format!("{}  {name} {mark}", self.label));
        } else {
            self.line.push(format!("{name} {mark}"));
        }
        if let Some(error) = data["detail"]["error"].as_str() {
            self.failed_steps.push(format!("step {name}: {error}"));
        }
        if board.screen.is_live() {
            self.show("", board);
        } else {
            let time = data["seconds"]
                .as_f64()
                .map(|time| format!("  {}", seconds(time)))
                .unwrap_or_default();
            board
                .screen
                .line(format!("{}  {name} {mark}{time}", self.label));
        }
    }

    /// Prints what a step waits for: one line, and another one when the reason has changed.
    fn wait(&mut self, data: &Value, board: &mut Board<'_>) {
        let text = |key: &str| data[key].as_str().unwrap_or_default();
        let reason = ["step", "until", "because"].map(|key| text(key).to_owned());
        if self.waits == reason {
            return;
        }
        let mark = board.screen.paint().notable("!");
        let line = format!("{mark} {}  {}", self.label, waiting(data));
        board.screen.line(line);
        self.waits = reason;
    }

    /// Prints that an operator ends the run.
    fn cancelled(&self, data: &Value, board: &mut Board<'_>) {
        let by = data["operator"].as_str().unwrap_or_default();
        let mark = board.screen.paint().notable("!");
        let line = format!("{mark} {}  cancelled by {by}", self.label);
        board.screen.line(line);
    }

    /// The text before the mark of a step. Minions that a step left out are noted for the end.
    fn remarks(&mut self, step: &str, detail: &Value) -> String {
        if let Some(fingerprint) = detail["fingerprint"].as_str() {
            return format!("(fingerprint {fingerprint}) ");
        }
        for warning in detail["warnings"].as_array().into_iter().flatten() {
            let warning = warning.as_str().unwrap_or_default().trim();
            self.done.notes.push(format!("{step}: {warning}"));
        }
        if let Some(checks) = detail["checks"].as_u64() {
            return format!("({checks} checks) ");
        }
        let left_out = detail["left_out"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        let left_out = left_out.collect::<Vec<_>>().join(", ");
        if left_out.is_empty() {
            return String::new();
        }
        self.done.notes.push(format!(
            "{LEFT_OUT} `{step}`: {left_out}. The next `ctl highstate` applies the missing changes."
        ));
        format!("(offline: {left_out}) ")
    }

    fn show(&self, below: &str, board: &mut Board<'_>) {
        let running = if self.running.is_empty() {
            String::new()
        } else {
            format!("  {} …", self.running)
        };
        let line = format!("{}  {}{running}  {below}", self.label, self.line.join("  "));
        board.progress(&self.label, &line, running);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(tag: &str, data: Value, last: bool) -> v1::Event {
        v1::Event {
            tag: tag.into(),
            data_json: data.to_string(),
            last,
            retcode: 0,
            ..v1::Event::default()
        }
    }

    #[test]
    fn a_repeated_step_event_is_shown_once() {
        let screen = &mut Screen::new(crate::output::Format::Json);
        let board = &mut Board::new(screen, false);
        let mut watch = StepsWatch::new("b");
        for status in ["running", "succeeded", "succeeded"] {
            let data =
                json!({"id": "host", "index": 0, "status": status, "seconds": 1.5, "detail": {}});
            assert!(!watch.take(&event("halite/run/1/step", data, false), board));
        }
        assert_eq!(watch.line, ["host ✓"]);
        let failed = json!({"id": "x", "index": 1, "status": "failed", "detail": {"error": "why"}});
        assert!(!watch.take(&event("halite/run/1/step", failed, false), board));
        assert!(watch.take(&event("halite/run/1/done", json!({}), true), board));
        assert_eq!(watch.done.failures, ["step x: why"]);
    }

    #[test]
    fn enrolments_and_omitted_minions_are_shown() {
        let screen = &mut Screen::new(crate::output::Format::Json);
        let board = &mut Board::new(screen, false);
        let mut watch = StepsWatch::new("b");
        let steps = [
            ("enrolled", json!({"fingerprint": "ab:cd"})),
            ("peers", json!({"left_out": ["w2", "w3"]})),
            (
                "preflight",
                json!({"checks": 30, "warnings": ["  mtu: it differs\n    make it equal"]}),
            ),
        ];
        for (index, (id, detail)) in steps.into_iter().enumerate() {
            let data = json!({"id": id, "index": index, "status": "succeeded", "detail": detail});
            watch.take(&event("halite/run/1/step", data, false), board);
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
        let screen = &mut Screen::new(crate::output::Format::Json);
        let board = &mut Board::new(screen, false);
        let mut watch = StepsWatch::new("b");
        let cancel = json!({"id": "1", "operator": "alice"});
        assert!(!watch.take(&event("halite/run/1/cancel", cancel, false), board));
        let step = json!({"id": "turn", "index": 0, "status": "failed", "detail": {"error": "cancelled by alice"}});
        watch.take(&event("halite/run/1/step", step, false), board);
        let done = json!({"id": "1", "status": "cancelled", "cancelledBy": "alice"});
        watch.take(&event("halite/run/1/done", done, true), board);
        assert_eq!(
            watch.done.failures,
            [
                "the run 1 was cancelled by alice",
                "step turn: cancelled by alice"
            ]
        );
    }

    #[test]
    fn a_wait_is_said_once_for_each_reason() {
        let screen = &mut Screen::new(crate::output::Format::Json);
        let board = &mut Board::new(screen, false);
        let mut watch = StepsWatch::new("b");
        let mut said = Vec::new();
        for (seconds, because) in [(10, "a holds it"), (20, "a holds it"), (30, "c holds it")] {
            let data = json!({"step": "turn", "until": "it is free", "because": because,
                "seconds": seconds, "remedy": "wait"});
            let before = watch.waits.clone();
            assert!(!watch.take(&event("halite/run/1/wait", data, false), board));
            said.push(before != watch.waits);
        }
        assert_eq!(said, [true, false, true]);
    }

    #[test]
    fn only_the_last_attempt_of_a_minion_counts() {
        let screen = &mut Screen::new(crate::output::Format::Json);
        let board = &mut Board::new(screen, false);
        let mut watch = StepsWatch::new("b");
        let ret = |success: bool, error: &str| json!({"minion": "w", "success": success, "error": error, "return": null});
        watch.take(
            &event("halite/job/1/ret/w", ret(false, "interrupted"), false),
            board,
        );
        watch.take(
            &event("halite/job/2/ret/w", ret(false, "no such package"), false),
            board,
        );
        let failed = json!({"id": "x", "index": 1, "status": "failed", "detail": {"error": "w: no such package"}});
        watch.take(&event("halite/run/1/step", failed, false), board);
        watch.take(&event("halite/run/1/done", json!({}), true), board);
        assert_eq!(watch.done.failures, ["w: no such package"]);

        let mut watch = StepsWatch::new("b");
        watch.take(
            &event("halite/job/1/ret/w", ret(false, "interrupted"), false),
            board,
        );
        watch.take(&event("halite/job/2/ret/w", ret(true, ""), false), board);
        watch.take(&event("halite/run/1/done", json!({}), true), board);
        assert!(watch.done.failures.is_empty());
    }
}
