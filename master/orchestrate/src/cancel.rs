//! The end of a run before its steps are done, at an operator's request.
//!
//! The request is in the store before it is acknowledged, so a restarted master does not continue
//! the run. No further step starts. A waiting step ends at its next check; a step whose job runs on
//! hosts ends with this job, which is cancelled. The finished work of the run stays as an
//! interruption at that place would leave it, and its locks are free once it has ended.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use halite_api::{EventData, RunCancellation, RunCancelled};
use halite_core::refusal::Refusal;
use halite_proto::ids::JobId;
use halite_states::engine::Failure;
use halite_store::{Run, RunStatus, Step, StepStatus};
use tokio::sync::watch;

use super::Orchestrator;
use super::step_detail::detail;

/// The time for which an answer waits for the end of the run.
const PATIENCE: Duration = Duration::from_secs(5);

/// Operators' requests to end a run: as soon as possible, or before the next host.
pub(super) struct Cancellation {
    by: watch::Sender<Option<String>>,
    paused_by: Mutex<Option<String>>,
    /// `true` once a step has ended because the run is paused.
    is_paused: AtomicBool,
}

impl Cancellation {
    /// The stored requests of a run.
    pub(super) fn of_run(run: &Run) -> Self {
        Self {
            by: watch::Sender::new(run.cancelled_by.clone()),
            paused_by: Mutex::new(run.paused_by.clone()),
            is_paused: AtomicBool::new(false),
        }
    }

    /// Records the operator who pauses the run; the first one counts.
    pub(super) fn pause(&self, operator: &str) {
        let mut by = self
            .paused_by
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        by.get_or_insert_with(|| operator.to_owned());
    }

    /// Records that a step has ended because the run is paused.
    pub(super) fn end_as_paused(&self) {
        self.is_paused.store(true, Ordering::SeqCst);
    }

    /// Returns whether a step has ended because the run is paused.
    pub(super) fn is_paused(&self) -> bool {
        self.is_paused.load(Ordering::SeqCst)
    }

    /// The operator who pauses the run; `None` without a request.
    pub(super) fn paused_by(&self) -> Option<String> {
        let by = self
            .paused_by
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        by.clone()
    }

    /// Records the requesting operator; the first one counts.
    fn request(&self, operator: &str) {
        self.by.send_if_modified(|by| {
            let is_first = by.is_none();
            by.get_or_insert_with(|| operator.to_owned());
            is_first
        });
    }

    /// The operator who requested it; `None` without a request.
    pub(super) fn by(&self) -> Option<String> {
        self.by.borrow().clone()
    }

    /// Waits until an operator requests it.
    pub(super) async fn requested(&self) -> String {
        let mut by = self.by.subscribe();
        let found = by.wait_for(Option::is_some).await;
        let found = found.ok().and_then(|by| by.clone());
        match found {
            Some(by) => by,
            // The sender is gone, and with it the run.
            None => std::future::pending().await,
        }
    }

    /// Fails if an operator has requested the end.
    pub(super) fn check(&self) -> Result<(), Failure> {
        self.by().map_or(Ok(()), |by| Err(cancelled(&by)))
    }
}

/// The failure of a step of a cancelled run.
pub(super) fn cancelled(by: &str) -> Failure {
    Failure::new(format!("cancelled by {by}"))
}

impl Orchestrator {
    /// Ends a run before its steps are done, and waits a few seconds for this end; returns the
    /// remaining work.
    ///
    /// # Errors
    /// The run does not exist or has ended, or the store failed.
    pub async fn cancel(
        self: &Arc<Self>,
        id: &JobId,
        operator: &str,
    ) -> Result<RunCancellation, Refusal> {
        let (app, store) = (self.jobs.app(), &self.jobs.app().store);
        {
            // No run starts between the record and the notice.
            let _one_at_a_time = self.starting.lock().await;
            if !store.cancel_run(id, operator, app.clock.now()).await? {
                return Err(self.not_open(id).await?);
            }
            let active = self.active.borrow().get(id).cloned();
            if let Some(cancellation) = active {
                cancellation.request(operator);
            } else if let Some(run) = store.run(id).await?
                && run.status == RunStatus::Running
            {
                // Its task has panicked: a new one ends it.
                self.begin(run);
            }
        }
        tracing::info!(run = %id, operator, "orchestration cancelled");
        let cancelled = EventData::RunCancelled(RunCancelled {
            run: id.clone(),
            operator: operator.to_owned(),
        });
        app.events.announce(&cancelled, None);
        let mut active = self.active.subscribe();
        let ended = active.wait_for(|active| !active.contains_key(id));
        // Work that remains after that is in the answer.
        let _ = tokio::time::timeout(PATIENCE, ended).await;
        let run = store.run(id).await?;
        let run = run.ok_or_else(|| Refusal::not_found(format!("there is no run {id}")))?;
        let steps = store.steps(id).await?;
        Ok(self.report(run, &steps))
    }

    /// The answer to the request: the progress of the end.
    fn report(&self, run: Run, steps: &[Step]) -> RunCancellation {
        let last = steps.iter().find(|step| step.status == StepStatus::Running);
        let last = last.filter(|_| run.status == RunStatus::Running);
        let jobs = last.map(|step| detail(step).jobs).unwrap_or_default();
        let is_open = |job: &JobId| !self.jobs.pending(job).is_empty();
        RunCancellation {
            run: run.id,
            sls: run.sls,
            status: run.status.as_str().into(),
            cancelled_by: run.cancelled_by,
            step: last.map(|step| step.name.clone()),
            jobs: jobs.into_iter().filter(is_open).collect(),
        }
    }

    /// The refusal for an id that belongs to no open run.
    async fn not_open(&self, id: &JobId) -> Result<Refusal, Refusal> {
        let store = &self.jobs.app().store;
        if let Some(run) = store.run(id).await? {
            let (sls, status) = (run.sls, run.status.as_str());
            return Ok(Refusal::conflict(format!(
                "cannot cancel the run {id} ({sls}): it has ended ({status}); `ctl orchestrate list` shows those that have not"
            )));
        }
        if store.job(id).await?.is_some() {
            return Ok(Refusal::invalid(format!(
                "cannot cancel the run {id}: it is a job; `ctl job cancel {id}` ends it"
            )));
        }
        Ok(Refusal::not_found(format!(
            "cannot cancel the run {id}: there is none; `ctl orchestrate list` shows the newest ones"
        )))
    }
}

/// Refuses to join a run that is about to end.
pub(super) fn refuse_ending(run: &Run) -> Result<(), Refusal> {
    if let (None, Some(by)) = (&run.cancelled_by, &run.paused_by) {
        let id = &run.id;
        return Err(Refusal::conflict(format!(
            "cannot join the run {id} ({}): it was paused by {by} and ends before the next host; `ctl upgrade status` shows its \
             progress; run this again when it has ended",
            run.sls
        )));
    }
    let Some(by) = &run.cancelled_by else {
        return Ok(());
    };
    let id = &run.id;
    Err(Refusal::conflict(format!(
        "cannot join the run {id} ({}): it was cancelled by {by} and ends with its step; `ctl job show {id}` shows that one; \
         run this again when it has ended",
        run.sls
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_operator_counts() {
        let run = Run {
            id: JobId::from_number(1),
            sls: "custom.roll".to_owned(),
            pillar_json: "{}".to_owned(),
            test: false,
            operator: "root".to_owned(),
            request_id: None,
            low_json: "{}".to_owned(),
            status: RunStatus::Running,
            current: 0,
            cancelled_by: None,
            paused_by: None,
            created: 0,
            changed: 0,
        };
        let cancellation = Cancellation::of_run(&run);
        assert!(cancellation.check().is_ok());
        cancellation.request("alice");
        cancellation.request("bob");
        assert_eq!(cancellation.requested().await, "alice");
        let failure = cancellation.check().unwrap_err();
        assert_eq!(failure.text(), "cancelled by alice");
        assert_eq!(cancellation.paused_by(), None);
        cancellation.pause("bob");
        cancellation.pause("carol");
        assert_eq!(cancellation.paused_by().as_deref(), Some("bob"));
    }
}
