//! The record of a run's steps: stored before and after each step, and published as events.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use halite_api::{EventData, RunJob, RunStep, StepWait, Time};
use halite_core::refusal::Refusal;
use halite_etcd::Wait;
use halite_fleet::jobs::Jobs;
use halite_proto::ids::JobId;
use halite_states::engine::Failure;
use halite_states::low::StateReturn;
use halite_store::{Run, RunStatus, Step, StepStatus};
use serde_json::{Map, Value, json};

use super::cancel::Cancellation;
use super::step_detail::detail;
use super::usual::usual;

/// Records the steps of one run.
pub(super) struct Recorder {
    jobs: Arc<Jobs>,
    run: Run,
    cancellation: Arc<Cancellation>,
    steps: Mutex<Vec<Step>>,
    /// The steps that ended in the middle of a wait because the run was cancelled.
    left: Mutex<BTreeSet<usize>>,
    /// Set when the store failed: the run must stop, whatever the outcome of its steps.
    failed: Mutex<Option<Refusal>>,
}

impl Recorder {
    pub(super) fn new(
        jobs: Arc<Jobs>,
        run: Run,
        cancellation: Arc<Cancellation>,
        steps: Vec<Step>,
    ) -> Self {
        Self {
            jobs,
            run,
            cancellation,
            steps: Mutex::new(steps),
            left: Mutex::default(),
            failed: Mutex::default(),
        }
    }

    fn steps(&self) -> MutexGuard<'_, Vec<Step>> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The operator's request to end the run.
    pub(super) fn cancellation(&self) -> &Cancellation {
        &self.cancellation
    }

    fn left(&self) -> MutexGuard<'_, BTreeSet<usize>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a step at this place, between two attempts, if its run was cancelled: the future of the
    /// step is dropped here and nowhere else.
    pub(super) async fn leave_if_cancelled(&self, index: usize) {
        if self.cancellation.by().is_some() {
            self.left().insert(index);
            std::future::pending::<()>().await;
        }
    }

    /// Returns whether a step has ended in the middle of a wait.
    pub(super) fn has_left(&self, index: usize) -> bool {
        self.left().contains(&index)
    }

    /// The present record of a step.
    pub(super) fn step(&self, index: usize) -> Option<Step> {
        self.steps().get(index).cloned()
    }

    /// The detail of a step.
    pub(super) fn detail(&self, index: usize) -> Map<String, Value> {
        let text = self
            .step(index)
            .map(|step| step.detail_json)
            .unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Records that a step starts. If it has succeeded before, its time, its jobs and its answer
    /// will be those of this time. The hosts that it has left out before may be connected now.
    pub(super) async fn begin(&self, index: usize) -> Result<(), Failure> {
        let now = self.jobs.app().clock.now();
        let current = u32::try_from(index).unwrap_or(u32::MAX);
        let updated = self
            .jobs
            .app()
            .store
            .update_run(&self.run.id, RunStatus::Running, current, now)
            .await;
        self.checked(updated.map_err(Refusal::from))?;
        let again = self.step(index).is_some_and(|step| step.started.is_some());
        let mut detail = self.detail(index);
        detail.remove("leftOut");
        self.change(index, !again, |step| {
            if step.status == StepStatus::Succeeded {
                step.started = None;
                detail.clear();
            }
            step.detail_json = Value::Object(detail).to_string();
            step.status = StepStatus::Running;
            step.started.get_or_insert(now);
            step.ended = None;
        })
        .await
    }

    /// Records a job of a step before the job is made, so that a restarted master finds it.
    pub(super) async fn note_job(&self, index: usize, job_id: &JobId) -> Result<(), Failure> {
        let mut detail = self.detail(index);
        match detail.entry("jobs").or_insert_with(|| json!([])) {
            Value::Array(jobs) => jobs.push(json!(job_id)),
            other => *other = json!([job_id]),
        }
        let text = Value::Object(detail).to_string();
        self.change(index, false, |step| step.detail_json = text)
            .await?;
        let name = self.step(index).map(|step| step.name).unwrap_or_default();
        let made = EventData::RunJob(RunJob {
            run: self.run.id.clone(),
            job: job_id.clone(),
            step: name,
            index: u32::try_from(index).unwrap_or(u32::MAX),
        });
        self.jobs.app().events.announce(&made, None);
        Ok(())
    }

    /// Records a fact about a step, for its watchers.
    pub(super) async fn note(&self, index: usize, fact: &str, value: Value) -> Result<(), Failure> {
        let mut detail = self.detail(index);
        detail.insert(fact.to_owned(), value);
        let text = Value::Object(detail).to_string();
        self.change(index, false, |step| step.detail_json = text)
            .await
    }

    /// The time that a step usually takes at this site; `None` if no earlier run has such a step,
    /// or the store fails.
    pub(super) async fn usual(&self, index: usize) -> Option<Duration> {
        let step = self.step(index)?;
        let found = usual(self.jobs.app().store.as_ref(), &self.run, &step.name).await;
        found.unwrap_or_else(|error| {
            tracing::debug!(%error, "the usual time of a step is not known");
            None
        })
    }

    /// Records the reason for a step's wait, and announces it to the watchers of the run.
    pub(super) async fn note_wait(
        &self,
        index: usize,
        wait: &Wait,
        usual: Option<Duration>,
        remedy: &str,
    ) -> Result<(), Failure> {
        self.note(index, "waits", json!(wait.to_string())).await?;
        let name = self.step(index).map(|step| step.name).unwrap_or_default();
        let wait = EventData::Wait(StepWait {
            run: Some(self.run.id.clone()),
            step: name,
            until: wait.until.clone(),
            because: wait.because.clone(),
            seconds: wait.since.as_secs(),
            usual: usual.map(|usual| usual.as_secs()),
            limit: Some(wait.limit.as_secs()),
            remedy: self.with_abort(remedy),
            ..StepWait::default()
        });
        self.jobs.app().events.announce(&wait, None);
        Ok(())
    }

    /// The operator's remedy for a wait, with the command that ends the run unless it already ends.
    fn with_abort(&self, remedy: &str) -> String {
        if self.cancellation.by().is_some() {
            return remedy.to_owned();
        }
        let separator = if remedy.is_empty() { "" } else { "; " };
        let run = &self.run.id;
        format!("{remedy}{separator}`ctl orchestrate cancel {run}` ends this run")
    }

    /// Records the end of a step, with its outcome as detail.
    pub(super) async fn end(
        &self,
        index: usize,
        outcome: &Result<(Map<String, Value>, String), Failure>,
    ) -> Result<(), Failure> {
        let mut detail = self.detail(index);
        let status = match outcome {
            Ok((changes, comment)) => {
                detail.insert("changes".into(), Value::Object(changes.clone()));
                detail.insert("comment".into(), json!(comment));
                detail.remove("error");
                StepStatus::Succeeded
            }
            Err(failure) => {
                detail.insert("error".into(), json!(failure.text()));
                StepStatus::Failed
            }
        };
        let text = Value::Object(detail).to_string();
        let now = self.jobs.app().clock.now();
        self.change(index, true, |step| {
            step.status = status;
            step.ended = Some(now);
            step.detail_json = text;
        })
        .await
    }

    /// Records a step that did not run because a requisite failed or was not met. Does nothing for
    /// a step that has ended.
    pub(super) async fn record_skipped(&self, state: &StateReturn) -> Result<(), Refusal> {
        let waiting = self
            .step(state.index)
            .is_some_and(|step| matches!(step.status, StepStatus::Waiting | StepStatus::Running));
        if !waiting {
            return Ok(());
        }
        let detail = json!({"comment": state.comment}).to_string();
        let now = self.jobs.app().clock.now();
        let recorded = self
            .change(state.index, true, |step| {
                step.status = StepStatus::Skipped;
                step.ended = Some(now);
                step.detail_json = detail;
            })
            .await;
        recorded.or_else(|_| self.failure())
    }

    /// The error of the store, if it failed.
    pub(super) fn failure(&self) -> Result<(), Refusal> {
        match self
            .failed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
        {
            Some(refusal) => Err(refusal),
            None => Ok(()),
        }
    }

    /// Fails after a failure of the store: no further step may run.
    pub(super) fn check_store(&self) -> Result<(), Failure> {
        self.failure()
            .map_err(|refusal| Failure::new(refusal.message))
    }

    async fn change(
        &self,
        index: usize,
        publish: bool,
        change: impl FnOnce(&mut Step),
    ) -> Result<(), Failure> {
        let (step, total) = {
            let mut steps = self.steps();
            let total = steps.len();
            let Some(step) = steps.get_mut(index) else {
                return Err(Failure::new(format!(
                    "the run {} has no step {index}",
                    self.run.id
                )));
            };
            change(step);
            (step.clone(), total)
        };
        self.checked(
            self.jobs
                .app()
                .store
                .put_step(&step)
                .await
                .map_err(Refusal::from),
        )?;
        if publish {
            let data = EventData::RunStep(Box::new(step_data(&step, total)));
            let published = self.jobs.app().events.publish(&data).await;
            self.checked(published.map(|_| ()).map_err(Refusal::from))?;
        }
        Ok(())
    }

    fn checked(&self, result: Result<(), Refusal>) -> Result<(), Failure> {
        result.map_err(|refusal| {
            let failure = Failure::new(refusal.message.clone());
            *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(refusal);
            failure
        })
    }
}

/// The data of a `step` event.
pub(super) fn step_data(step: &Step, total: usize) -> RunStep {
    RunStep {
        run: step.run.clone(),
        total,
        step: document(step),
    }
}

/// A step as it appears in documents and events.
pub fn document(step: &Step) -> halite_api::Step {
    #[expect(clippy::cast_precision_loss, reason = "a step takes less than 2^52 ms")]
    let seconds = match (step.started, step.ended) {
        (Some(started), Some(ended)) => Some((ended - started) as f64 / 1000.0),
        _ => None,
    };
    halite_api::Step {
        index: step.index,
        name: step.name.clone(),
        status: step.status.as_str().into(),
        started: step.started.map(Time::from_millis),
        ended: step.ended.map(Time::from_millis),
        seconds,
        detail: detail(step),
    }
}
