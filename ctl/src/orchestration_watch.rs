//! An orchestration, from its start to the last step.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Instant;

use futures_util::future::join_all;
use halite_api::{
    EventData, EventTag, RunCancelled, RunEnded, Step, StepDetail, StepStatus, StepWait,
};
use halite_proto::ids::MinionId;
use halite_proto::tonic::{Status, Streaming};
use halite_proto::v1;

use crate::cli::Global;
use crate::client::Operator;
use crate::event_stream::{Heard, follow};
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
    let start = async |mut operator: Operator| {
        let answer = operator.orchestrate(request.clone()).await?;
        Ok(Some(answer.into_inner()))
    };
    follow_steps(global, start, |_| {}, label, board).await
}

/// Follows a run that is there, by the events that `start` asks for; `read` gets each of them.
///
/// # Errors
/// The master refuses, or does not answer any more.
pub async fn watch_run(
    global: &Global,
    start: impl AsyncFn(Operator) -> Result<Option<Streaming<v1::Event>>, Status>,
    read: impl FnMut(&v1::Event),
    label: &str,
    screen: &mut Screen,
) -> anyhow::Result<FinishedRun> {
    let board = RefCell::new(Board::new(screen, false));
    follow_steps(global, start, read, label, &board).await
}

async fn follow_steps(
    global: &Global,
    start: impl AsyncFn(Operator) -> Result<Option<Streaming<v1::Event>>, Status>,
    mut read: impl FnMut(&v1::Event),
    label: &str,
    board: &RefCell<Board<'_>>,
) -> anyhow::Result<FinishedRun> {
    let started = Instant::now();
    let mut watch = StepsWatch::new(label);
    let followed = follow(global, start, |heard| match heard {
        Heard::Event(event) => {
            read(event);
            watch.take(event, &mut board.borrow_mut())
        }
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
    displayed: BTreeMap<u32, StepStatus>,
    /// The failures of each minion in its last attempt. A repeated attempt replaces the interrupted
    /// one.
    failed: BTreeMap<MinionId, Vec<String>>,
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
        match EventData::read(&event.tag, &event.data_json) {
            EventData::RunStep(data) => self.step(&data.step, board),
            EventData::Wait(wait) if wait.run.is_some() => self.wait(&wait, board),
            EventData::RunCancelled(data) => self.cancelled(&data, board),
            EventData::StateProgress(data) => self.show(&progress(&data), board),
            EventData::PartReturned(part) => {
                self.failed.insert(part.minion.clone(), failures(*part));
            }
            EventData::RunEnded(ended) => self.end(*ended),
            _ => {}
        }
        let is_end = event.last && matches!(EventTag::parse(&event.tag), EventTag::Run { .. });
        if is_end {
            self.done.retcode = event.retcode;
        }
        is_end
    }

    /// Takes the end of the run.
    fn end(&mut self, ended: RunEnded) {
        let failed = std::mem::take(&mut self.failed).into_values().flatten();
        self.done.failures = failed.collect();
        if self.done.failures.is_empty() {
            self.done.failures = std::mem::take(&mut self.failed_steps);
        }
        if let Some(by) = &ended.cancelled_by {
            let line = format!("the run {} was cancelled by {by}", ended.run);
            self.done.failures.insert(0, line);
        }
        self.done.run = Some(ended);
    }

    fn step(&mut self, step: &Step, board: &mut Board<'_>) {
        let name = &step.name;
        let before = self.displayed.insert(step.index, step.status.clone());
        if before.as_ref() == Some(&step.status) {
            return;
        }
        let paint = board.screen.paint();
        let mark = match step.status {
            StepStatus::Succeeded => paint.good("✓"),
            StepStatus::Failed => paint.bad("✗"),
            StepStatus::Skipped => "–".to_owned(),
            _ => {
                self.running = name.clone();
                return self.show("", board);
            }
        };
        self.running.clear();
        let mark = self.remarks(name, &step.detail) + &mark;
        // A fingerprint is too long for a line that has to leave room for other steps.
        if board.screen.is_live() && step.detail.fingerprint.is_some() {
            board.screen.line(format!("{}  {name} {mark}", self.label));
        } else {
            self.line.push(format!("{name} {mark}"));
        }
        if let Some(error) = &step.detail.error {
            self.failed_steps.push(format!("step {name}: {error}"));
        }
        if board.screen.is_live() {
            self.show("", board);
        } else {
            let time = step.seconds.map(|time| format!("  {}", seconds(time)));
            let time = time.unwrap_or_default();
            board
                .screen
                .line(format!("{}  {name} {mark}{time}", self.label));
        }
    }

    /// Prints what a step waits for: one line, and another one when the reason has changed.
    fn wait(&mut self, wait: &StepWait, board: &mut Board<'_>) {
        let reason = [&wait.step, &wait.until, &wait.because].map(String::clone);
        if self.waits == reason {
            return;
        }
        let mark = board.screen.paint().notable("!");
        let line = format!("{mark} {}  {}", self.label, waiting(wait));
        board.screen.line(line);
        self.waits = reason;
    }

    /// Prints that an operator ends the run.
    fn cancelled(&self, cancelled: &RunCancelled, board: &mut Board<'_>) {
        let by = &cancelled.operator;
        let mark = board.screen.paint().notable("!");
        let line = format!("{mark} {}  cancelled by {by}", self.label);
        board.screen.line(line);
    }

    /// The text before the mark of a step. Minions that a step left out are noted for the end.
    fn remarks(&mut self, step: &str, detail: &StepDetail) -> String {
        if let Some(fingerprint) = &detail.fingerprint {
            return format!("(fingerprint {fingerprint}) ");
        }
        for warning in &detail.warnings {
            self.done.notes.push(format!("{step}: {}", warning.trim()));
        }
        if let Some(checks) = detail.checks {
            return format!("({checks} checks) ");
        }
        let left_out = detail.left_out.join(", ");
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
#[path = "orchestration_watch_tests.rs"]
mod tests;
