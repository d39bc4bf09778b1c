//! Orchestration: ordered steps across minions, written as SLS with the states `halite.*`.
//!
//! An orchestration is compiled once and stored with its steps; the minions' states of a step are
//! compiled when the step starts. Each step is on disk before and after it runs, so a run can be
//! resumed: a restarted master continues open runs by itself, at the first step that is not done,
//! and asks again whether that one may start (`gates`). A request for the same orchestration with
//! the same pillar joins the open run instead of starting another one. After a run has ended,
//! successfully or not, the next request starts a new run. An operator may end a run before that
//! (`cancel`).

mod bare_hosts;
mod ca_identities;
mod ca_steps;
mod cancel;
mod destroy_steps;
mod encryption_steps;
mod etcd_steps;
mod gates;
pub mod host_findings;
pub mod host_parts;
mod isolated;
mod leave_steps;
mod node_steps;
mod other_direction;
mod other_options;
pub mod outdated_minions;
mod pace;
mod pause;
mod pod_network_step;
mod preflight;
mod reboot_step;
mod record;
#[cfg(test)]
mod record_tests;
mod returned_bundle;
mod roles_step;
mod rotation_hosts;
pub mod stall;
mod state_step;
mod step_detail;
mod step_options;
mod step_runner;
mod steps_watch;
mod turn_step;
pub mod upgrade_records;
pub mod usual;
mod vip_step;
mod waits;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use halite_api::EventData;
use halite_cluster::kubernetes::compare::merge;
use halite_core::event_stream::EventStream;
use halite_core::names::MASTER;
use halite_core::refusal::Refusal;
use halite_errors::chain;
use halite_fleet::compile;
use halite_fleet::compile::RequestedStates;
use halite_fleet::jobs::Jobs;
use halite_proto::backoff::Backoff;
use halite_proto::ids::JobId;
use halite_proto::v1;
use halite_states::engine::RunOptions;
use halite_states::low::{LowState, StateReturn};
use halite_states::shipped::UPGRADE;
use halite_states::signature::RunsOn;
use halite_states::tree::{DirTree, Tree as _};
use halite_store::{Created, Run, RunStatus, Step, StepStatus};
use serde_json::{Value, json};
use tokio::sync::watch;

use self::cancel::{Cancellation, refuse_ending};
use self::record::Recorder;
use self::returned_bundle::refuse_other_bundle;
use self::step_runner::StepRunner;

pub use self::other_direction::refuse_other_direction;
pub use self::other_options::open_upgrade;
pub use self::preflight::ignored;
pub use self::record::document as step;
pub use self::steps_watch::follow;
pub use self::turn_step::PLAN;
pub use self::upgrade_records::BACK;

/// The pauses before the retry of a run that could not be recorded.
const AGAIN: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(8));

/// The SLS below `custom/hooks` that orchestrations apply to a host before its drain and after it
/// takes pods again.
const HOOKS: [&str; 2] = ["pre_drain", "post_uncordon"];

/// Starts, resumes and watches orchestrations.
pub struct Orchestrator {
    jobs: Arc<Jobs>,
    /// The runs that this process works on, each with its request to end it.
    active: watch::Sender<BTreeMap<JobId, Arc<Cancellation>>>,
    /// Held while a request decides whether to start, join or end a run.
    starting: tokio::sync::Mutex<()>,
}

/// A run that a task of this process works on, until it is dropped.
struct Active {
    runs: Arc<Orchestrator>,
    id: JobId,
}

impl Drop for Active {
    fn drop(&mut self) {
        self.runs.active.send_modify(|active| {
            active.remove(&self.id);
        });
    }
}

impl Orchestrator {
    /// Orchestration with the jobs of this master.
    #[must_use]
    pub fn new(jobs: Arc<Jobs>) -> Arc<Self> {
        Arc::new(Self {
            jobs,
            active: watch::Sender::default(),
            starting: tokio::sync::Mutex::default(),
        })
    }

    /// Continues the runs that a restart interrupted. A cancelled run ends.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn resume(self: &Arc<Self>) -> Result<(), Refusal> {
        let _one_at_a_time = self.starting.lock().await;
        for run in self.jobs.app().store.open_runs().await? {
            tracing::info!(run = %run.id, sls = %run.sls, "resuming an interrupted orchestration");
            self.begin(run);
        }
        Ok(())
    }

    /// Starts an orchestration, or joins the open run with the same SLS and pillar; returns its
    /// events.
    ///
    /// # Errors
    /// The orchestration does not compile, or the store failed.
    pub async fn start(
        self: &Arc<Self>,
        operator: &str,
        request: v1::OrchestrateRequest,
    ) -> Result<EventStream, Refusal> {
        let bus = self.jobs.app().events.subscribe();
        let this = Arc::clone(self);
        let operator = operator.to_owned();
        // A separate task: a caller that disconnects must not cut it off between store and start.
        let started = tokio::spawn(async move { this.start_or_join(&operator, request).await });
        let run = started
            .await
            .map_err(|error| Refusal::internal(format!("cannot start the run: {error}")))??;
        Ok(steps_watch::follow(Arc::clone(&self.jobs), run, bus))
    }

    /// Continues the open run of this request, if there is one.
    async fn join(
        self: &Arc<Self>,
        request: &v1::OrchestrateRequest,
        pillar_json: &str,
    ) -> Result<Option<JobId>, Refusal> {
        let open = self.jobs.app().store.open_runs().await?;
        let same = |run: &&Run| {
            run.sls == request.sls
                && run.test == request.test
                && without_plan(&run.pillar_json) == without_plan(pillar_json)
        };
        let Some(run) = open.iter().find(same) else {
            return Ok(None);
        };
        // The same request, repeated over a lost connection, receives the run's end.
        if run.request_id.as_deref() != Some(request.request_id.as_str()) {
            refuse_ending(run)?;
        }
        self.begin(run.clone());
        Ok(Some(run.id.clone()))
    }

    async fn start_or_join(
        self: &Arc<Self>,
        operator: &str,
        request: v1::OrchestrateRequest,
    ) -> Result<JobId, Refusal> {
        let over = pillar_override(&request.pillar_json)?;
        let pillar_json = over.to_string();
        if !request.test {
            let joined = {
                let _one_at_a_time = self.starting.lock().await;
                self.join(&request, &pillar_json).await?
            };
            if let Some(run) = joined {
                return Ok(run);
            }
            // It may wait, and must not hold up others.
            self.jobs.check_may_act(&request.sls).await?;
        }
        let _one_at_a_time = self.starting.lock().await;
        if let Some(run) = self.join(&request, &pillar_json).await? {
            return Ok(run);
        }
        if request.sls == UPGRADE && !request.test {
            let open = self.jobs.app().store.open_runs().await?;
            let is_back = over.get(BACK) == Some(&json!(true));
            refuse_other_direction(&open, is_back)?;
            if is_back {
                refuse_other_bundle(&self.jobs, &over).await?;
            }
            // One with the same options was joined.
            open_upgrade(&open, &pillar_json)?;
        }
        let low = steps_of(&self.jobs, &request.sls, &over).await?;
        let now = self.jobs.app().clock.now();
        let run = Run {
            id: self.jobs.next_job_id(),
            sls: request.sls,
            pillar_json,
            test: request.test,
            operator: operator.to_owned(),
            request_id: Some(request.request_id).filter(|id| !id.is_empty()),
            low_json: serde_json::to_string(&low)
                .map_err(|e| Refusal::internal(format!("cannot store the run: {e}")))?,
            status: RunStatus::Running,
            current: 0,
            cancelled_by: None,
            paused_by: None,
            created: now,
            changed: now,
        };
        let steps: Vec<Step> = (0..)
            .zip(&low.chunks)
            .map(|(index, chunk)| Step {
                run: run.id.clone(),
                index,
                name: chunk.id.clone(),
                status: StepStatus::Waiting,
                detail_json: "{}".into(),
                started: None,
                ended: None,
            })
            .collect();
        let store = &self.jobs.app().store;
        if let Created::Existing(run) = store.create_run(&run, &steps).await? {
            return Ok(run.id);
        }
        let created = EventData::RunCreated(steps_watch::created(&run, &steps));
        // The run is stored: it starts, and its watchers read the store.
        if let Err(error) = self.jobs.app().events.publish(&created).await {
            tracing::error!(run = %run.id, error = chain(&error), "cannot store the event of a run");
        }
        tracing::info!(run = %run.id, sls = %run.sls, operator = %run.operator, "orchestration started");
        let id = run.id.clone();
        self.begin(run);
        Ok(id)
    }

    /// Works on a run in the background, unless this process already does.
    fn begin(self: &Arc<Self>, run: Run) {
        let cancellation = Arc::new(Cancellation::of_run(&run));
        let is_new = self.active.send_if_modified(|active| {
            let is_new = !active.contains_key(&run.id);
            if is_new {
                active.insert(run.id.clone(), Arc::clone(&cancellation));
            }
            is_new
        });
        if !is_new {
            return;
        }
        let this = Arc::clone(self);
        tokio::spawn(async move {
            let id = run.id.clone();
            // Also when a step panics: the same command then restarts it.
            let _active = Active {
                runs: Arc::clone(&this),
                id: id.clone(),
            };
            // A step that the store could not record, for want of space for example, does not count
            // as done: the run continues at the first step that is not recorded.
            let mut again = false;
            let mut pauses = AGAIN;
            while let Err(error) = this.carry_out(run.clone(), &cancellation, again).await {
                tracing::error!(run = %id, %error, "cannot record the run; trying again");
                again = true;
                pauses.wait().await;
            }
        });
    }

    /// Works on a run to its end; `again` after an attempt of this task that could not be recorded.
    async fn carry_out(
        &self,
        run: Run,
        cancellation: &Arc<Cancellation>,
        again: bool,
    ) -> Result<(), Refusal> {
        let store = &self.jobs.app().store;
        // The task that worked on it may have ended it since the caller has read it, and its locks
        // are free then.
        let is_open = |run: Run| run.status == RunStatus::Running;
        if !again && !store.run(&run.id).await?.is_some_and(is_open) {
            return Ok(());
        }
        let low: LowState = serde_json::from_str(&run.low_json)
            .map_err(|error| Refusal::internal(format!("cannot read the stored run: {error}")))?;
        let steps = store.steps(&run.id).await?;
        let failed = if again {
            failed_for_good(&steps, &low)
        } else {
            BTreeSet::new()
        };
        let recorder = Recorder::new(
            Arc::clone(&self.jobs),
            run.clone(),
            Arc::clone(cancellation),
            steps,
        );
        let runner = StepRunner::new(Arc::clone(&self.jobs), &run, &low, &recorder, failed);
        let done = halite_states::run::run(
            &low,
            &runner,
            RunOptions { test: run.test },
            |_: &StateReturn| {},
        )
        .await;
        recorder.failure()?;
        for state in &done.states {
            recorder.record_skipped(state).await?;
        }
        let succeeded = done.succeeded();
        // The step is on disk before the status of its run.
        let is_paused =
            cancellation.is_paused() || (succeeded && !run.test && pause::contains_pause(&low));
        let cancelled_by = cancellation.by().filter(|_| !succeeded && !is_paused);
        let status = match &cancelled_by {
            _ if is_paused => RunStatus::Paused,
            _ if succeeded => RunStatus::Succeeded,
            Some(_) => RunStatus::Cancelled,
            None => RunStatus::Failed,
        };
        let current = u32::try_from(low.chunks.len()).unwrap_or(u32::MAX);
        store
            .update_run(&run.id, status, current, self.jobs.app().clock.now())
            .await?;
        tracing::info!(run = %run.id, sls = %run.sls, status = status.as_str(), "orchestration ended");
        let ended = Run {
            status,
            cancelled_by,
            paused_by: cancellation.paused_by(),
            ..run
        };
        let steps = store.steps(&ended.id).await?;
        let retcode = steps_watch::retcode(&ended, &steps);
        let ended = EventData::RunEnded(Box::new(steps_watch::summary(&ended, &steps)));
        let events = &self.jobs.app().events;
        events.publish_last(&ended, retcode).await?;
        Ok(())
    }
}

/// The steps of an orchestration with these values over the pillar.
///
/// # Errors
/// The orchestration does not compile.
pub async fn steps_of(jobs: &Jobs, sls: &str, over: &Value) -> Result<LowState, Refusal> {
    if sls.is_empty() {
        return Err(Refusal::invalid(
            "the name of the orchestration is empty; name one, for example halite.orchestrate.bootstrap",
        ));
    }
    let snapshot = jobs.declarations().load().await?;
    let mut pillar = snapshot.pillar(&MASTER)?;
    merge(&mut pillar, over);
    let wanted = RequestedStates::Sls(vec![sls.to_owned()]);
    let work = move || {
        let grains = json!({"id": *MASTER});
        if let Some(own) = pillar.get_mut("halite").and_then(Value::as_object_mut) {
            let found = hooks(snapshot.tree(&MASTER));
            own.insert("hooks".to_owned(), json!(found));
        }
        compile::with_pillar(
            &snapshot,
            &MASTER,
            &pillar,
            &grains,
            &wanted,
            RunsOn::Orchestration,
        )
    };
    let compiled = tokio::task::spawn_blocking(work).await;
    Ok(compiled
        .map_err(|error| Refusal::internal(format!("cannot compile: {error}")))??
        .low)
}

/// The operator's own states around a drain that exist.
fn hooks(tree: &DirTree) -> Vec<&'static str> {
    let exists = |hook: &&str| {
        let place = format!("custom/hooks/{hook}");
        let files = [format!("{place}.sls"), format!("{place}/init.sls")];
        files.iter().any(|file| tree.read(file).is_some())
    };
    HOOKS.into_iter().filter(exists).collect()
}

/// The values of a run's pillar without its plan: a command that is repeated joins the open run
/// also if the documents have changed, and the run's own plan decides.
pub(crate) fn without_plan(pillar_json: &str) -> Value {
    let mut pillar: Value = serde_json::from_str(pillar_json).unwrap_or_default();
    if let Some(fields) = pillar.as_object_mut() {
        fields.remove(PLAN);
    }
    pillar
}

/// The positions of the failed steps, without steps that are tried several times (`retry`).
fn failed_for_good(steps: &[Step], low: &LowState) -> BTreeSet<usize> {
    let failed = steps
        .iter()
        .filter(|step| step.status == StepStatus::Failed)
        .filter_map(|step| usize::try_from(step.index).ok());
    let is_tried_again = |index: &usize| {
        let chunk = low.chunks.get(*index);
        chunk.is_some_and(|chunk| chunk.controls.retry.is_some())
    };
    failed.filter(|index| !is_tried_again(index)).collect()
}

fn pillar_override(text: &str) -> Result<Value, Refusal> {
    if text.trim().is_empty() {
        return Ok(json!({}));
    }
    match serde_json::from_str::<Value>(text) {
        Ok(value) if value.is_object() => Ok(value),
        Ok(_) => Err(Refusal::invalid(
            "the pillar of an orchestration must be a JSON mapping",
        )),
        Err(error) => Err(Refusal::invalid(format!(
            "cannot read the pillar of the orchestration: {error}"
        ))),
    }
}
