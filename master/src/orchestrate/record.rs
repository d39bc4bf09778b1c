//! The record of a run's steps: on disk before and after each, told as events.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use halite_states::engine::Failure;
use halite_states::low::StateReturn;
use serde_json::{Map, Value, json};

use crate::jobs::Jobs;
use crate::refusal::Refusal;
use crate::store::{Run, RunStatus, Step, StepStatus};

/// Keeps the steps of one run.
pub(super) struct Recorder {
    jobs: Arc<Jobs>,
    run: Run,
    total: usize,
    steps: Mutex<Vec<Step>>,
    /// The store failed: the run must stand still, whatever the engine makes of the steps.
    failed: Mutex<Option<Refusal>>,
}

impl Recorder {
    pub(super) fn new(jobs: Arc<Jobs>, run: Run, total: usize, steps: Vec<Step>) -> Self {
        Self {
            jobs,
            run,
            total,
            steps: Mutex::new(steps),
            failed: Mutex::default(),
        }
    }

    fn steps(&self) -> MutexGuard<'_, Vec<Step>> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A step as it stands.
    pub(super) fn step(&self, index: usize) -> Option<Step> {
        self.steps().get(index).cloned()
    }

    /// A step's detail.
    pub(super) fn detail(&self, index: usize) -> Map<String, Value> {
        let text = self
            .step(index)
            .map(|step| step.detail_json)
            .unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// A step begins.
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
        self.change(index, !again, |step| {
            step.status = StepStatus::Running;
            step.started.get_or_insert(now);
            step.ended = None;
        })
        .await
    }

    /// Notes a job before it is made, so that a restart finds it.
    pub(super) async fn note_job(&self, index: usize, jid: &str) -> Result<(), Failure> {
        let mut detail = self.detail(index);
        match detail.entry("jobs").or_insert_with(|| json!([])) {
            Value::Array(jobs) => jobs.push(json!(jid)),
            other => *other = json!([jid]),
        }
        let text = Value::Object(detail).to_string();
        self.change(index, false, |step| step.detail_json = text)
            .await?;
        let name = self.step(index).map(|step| step.name).unwrap_or_default();
        let event = json!({"id": self.run.id, "jid": jid, "step": name, "index": index});
        self.jobs
            .app()
            .events
            .announce(&format!("halite/run/{}/job", self.run.id), &event, None);
        Ok(())
    }

    /// Notes a fact about a step for whoever watches it.
    pub(super) async fn note(&self, index: usize, fact: &str, value: Value) -> Result<(), Failure> {
        let mut detail = self.detail(index);
        detail.insert(fact.to_owned(), value);
        let text = Value::Object(detail).to_string();
        self.change(index, false, |step| step.detail_json = text)
            .await
    }

    /// A step has ended; what came of it goes into its detail.
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
                detail.insert("error".into(), json!(failure.0));
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

    /// At the end: steps that the engine did not run, because a requisite failed or was not met,
    /// get their record too.
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

    /// What the store said when it failed.
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

    /// Whether nothing may be done any more.
    pub(super) fn stands_still(&self) -> Result<(), Failure> {
        self.failure().map_err(|refusal| Failure(refusal.message))
    }

    async fn change(
        &self,
        index: usize,
        tell: bool,
        change: impl FnOnce(&mut Step),
    ) -> Result<(), Failure> {
        let step = {
            let mut steps = self.steps();
            let Some(step) = steps.get_mut(index) else {
                return Err(Failure(format!(
                    "the run {} has no step {index}",
                    self.run.id
                )));
            };
            change(step);
            step.clone()
        };
        self.checked(
            self.jobs
                .app()
                .store
                .put_step(&step)
                .await
                .map_err(Refusal::from),
        )?;
        if tell {
            let tag = format!("halite/run/{}/step", self.run.id);
            let told = self
                .jobs
                .app()
                .events
                .publish(&tag, &step_data(&step, self.total))
                .await;
            self.checked(told.map(|_| ()).map_err(Refusal::from))?;
        }
        Ok(())
    }

    fn checked(&self, result: Result<(), Refusal>) -> Result<(), Failure> {
        result.map_err(|refusal| {
            let failure = Failure(refusal.message.clone());
            *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(refusal);
            failure
        })
    }
}

/// The data of a `step` event. Statuses are `running`, `succeeded`, `failed`, `skipped`.
pub(super) fn step_data(step: &Step, total: usize) -> Value {
    let detail: Value = serde_json::from_str(&step.detail_json).unwrap_or_default();
    #[allow(clippy::cast_precision_loss, reason = "a step takes less than 2^52 ms")]
    let seconds = match (step.started, step.ended) {
        (Some(started), Some(ended)) => Some((ended - started) as f64 / 1000.0),
        _ => None,
    };
    json!({"run": step.run, "index": step.index, "total": total, "id": step.name, "status": step.status.as_str(),
        "seconds": seconds, "detail": detail})
}
