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
        /// A step runs, or the next one begins soon.
        Running = "running",
        /// All steps are done.
        Succeeded = "succeeded",
        /// A step failed.
        Failed = "failed",
        /// An operator ended it before all steps were done.
        Cancelled = "cancelled",
    }
}

words! {
    /// The status of a step.
    StepStatus {
        /// It has not begun.
        Waiting = "waiting",
        /// It runs.
        Running = "running",
        /// It is done.
        Succeeded = "succeeded",
        /// It failed.
        Failed = "failed",
        /// It was not needed, or a requisite failed.
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
    /// Its id, in the form of a job's.
    #[schemars(with = "String")]
    pub run: JobId,
    /// The time at which it was made.
    pub created: Time,
    /// The name of the orchestration.
    pub sls: String,
    /// The host that a shipped orchestration is about. Absent if it is about none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on: Option<String>,
    /// Whether the steps only predict.
    pub test: bool,
    /// The operator who started it.
    pub operator: String,
    /// The status: `running`, `succeeded`, `failed` or `cancelled`.
    pub status: RunStatus,
    /// The step that it is at. Absent after its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The operator who wants it to end. Absent if none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancelled_by: Option<String>,
}

/// A run (`ctl job show`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// Its id, in the form of a job's.
    #[schemars(with = "String")]
    pub run: JobId,
    /// The name of the orchestration.
    pub sls: String,
    /// The values that were merged over the pillar. Absent if they are withheld.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pillar: Option<Value>,
    /// Whether the steps only predict.
    pub test: bool,
    /// The operator who started it.
    pub operator: String,
    /// The status: `running`, `succeeded`, `failed` or `cancelled`.
    pub status: RunStatus,
    /// The operator who wants it to end. Absent if none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancelled_by: Option<String>,
    /// The time at which it was made.
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
    /// The time at which it began. Absent before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<Time>,
    /// The time of its end. Absent before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Time>,
    /// Its duration in seconds. Absent before its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// What it did.
    pub detail: StepDetail,
}

/// What a step did.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct StepDetail {
    /// Its jobs; left out if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub jobs: Vec<JobId>,
    /// What it changed, by its subject. Absent before its end, and if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<Map<String, Value>>,
    /// What it did, in one sentence. Absent before its end, and if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// The reason why it failed. Absent if it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Its last wait, in one sentence. Absent if it did not wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
    /// The hosts that it left out because they were not connected; left out if there are none.
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
    /// The status: `cancelled`, or `running` while its step ends.
    pub status: RunStatus,
    /// The operator who ended it first. Absent if it ended by itself before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancelled_by: Option<String>,
    /// The step that ends. Absent if the run has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The jobs of that step that run; left out if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub jobs: Vec<JobId>,
}

document!(RunCancellation);

/// The record of an id, which is that of a job or of a run.
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
