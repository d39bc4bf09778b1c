//! Jobs: one function on a set of minions.

use halite_names::BundleVersion;
use halite_proto::ids::{JobId, MinionId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::document::document;
use crate::word::words;
use crate::{MinionAnswer, Time};

words! {
    /// The status of a job.
    JobStatus {
        /// At least one minion has not returned.
        Running = "running",
        /// Each minion has returned or is lost.
        Finished = "finished",
    }
}

words! {
    /// The state of a minion's part of a job.
    PartState {
        /// It has not been sent.
        Queued = "queued",
        /// It has been sent.
        Sent = "sent",
        /// The minion has started it.
        Started = "started",
        /// The minion has returned.
        Returned = "returned",
        /// The minion did not return in time, or the part was ended earlier.
        Lost = "lost",
    }
}

/// The newest jobs, the newest first (`ctl job list`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobList {
    /// The jobs, without their returns.
    pub jobs: Vec<Job>,
}

document!(JobList);

/// A job (`ctl job show`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Job {
    /// Its id: 20 digits, derived from the time of its creation.
    #[schemars(with = "String")]
    pub job: JobId,
    /// The function, for example `state.highstate`.
    pub function: String,
    /// The arguments of the function. Absent if they are withheld.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub args: Option<Value>,
    /// `true` if the minions only predict.
    pub test: bool,
    /// The operator who created it; `run:RUN` for a step of an orchestration.
    pub operator: String,
    /// The target as the operator wrote it.
    pub target: String,
    /// The minions that the target resolved to.
    #[schemars(with = "Vec<String>")]
    pub minions: Vec<MinionId>,
    /// Groups of minions that run one after the other; empty if all run at once.
    #[schemars(with = "Vec<Vec<String>>")]
    pub order: Vec<Vec<MinionId>>,
    /// The time of its creation.
    pub created: Time,
    /// The status: `running` or `finished`.
    pub status: JobStatus,
    /// 0 if each minion succeeded, otherwise 1. Absent while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retcode: Option<i32>,
    /// The time of its end. Absent while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished: Option<Time>,
    /// The version of the bundle from which its states were compiled. Absent if it applies no
    /// states.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub bundle: Option<BundleVersion>,
    /// The reason why arguments and returns are not shown. Absent if they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub withheld: Option<String>,
    /// The parts of the minions. Absent in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub returns: Option<Vec<JobPart>>,
}

document!(Job);

/// A minion's part of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobPart {
    /// The minion.
    #[schemars(with = "String")]
    pub minion: MinionId,
    /// The state: `queued`, `sent`, `started`, `returned` or `lost`.
    pub state: PartState,
    /// 0 succeeded, 1 failed, 2 interrupted. Absent before the return.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retcode: Option<i32>,
    /// The reason for a failure. Absent if there was none, or if the return contains it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The value that the function returned. Absent before the return, and if it is withheld.
    #[serde(rename = "return", skip_serializing_if = "Option::is_none")]
    pub answer: Option<MinionAnswer>,
    /// The time at which the part was sent. Absent until then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent: Option<Time>,
    /// The time at which the minion started it. Absent until then, and for functions other than
    /// states.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<Time>,
    /// The time of its end. Absent until then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Time>,
}

/// The answer to `ctl job cancel`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobCancellation {
    /// The job.
    #[schemars(with = "String")]
    pub job: JobId,
    /// The minions that were asked to end their parts.
    #[schemars(with = "Vec<String>")]
    pub asked: Vec<MinionId>,
    /// The minions whose parts ended immediately.
    #[schemars(with = "Vec<String>")]
    pub ended: Vec<MinionId>,
    /// The minions whose parts cannot be cancelled and run to their end.
    #[schemars(with = "Vec<String>")]
    pub runs: Vec<MinionId>,
}

document!(JobCancellation);
