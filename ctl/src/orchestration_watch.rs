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
pub use crate::finished_run::{FinishedRun, print_outcome, print_outcomes, success_of};
use crate::job_watch::{failures, progress, waiting};
use crate::output::{Screen, seconds};

/// Starts an orchestration, or joins a running one, and waits for its end. Each step gets a line when
/// it has ended, with its seconds; on a terminal, the running step and each host that it runs on have
/// a live line.
///
/// # Errors
/// The master refuses the orchestration, or does not answer any more.
pub async fn run_orchestration(
    global: &Global,
    request: v1::OrchestrateRequest,
    label: &str,
    screen: &mut Screen,
) -> anyhow::Result<FinishedRun> {
    run_on(global, request, label, &RefCell::new(screen)).await
}

/// Starts orchestrations in parallel, or joins running ones, and waits for the end of all; each has a
/// label. Their lines are as those of one.
pub async fn run_orchestrations(
    global: &Global,
    requests: Vec<(String, v1::OrchestrateRequest)>,
    screen: &mut Screen,
) -> Vec<(String, anyhow::Result<FinishedRun>)> {
    let screen = &RefCell::new(screen);
    let runs = requests.into_iter().map(async |(label, request)| {
        let done = run_on(global, request, &label, screen).await;
        (label, done)
    });
    join_all(runs).await
}

async fn run_on(
    global: &Global,
    request: v1::OrchestrateRequest,
    label: &str,
    screen: &RefCell<&mut Screen>,
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
        Heard::Event(event) => watch.take(event, &mut screen.borrow_mut()),
        Heard::Silence(line) => {
            let screen = &mut screen.borrow_mut();
            let mark = screen.paint().notable("!");
            screen.news(format!("{mark} {label}  {line}"));
            false
        }
    });
    let followed = followed.await;
    watch.hide(&screen.borrow());
    followed?;
    let mut done = watch.done;
    done.seconds = started.elapsed().as_secs_f64();
    Ok(done)
}

/// The state of an orchestration, collected from its events.
struct StepsWatch {
    label: String,
    /// The lines of the finished steps, in the order in which they ended.
    finished: Vec<String>,
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
            finished: Vec::new(),
            waits: Default::default(),
            displayed: BTreeMap::new(),
            failed: BTreeMap::new(),
            failed_steps: Vec::new(),
            done: FinishedRun::default(),
        }
    }

    fn take(&mut self, event: &v1::Event, screen: &mut Screen) -> bool {
        let data: Value = serde_json::from_str(&event.data_json).unwrap_or_default();
        let of_run = event.tag.starts_with("halite/run/");
        match kind(&event.tag) {
            "step" if of_run => self.step(&data, screen),
            "wait" if of_run => self.wait(&data, screen),
            "cancel" if of_run => self.cancelled(&data, screen),
            "prog" => {
                let host = data["minion"].as_str().unwrap_or_default();
                let line = format!("  {}", progress(&data));
                screen.live().set(&self.key(host), &line);
            }
            "ret" => {
                let minion = data["minion"].as_str().unwrap_or_default().to_owned();
                screen.live().remove(&self.key(&minion));
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

    fn step(&mut self, data: &Value, screen: &mut Screen) {
        let name = data["id"].as_str().unwrap_or_default();
        let status = data["status"].as_str().unwrap_or_default();
        let index = data["index"].as_u64().unwrap_or(0);
        if self.displayed.insert(index, status.to_owned()).as_deref() == Some(status) {
            return;
        }
        let paint = screen.paint();
        let mark = match status {
            "succeeded" => paint.good("✓"),
            "failed" => paint.bad("✗"),
            "skipped" => "–".to_owned(),
            _ => {
                let line = format!("{}  {name} …", self.label);
                return screen.live().set(&self.key(""), &line);
            }
        };
        self.hide(screen);
        let mark = self.remarks(name, &data["detail"]) + &mark;
        if let Some(error) = data["detail"]["error"].as_str() {
            self.failed_steps.push(format!("step {name}: {error}"));
        }
        let time = (data["seconds"].as_f64())
            .map(|time| format!("  {}", seconds(time)))
            .unwrap_or_default();
        let line = format!("{}  {name} {mark}{time}", self.label);
        screen.line(&line);
        self.finished.push(line);
    }

    /// The key of the live line of the running step, or of a host that it runs on.
    fn key(&self, host: &str) -> String {
        format!("{}/{host}", self.label)
    }

    /// Removes the live lines of this orchestration.
    fn hide(&self, screen: &Screen) {
        let own = self.key("");
        screen.live().retain(|key| !key.starts_with(&own));
    }

    /// Prints what a step waits for: one line, and another one when the reason has changed.
    fn wait(&mut self, data: &Value, screen: &mut Screen) {
        let text = |key: &str| data[key].as_str().unwrap_or_default();
        let reason = ["step", "until", "because"].map(|key| text(key).to_owned());
        if self.waits == reason {
            return;
        }
        let mark = screen.paint().notable("!");
        screen.news(format!("{mark} {}  {}", self.label, waiting(data)));
        self.waits = reason;
    }

    /// Prints that an operator ends the run.
    fn cancelled(&self, data: &Value, screen: &mut Screen) {
        let by = data["operator"].as_str().unwrap_or_default();
        let mark = screen.paint().notable("!");
        screen.news(format!("{mark} {}  cancelled by {by}", self.label));
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
}

#[cfg(test)]
mod tests {
    use halite_testkit::pty::Pty;
    use serde_json::json;

    use super::*;
    use crate::output::Format;

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
        let mut watch = StepsWatch::new("b");
        for status in ["running", "succeeded", "succeeded"] {
            let data =
                json!({"id": "host", "index": 0, "status": status, "seconds": 1.5, "detail": {}});
            assert!(!watch.take(&event("halite/run/1/step", data, false), screen));
        }
        assert_eq!(watch.finished, ["b  host ✓  1.5 s"]);
        let failed = json!({"id": "x", "index": 1, "status": "failed", "detail": {"error": "why"}});
        assert!(!watch.take(&event("halite/run/1/step", failed, false), screen));
        assert!(watch.take(&event("halite/run/1/done", json!({}), true), screen));
        assert_eq!(watch.done.failures, ["step x: why"]);
    }

    /// Of 36 steps, the running one and its hosts are always visible, and the finished ones have scrolled up.
    #[test]
    fn a_terminal_shows_the_finished_steps_the_running_one_and_each_host() {
        for columns in [80, 120] {
            let mut pty = Pty::new(columns, 8);
            let mut screen = Screen::on(Format::Table, pty.terminal(), pty.terminal());
            let screen = &mut screen;
            let mut watch = StepsWatch::new("upgrade");
            let mut step = |index: usize, status: &str, screen: &mut Screen| {
                let data = json!({"id": format!("step-{index}"), "index": index, "status": status,
                    "seconds": 1.5, "detail": {}});
                watch.take(&event("halite/run/1/step", data, false), screen);
            };
            for index in 0..35 {
                step(index, "running", screen);
                step(index, "succeeded", screen);
            }
            step(35, "running", screen);
            let mut progress = |minion: &str, index: usize, screen: &mut Screen| {
                let state =
                    json!({"function": "file.managed", "name": format!("/{}", "x".repeat(200))});
                let data = json!({"jid": "1", "minion": minion, "index": index, "total": 36, "state": state});
                let tag = format!("halite/job/1/prog/{minion}");
                watch.take(&event(&tag, data, false), screen);
            };
            progress("w2", 2, screen);
            progress("w1", 11, screen);
            let lines = pty.lines();
            assert_eq!(
                lines[..4],
                [31, 32, 33, 34].map(|n| format!("upgrade  step-{n} ✓  1.5 s"))
            );
            assert_eq!(lines[4], "upgrade  step-35 …");
            assert!(
                lines[5].starts_with("  w1  12/36  file.managed /xx"),
                "{lines:?}"
            );
            assert!(
                lines[6].starts_with("  w2  3/36  file.managed /xx"),
                "{lines:?}"
            );
            assert_eq!(lines[5].chars().count(), usize::from(columns) - 1);

            let ret = json!({"minion": "w1", "success": true, "error": "", "return": null});
            watch.take(&event("halite/job/1/ret/w1", ret, false), screen);
            assert!(!pty.lines().iter().any(|line| line.contains("w1")));
            let wait = json!({"step": "step-35", "until": "it is free", "because": "a holds it", "seconds": 10});
            watch.take(&event("halite/run/1/wait", wait, false), screen);
            let last = json!({"id": "step-35", "index": 35, "status": "failed", "seconds": 2.0,
                "detail": {"error": "why"}});
            watch.take(&event("halite/run/1/step", last, false), screen);
            let lines = pty.lines();
            assert_eq!(lines.last().unwrap(), "upgrade  step-35 ✗  2.0 s");
            assert!(
                lines
                    .iter()
                    .any(|line| line.starts_with("! upgrade  step-35: waiting for 10 s"))
            );
        }
    }

    #[test]
    fn a_wait_is_reported_also_where_only_the_document_is_on_standard_output() {
        let mut pty = Pty::new(120, 24);
        let out = tempfile::NamedTempFile::new().unwrap();
        let mut screen = Screen::on(Format::Json, out.reopen().unwrap(), pty.terminal());
        let mut watch = StepsWatch::new("b");
        let wait =
            json!({"step": "turn", "until": "it is free", "because": "a holds it", "seconds": 10});
        watch.take(&event("halite/run/1/wait", wait, false), &mut screen);
        let line = "! b  turn: waiting for 10 s until it is free: a holds it";
        assert_eq!(pty.lines(), [line]);
        assert_eq!(std::fs::read_to_string(out.path()).unwrap(), "");
    }

    #[test]
    fn enrolments_and_omitted_minions_are_shown() {
        let screen = &mut Screen::new(crate::output::Format::Json);
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
            watch.take(&event("halite/run/1/step", data, false), screen);
        }
        assert_eq!(
            watch.finished,
            [
                "b  enrolled (fingerprint ab:cd) ✓",
                "b  peers (offline: w2, w3) ✓",
                "b  preflight (30 checks) ✓"
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
        let mut watch = StepsWatch::new("b");
        let cancel = json!({"id": "1", "operator": "alice"});
        assert!(!watch.take(&event("halite/run/1/cancel", cancel, false), screen));
        let step = json!({"id": "turn", "index": 0, "status": "failed", "detail": {"error": "cancelled by alice"}});
        watch.take(&event("halite/run/1/step", step, false), screen);
        let done = json!({"id": "1", "status": "cancelled", "cancelledBy": "alice"});
        watch.take(&event("halite/run/1/done", done, true), screen);
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
        let mut watch = StepsWatch::new("b");
        let mut said = Vec::new();
        for (seconds, because) in [(10, "a holds it"), (20, "a holds it"), (30, "c holds it")] {
            let data = json!({"step": "turn", "until": "it is free", "because": because,
                "seconds": seconds, "remedy": "wait"});
            let before = watch.waits.clone();
            assert!(!watch.take(&event("halite/run/1/wait", data, false), screen));
            said.push(before != watch.waits);
        }
        assert_eq!(said, [true, false, true]);
    }

    #[test]
    fn only_the_last_attempt_of_a_minion_counts() {
        let screen = &mut Screen::new(crate::output::Format::Json);
        let mut watch = StepsWatch::new("b");
        let ret = |success: bool, error: &str| json!({"minion": "w", "success": success, "error": error, "return": null});
        watch.take(
            &event("halite/job/1/ret/w", ret(false, "interrupted"), false),
            screen,
        );
        watch.take(
            &event("halite/job/2/ret/w", ret(false, "no such package"), false),
            screen,
        );
        let failed = json!({"id": "x", "index": 1, "status": "failed", "detail": {"error": "w: no such package"}});
        watch.take(&event("halite/run/1/step", failed, false), screen);
        watch.take(&event("halite/run/1/done", json!({}), true), screen);
        assert_eq!(watch.done.failures, ["w: no such package"]);

        let mut watch = StepsWatch::new("b");
        watch.take(
            &event("halite/job/1/ret/w", ret(false, "interrupted"), false),
            screen,
        );
        watch.take(&event("halite/job/2/ret/w", ret(true, ""), false), screen);
        watch.take(&event("halite/run/1/done", json!({}), true), screen);
        assert!(watch.done.failures.is_empty());
    }
}
