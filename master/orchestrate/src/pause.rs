//! Pauses of an upgrade: at an operator's request before the next host, or by the step
//! `halite.pause`.
//!
//! A pause is the end of a run, with the status that it can be resumed: its locks are free, and
//! another run with the same pillar continues it.

use std::sync::Arc;

use halite_core::refusal::Refusal;
use halite_errors::chain;
use halite_proto::ids::JobId;
use halite_states::engine::Failure;
use halite_states::low::LowState;
use halite_states::shipped::UPGRADE;
use halite_store::RunStatus;
use serde_json::Map;

use super::Orchestrator;
use super::step_runner::{StepOutcome, StepRunner};

impl Orchestrator {
    /// Pauses an upgrade before its next host. The request is stored before this returns, so a
    /// restarted master pauses it as well.
    ///
    /// # Errors
    /// The run is not an upgrade, or does not run; or the store failed.
    pub async fn pause(self: &Arc<Self>, id: &JobId, operator: &str) -> Result<(), Refusal> {
        let (app, store) = (self.jobs.app(), &self.jobs.app().store);
        // No run starts between the record and the notice.
        let _one_at_a_time = self.starting.lock().await;
        let Some(run) = store.run(id).await? else {
            return Err(Refusal::not_found(format!(
                "cannot pause the run {id}: there is none; `ctl upgrade status` shows the last upgrade"
            )));
        };
        if run.sls != UPGRADE || run.test {
            return Err(Refusal::invalid(format!(
                "cannot pause the run {id} ({}): only upgrades have places to pause; `ctl orchestrate cancel {id}` ends it",
                run.sls
            )));
        }
        if !store.pause_run(id, operator, app.clock.now()).await? {
            let status = match (run.status, &run.cancelled_by) {
                (RunStatus::Running, Some(by)) => format!("it was cancelled by {by}"),
                (status, _) => format!("it has ended ({})", status.as_str()),
            };
            return Err(Refusal::conflict(format!(
                "cannot pause the run {id}: {status}"
            )));
        }
        if let Some(active) = self.active.borrow().get(id) {
            active.pause(operator);
        }
        tracing::info!(run = %id, operator, "upgrade paused before its next host");
        Ok(())
    }
}

/// Returns whether a run with these steps is paused when all of them have succeeded.
pub(super) fn contains_pause(low: &LowState) -> bool {
    let mut chunks = low.chunks.iter();
    chunks.any(|chunk| (chunk.state.as_str(), chunk.fun.as_str()) == ("halite", "pause"))
}

impl StepRunner<'_> {
    /// Runs `halite.pause`: the run ends here as paused by the operator who started it.
    pub(super) async fn pause(&self) -> Result<StepOutcome, Failure> {
        if self.run.test {
            let comment = "a real run pauses here";
            return Ok((Map::new(), comment.to_owned()));
        }
        let (app, by) = (self.jobs.app(), &self.run.operator);
        let paused = app.store.pause_run(&self.run.id, by, app.clock.now()).await;
        paused.map_err(|error| Failure::new(chain(&error)))?;
        self.recorder.cancellation().pause(by);
        let comment = "paused; `ctl upgrade resume` continues with the other hosts";
        Ok((Map::new(), comment.to_owned()))
    }
}
