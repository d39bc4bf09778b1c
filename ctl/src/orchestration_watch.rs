//! Follows an orchestration from its start to the last step.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use futures_util::future::join_all;
use halite_api::{
    EventData, EventTag, RunCancelled, RunEnded, RunStatus, Step, StepDetail, StepStatus, StepWait,
};
use halite_proto::ids::{JobId, MinionId};
use halite_proto::tonic::{Status, Streaming};
use halite_proto::v1;

use crate::cli::Global;
use crate::client::Operator;
use crate::event_stream::{CallNews, follow};
use crate::finished_run::LEFT_OUT;
pub use crate::finished_run::{FinishedRun, print_outcome, print_outcomes, success_of};
use crate::job_watch::{failures, progress, waiting};
use crate::output::{Screen, seconds, table};

/// The function that predicts all changes of a host.
const HIGHSTATE: &str = "state.highstate";

/// Starts an orchestration, or joins a running one, and waits for its end. Each step gets a line
/// when it has ended, with its seconds; on a terminal, the running step and each host that it runs
/// on have a live line.
///
/// # Errors
/// The master refuses the orchestration, or no longer answers.
pub async fn run_orchestration(
    global: &Global,
    request: v1::OrchestrateRequest,
    label: &str,
    screen: &mut Screen,
) -> anyhow::Result<FinishedRun> {
    run_on(global, request, label, &RefCell::new(screen)).await
}

/// Starts orchestrations in parallel, or joins running ones, and waits until all have ended; each
/// has a label. Their lines look like those of one orchestration.
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

/// Like [`run_orchestration`], in parallel with other work that prints.
///
/// # Errors
/// The master refuses the orchestration, or no longer answers.
pub async fn run_on(
    global: &Global,
    request: v1::OrchestrateRequest,
    label: &str,
    screen: &RefCell<&mut Screen>,
) -> anyhow::Result<FinishedRun> {
    let request = v1::OrchestrateRequest {
        request_id: uuid::Uuid::now_v7().to_string(),
        ..request
    };
    let start = async |mut operator: Operator| {
        let answer = operator.orchestrate(request.clone()).await?;
        Ok(Some(answer.into_inner()))
    };
    follow_steps(global, start, |_| {}, label, screen).await
}

/// Follows an existing run by the events that `start` requests; `read` gets each event.
///
/// # Errors
/// The master refuses, or no longer answers.
pub async fn watch_run(
    global: &Global,
    start: impl AsyncFn(Operator) -> Result<Option<Streaming<v1::Event>>, Status>,
    read: impl FnMut(&v1::Event),
    label: &str,
    screen: &mut Screen,
) -> anyhow::Result<FinishedRun> {
    follow_steps(global, start, read, label, &RefCell::new(screen)).await
}

async fn follow_steps(
    global: &Global,
    start: impl AsyncFn(Operator) -> Result<Option<Streaming<v1::Event>>, Status>,
    mut read: impl FnMut(&v1::Event),
    label: &str,
    screen: &RefCell<&mut Screen>,
) -> anyhow::Result<FinishedRun> {
    let started = Instant::now();
    let mut watch = StepsWatch::new(label);
    let followed = follow(global, start, |heard| match heard {
        CallNews::Event(event) => {
            read(event);
            watch.take(event, &mut screen.borrow_mut())
        }
        CallNews::Silence(line) => {
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
    done.access_options.clone_from(&global.access_options);
    Ok(done)
}

/// The state of an orchestration, collected from its events.
struct StepsWatch {
    label: String,
    /// The lines of the finished steps, in the order in which they ended.
    finished: Vec<String>,
    /// The last printed wait: step, end and reason.
    waits: [String; 3],
    /// The displayed statuses, by the position of the step.
    displayed: BTreeMap<u32, StepStatus>,
    /// The failures of each minion in its last attempt. A repeated attempt replaces the interrupted
    /// one.
    failed: BTreeMap<MinionId, Vec<String>>,
    /// The errors of failed steps. If minions failed, these repeat the minions' failures.
    failed_steps: Vec<String>,
    /// The jobs that only predict the changes of a highstate.
    predicting: BTreeSet<JobId>,
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
            predicting: BTreeSet::new(),
            done: FinishedRun::default(),
        }
    }

    fn take(&mut self, event: &v1::Event, screen: &mut Screen) -> bool {
        match EventData::read(&event.tag, &event.data_json) {
            EventData::RunStep(data) => self.step(&data.step, screen),
            EventData::Wait(wait) if wait.run.is_some() => self.wait(&wait, screen),
            EventData::RunCancelled(data) => self.cancelled(&data, screen),
            EventData::StateProgress(data) => {
                let line = format!("  {}", progress(&data));
                screen.live().set(&self.key(&data.minion), &line);
            }
            EventData::JobCreated(job) if job.test && job.function == HIGHSTATE => {
                self.predicting.insert(job.job);
            }
            EventData::PartReturned(part) => {
                screen.live().remove(&self.key(&part.minion));
                if self.predicting.contains(&part.job) {
                    self.done.predict(&part);
                }
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

    /// Records the end of the run.
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
        if let (RunStatus::Paused, Some(by)) = (&ended.status, &ended.paused_by) {
            let line = format!("the run {} was paused by {by}", ended.run);
            // A pause that the command itself requested is a success.
            self.done.failures = (ended.retcode != 0).then_some(line).into_iter().collect();
        }
        self.done.run = Some(ended);
    }

    fn step(&mut self, step: &Step, screen: &mut Screen) {
        let name = &step.name;
        let before = self.displayed.insert(step.index, step.status.clone());
        if before.as_ref() == Some(&step.status) {
            return;
        }
        let paint = screen.paint();
        let mark = match &step.status {
            StepStatus::Succeeded => paint.good("✓"),
            StepStatus::Failed => paint.bad("✗"),
            StepStatus::Skipped => "–".to_owned(),
            // It may have ended: it must not look as if it ran for ever.
            StepStatus::Other(word) => paint.notable(&table::line(word)),
            StepStatus::Waiting | StepStatus::Running => {
                let line = format!("{}  {name} …", self.label);
                return screen.live().set(&self.key(""), &line);
            }
        };
        self.hide(screen);
        let mark = self.remarks(name, &step.detail) + &mark;
        if let Some(error) = &step.detail.error {
            self.failed_steps.push(format!("step {name}: {error}"));
        }
        let time = step.seconds.map(|time| format!("  {}", seconds(time)));
        let time = time.unwrap_or_default();
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

    /// Prints the reason why a step waits: one line, and another one when the reason has changed.
    fn wait(&mut self, wait: &StepWait, screen: &mut Screen) {
        let reason = [&wait.step, &wait.until, &wait.because].map(String::clone);
        if self.waits == reason {
            return;
        }
        let mark = screen.paint().notable("!");
        screen.news(format!("{mark} {}  {}", self.label, waiting(wait)));
        self.waits = reason;
    }

    /// Prints that an operator ends the run.
    fn cancelled(&self, cancelled: &RunCancelled, screen: &mut Screen) {
        let mark = screen.paint().notable("!");
        let by = &cancelled.operator;
        screen.news(format!("{mark} {}  cancelled by {by}", self.label));
    }

    /// The text before the mark of a step. Minions that a step left out are recorded for the end.
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
}

#[cfg(test)]
#[path = "orchestration_watch_tests.rs"]
mod tests;
