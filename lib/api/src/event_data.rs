//! The data of events, by kind. The tag of an event follows from its data.

use halite_proto::ids::{JobId, MinionId};
use halite_states::low::{RunReturn, StateReturn};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::word::words;
use crate::{MinionAnswer, PartState, RunStatus, Step};

/// A job was created: `halite/job/JOB/new`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobCreated {
    /// The job.
    #[schemars(with = "String")]
    pub job: JobId,
    /// The function, for example `state.highstate`.
    pub function: String,
    /// The target as the operator wrote it.
    pub target: String,
    /// The minions that the target resolved to.
    #[schemars(with = "Vec<String>")]
    pub minions: Vec<MinionId>,
    /// Groups of minions that run one after the other; empty if all run at once.
    #[schemars(with = "Vec<Vec<String>>")]
    pub order: Vec<Vec<MinionId>>,
    /// `true` if the minions only predict.
    pub test: bool,
    /// The operator who created it; `run:RUN` for a step of an orchestration.
    pub operator: String,
}

/// A minion has started its part of a job: `halite/job/JOB/start/MINION`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PartStarted {
    /// The job.
    #[schemars(with = "String")]
    pub job: JobId,
    /// The minion.
    #[schemars(with = "String")]
    pub minion: MinionId,
}

/// A minion has applied a state: `halite/job/JOB/prog/MINION`. Minions do not report every
/// unchanged state, and a reader may miss some reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StateProgress {
    /// The job.
    #[schemars(with = "String")]
    pub job: JobId,
    /// The minion.
    #[schemars(with = "String")]
    pub minion: MinionId,
    /// The position of the state, from 0.
    pub index: u32,
    /// The number of states.
    pub total: u32,
    /// The return of the state, with Salt's names. Absent if the master cannot read it, or if it is
    /// larger than 256 KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Map<String, Value>>")]
    pub state: Option<StateReturn>,
}

/// A journal that is followed has new lines: `halite/job/JOB/log/MINION`. They are not stored, and
/// a reader may miss some.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JournalLines {
    /// The job.
    #[schemars(with = "String")]
    pub job: JobId,
    /// The minion.
    #[schemars(with = "String")]
    pub minion: MinionId,
    /// The lines, the oldest first; empty if they are withheld.
    pub lines: Vec<String>,
}

/// A minion's part of a job has ended: `halite/job/JOB/ret/MINION`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PartReturned {
    /// The job.
    #[schemars(with = "String")]
    pub job: JobId,
    /// The minion.
    #[schemars(with = "String")]
    pub minion: MinionId,
    /// The state: `returned` or `lost`.
    pub state: PartState,
    /// 0 succeeded, 1 failed or lost, 2 interrupted.
    pub retcode: i32,
    /// `true` if the function succeeded.
    pub success: bool,
    /// The number of states. Absent if the function was not a run of states.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub states: Option<usize>,
    /// The number of states that changed something, or would in test mode. Absent if `states` is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed: Option<usize>,
    /// The number of states that failed. Absent if `states` is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<usize>,
    /// SHA-256 of the returned value as JSON without spaces. Absent if nothing was returned, and if
    /// the value is withheld.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The value that the function returned. Only in the events of the call that created the job;
    /// `ctl job show` shows it.
    #[serde(rename = "return", skip_serializing_if = "Option::is_none")]
    pub answer: Option<MinionAnswer>,
    /// The reason for a failure. Only in the events of the call that created the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl PartReturned {
    /// The end of a part, with the counts and the digest of the returned value.
    #[must_use]
    pub fn new(
        (job, minion): (JobId, MinionId),
        state: PartState,
        retcode: i32,
        answer: Option<MinionAnswer>,
        error: Option<String>,
    ) -> Self {
        let run = answer.as_ref().and_then(MinionAnswer::states);
        let run = run.as_ref();
        Self {
            success: state == PartState::Returned && retcode == 0,
            states: run.map(|run| run.states.len()),
            changed: run.map(RunReturn::changed),
            failed: run.map(RunReturn::failed),
            digest: answer.as_ref().map(MinionAnswer::digest),
            job,
            minion,
            state,
            retcode,
            answer,
            error,
        }
    }

    /// The announcement of this end: without the returned value and the reason, which are texts
    /// from the host.
    #[must_use]
    pub fn announcement(&self) -> Self {
        Self {
            answer: None,
            error: None,
            ..self.clone()
        }
    }
}

/// A job or a step of a run waits: `halite/job/JOB/wait`, `halite/job/JOB/wait/MINION` or
/// `halite/run/RUN/wait`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepWait {
    /// The job. Absent for a step of a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub job: Option<JobId>,
    /// The run. Absent for a job.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub run: Option<JobId>,
    /// The minion whose turn waits. Absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub minion: Option<MinionId>,
    /// The step of the run, or the hosts of the job, that wait.
    pub step: String,
    /// The hosts that have not returned, if the job waits for them; left out otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub hosts: Vec<MinionId>,
    /// The condition that ends the wait, as the end of a sentence.
    pub until: String,
    /// The reason for the wait.
    pub because: String,
    /// The duration of the wait so far, in seconds.
    pub seconds: u64,
    /// The usual duration here, in seconds. Absent if it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usual: Option<u64>,
    /// The timeout of the wait, in seconds. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The operator's remedy; empty if there is none.
    pub remedy: String,
}

/// Hosts of a job run in parallel, because etcd has no quorum and is repaired:
/// `halite/job/JOB/repair`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ParallelRepair {
    /// The job.
    #[schemars(with = "String")]
    pub job: JobId,
    /// The hosts.
    #[schemars(with = "Vec<String>")]
    pub hosts: Vec<MinionId>,
    /// The reason.
    pub because: String,
}

/// Minions are updated ahead of a highstate: `halite/job/JOB/minion`. Only in the events of the
/// call that created the job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MinionUpdate {
    /// The job that updates them.
    #[schemars(with = "String")]
    pub job: JobId,
    /// The hosts.
    #[schemars(with = "Vec<String>")]
    pub hosts: Vec<MinionId>,
    /// The reason.
    pub because: String,
    /// The next step.
    pub then: String,
}

/// A job has ended: `halite/job/JOB/done`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobEnded {
    /// The job.
    #[schemars(with = "String")]
    pub job: JobId,
    /// 0 if each minion succeeded, otherwise 1.
    pub retcode: i32,
    /// The minions that succeeded.
    #[schemars(with = "Vec<String>")]
    pub succeeded: Vec<MinionId>,
    /// The minions that failed.
    #[schemars(with = "Vec<String>")]
    pub failed: Vec<MinionId>,
    /// The minions that did not return.
    #[schemars(with = "Vec<String>")]
    pub lost: Vec<MinionId>,
}

/// A run was created: `halite/run/RUN/new`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunCreated {
    /// The run.
    #[schemars(with = "String")]
    pub run: JobId,
    /// The name of the orchestration.
    pub sls: String,
    /// `true` if the steps only predict.
    pub test: bool,
    /// The operator who started it.
    pub operator: String,
    /// The names of its steps.
    pub steps: Vec<String>,
}

/// A step of a run has started or ended: `halite/run/RUN/step`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunStep {
    /// The run.
    #[schemars(with = "String")]
    pub run: JobId,
    /// The number of steps.
    pub total: usize,
    /// The step.
    pub step: Step,
}

/// A step of a run has created a job: `halite/run/RUN/job`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunJob {
    /// The run.
    #[schemars(with = "String")]
    pub run: JobId,
    /// The job.
    #[schemars(with = "String")]
    pub job: JobId,
    /// The name of the step.
    pub step: String,
    /// The position of the step, from 0.
    pub index: u32,
}

/// An operator has cancelled a run: `halite/run/RUN/cancel`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunCancelled {
    /// The run.
    #[schemars(with = "String")]
    pub run: JobId,
    /// The operator.
    pub operator: String,
}

/// A run has ended: `halite/run/RUN/done`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunEnded {
    /// The run.
    #[schemars(with = "String")]
    pub run: JobId,
    /// The status: `succeeded`, `failed`, `cancelled` or `paused`.
    pub status: RunStatus,
    /// The operator who cancelled it. Absent if it was not cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancelled_by: Option<String>,
    /// The operator who paused it. Absent if it was not paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused_by: Option<String>,
    /// 0 if all its steps succeeded, otherwise 1.
    pub retcode: i32,
    /// The steps.
    pub steps: Vec<Step>,
}

words! {
    /// A change of a key.
    KeyAction {
        /// It waits for an operator's decision.
        Pending = "pending",
        /// It was accepted.
        Accepted = "accepted",
        /// An operator rejected it.
        Rejected = "rejected",
        /// It was deleted.
        Deleted = "deleted",
        /// The master refused it.
        Refused = "refused",
    }
}

/// The key of a minion has changed: `halite/key/MINION`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyChanged {
    /// The minion.
    #[schemars(with = "String")]
    pub minion: MinionId,
    /// The change: `pending`, `accepted`, `rejected`, `deleted` or `refused`.
    pub action: KeyAction,
    /// The fingerprint of the key. Absent if an operator changed a known key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// The public part of the token with which it came. Absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The reason why it was refused. Absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The data of an event.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
#[expect(missing_docs, reason = "each variant is the type of its name")]
pub enum EventData {
    JobCreated(JobCreated),
    PartStarted(PartStarted),
    StateProgress(Box<StateProgress>),
    JournalLines(JournalLines),
    PartReturned(Box<PartReturned>),
    Wait(StepWait),
    ParallelRepair(ParallelRepair),
    MinionUpdate(MinionUpdate),
    JobEnded(JobEnded),
    RunCreated(RunCreated),
    RunStep(Box<RunStep>),
    RunJob(RunJob),
    RunCancelled(RunCancelled),
    RunEnded(Box<RunEnded>),
    KeyChanged(KeyChanged),
    /// The data of an event that this version does not know.
    Other(Value),
}
