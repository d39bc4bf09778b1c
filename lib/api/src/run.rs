//! Runs: orchestrations, with their steps.

use halite_proto::ids::{JobId, MinionId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::document::{Document, ReadError, document};
use crate::word::words;
use crate::{Job, Time};

words! {
    /// The status of a run.
    RunStatus {
        /// A step is running, or the next one starts soon.
        Running = "running",
        /// All steps succeeded.
        Succeeded = "succeeded",
        /// A step failed.
        Failed = "failed",
        /// An operator ended it before all steps were done.
        Cancelled = "cancelled",
        /// An upgrade that ended at an operator's request, between two hosts; `ctl upgrade resume`
        /// continues it.
        Paused = "paused",
    }
}

words! {
    /// The status of a step.
    StepStatus {
        /// It has not started.
        Waiting = "waiting",
        /// It is running.
        Running = "running",
        /// It succeeded.
        Succeeded = "succeeded",
        /// It failed.
        Failed = "failed",
        /// It was not needed, or one of its requisites failed.
        Skipped = "skipped",
    }
}

/// The newest runs, the newest first (`ctl orchestrate list`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunList {
    /// The runs.
    pub runs: Vec<RunSummary>,
}

document!(RunList);

/// A run in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunSummary {
    /// Its id, in the form of a job id.
    #[schemars(with = "String")]
    pub run: JobId,
    /// The time of its creation.
    pub created: Time,
    /// The name of the orchestration.
    pub sls: String,
    /// The host that a shipped orchestration works on. Absent if it works on none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on: Option<String>,
    /// `true` if the steps only predict.
    pub test: bool,
    /// The operator who started it.
    pub operator: String,
    /// The status: `running`, `succeeded`, `failed`, `cancelled` or `paused`.
    pub status: RunStatus,
    /// The current step. Absent after its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The operator who cancelled it. Absent if it was not cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancelled_by: Option<String>,
    /// The operator who paused it, or asked for a pause that it has not reached. Absent if none
    /// did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused_by: Option<String>,
}

/// A run (`ctl job show`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// Its id, in the form of a job id.
    #[schemars(with = "String")]
    pub run: JobId,
    /// The name of the orchestration.
    pub sls: String,
    /// The values that were merged over the pillar. Absent if they are withheld.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pillar: Option<Value>,
    /// `true` if the steps only predict.
    pub test: bool,
    /// The operator who started it.
    pub operator: String,
    /// The status: `running`, `succeeded`, `failed`, `cancelled` or `paused`.
    pub status: RunStatus,
    /// The operator who cancelled it. Absent if it was not cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancelled_by: Option<String>,
    /// The operator who paused it, or asked for a pause that it has not reached. Absent if none
    /// did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused_by: Option<String>,
    /// The time of its creation.
    pub created: Time,
    /// The time of its last change.
    pub changed: Time,
    /// The reason why the values of the pillar are not shown. Absent if they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub withheld: Option<String>,
    /// The steps, in their order.
    pub steps: Vec<Step>,
}

document!(Run);

impl Run {
    /// The values over the pillar, without the digests in the plan of an upgrade, which has an id.
    #[must_use]
    pub fn pillar_without_digests(&self) -> Option<Value> {
        let mut pillar = self.pillar.clone()?;
        if let Some(plan) = pillar.get_mut("plan").and_then(Value::as_object_mut) {
            plan.remove("states");
        }
        Some(pillar)
    }
}

/// A step of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Its position, from 0.
    pub index: u32,
    /// Its name: the id in the SLS.
    pub name: String,
    /// The status: `waiting`, `running`, `succeeded`, `failed` or `skipped`.
    pub status: StepStatus,
    /// The time at which it started. Absent until then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<Time>,
    /// The time of its end. Absent until then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Time>,
    /// Its duration in seconds. Absent until its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// The details.
    pub detail: StepDetail,
}

/// The details of a step.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct StepDetail {
    /// Its jobs; left out if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub jobs: Vec<JobId>,
    /// Its changes, by subject. Absent until its end, and if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<Map<String, Value>>,
    /// Its result, in one sentence. Absent until its end, and if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// The reason why it failed. Absent if it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Its last wait, in one sentence. Absent if it did not wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
    /// The hosts that it skipped because they were not connected; left out if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub left_out: Vec<MinionId>,
    /// Remarks for the operator; left out if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The number of checks of a preflight. Absent for other steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checks: Option<u64>,
    /// The fingerprint of the key of a host that enrolled. Absent for other steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
}

/// The answer to `ctl orchestrate cancel`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunCancellation {
    /// The run.
    #[schemars(with = "String")]
    pub run: JobId,
    /// The name of the orchestration.
    pub sls: String,
    /// The status: `running` while its step ends, then `cancelled`; or that with which it had ended
    /// before.
    pub status: RunStatus,
    /// The operator who cancelled it first. Absent if it had already ended by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancelled_by: Option<String>,
    /// The step that is still ending. Absent if the run has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The running jobs of that step; left out if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub jobs: Vec<JobId>,
}

document!(RunCancellation);

/// The record of a job or of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum JobOrRun {
    /// A job.
    Job(Box<Job>),
    /// A run.
    Run(Box<Run>),
}

impl Document for JobOrRun {
    fn kind(&self) -> &'static str {
        match self {
            Self::Job(job) => job.kind(),
            Self::Run(run) => run.kind(),
        }
    }

    fn fields(&self) -> Map<String, Value> {
        match self {
            Self::Job(job) => job.fields(),
            Self::Run(run) => run.fields(),
        }
    }

    fn from_fields(kind: &str, fields: Map<String, Value>) -> Result<Self, ReadError> {
        match kind {
            "Run" => Run::from_fields(kind, fields).map(|run| Self::Run(Box::new(run))),
            _ => Job::from_fields(kind, fields).map(|job| Self::Job(Box::new(job))),
        }
    }
}
