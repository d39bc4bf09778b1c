//! The outcome of a command of `ctl` that runs a job or an orchestration.

use std::collections::BTreeMap;

use halite_proto::ids::{JobId, MinionId};
use halite_states::low::StateReturn;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::document::document;
use crate::{MinionAnswer, MinionUpdate, ParallelRepair, RunEnded, UpgradePlan};

/// The outcome of a job (`ctl highstate`, `apply`, `ping`, `grains`, `cmd`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobOutcome {
    /// The job. Absent if the master ended the stream before it named one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub job: Option<JobId>,
    /// 0 if each minion succeeded, otherwise 1.
    pub retcode: i32,
    /// The number of states on all minions. Absent for functions other than states.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub states: Option<usize>,
    /// The number of states that changed something, or would in test mode. Absent if `states` is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed: Option<usize>,
    /// The number of states that failed. Absent if `states` is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<usize>,
    /// The minions.
    #[schemars(with = "BTreeMap<String, MinionOutcome>")]
    pub minions: BTreeMap<MinionId, MinionOutcome>,
    /// Hosts that ran in parallel because etcd had no quorum. Absent if there were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_repair: Option<ParallelRepair>,
    /// Minions that were updated ahead of a highstate; left out if there were none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub minion_updates: Vec<MinionUpdate>,
}

document!(JobOutcome);

/// The outcome of a job on a minion.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MinionOutcome {
    /// `true` if the function succeeded.
    pub success: bool,
    /// The reason for a failure. Absent if there was none, or if the states contain it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The number of states. Absent for functions other than states.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<usize>,
    /// The number of states that changed something, or would in test mode. Absent if `total` is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed: Option<usize>,
    /// The number of states that failed. Absent if `total` is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<usize>,
    /// The returns of the states, with Salt's names. Absent if `total` is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<Map<String, Value>>>")]
    pub states: Option<Vec<StateReturn>>,
    /// The value that another function returned. Absent for states, and without a return.
    #[serde(rename = "return", skip_serializing_if = "Option::is_none")]
    pub answer: Option<MinionAnswer>,
}

/// The outcome of an orchestration (`ctl orchestrate`, `upgrade`, `node remove` and others, and
/// `node add` with one host on the command line and without `--ssh`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunOutcome {
    /// 0 if the run succeeded, otherwise 1.
    pub retcode: i32,
    /// The duration of the command in seconds. Absent if the run could not be started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// The failures: minion, state and reason.
    pub failures: Vec<String>,
    /// Remarks on steps that succeeded.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The end of the run. Absent if it could not be started, or had ended before this command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<RunEnded>,
    /// The changes that a test predicts on each host; left out if there are none, and if the run
    /// was not a test.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, MinionOutcome>")]
    pub minions: BTreeMap<MinionId, MinionOutcome>,
    /// The plan of `ctl upgrade` with `--test`, and of one that was refused. Absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<UpgradePlan>,
}

document!(RunOutcome);

/// The outcome of several orchestrations in parallel (`ctl node add` with several hosts, with
/// `--from` or with `--ssh`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunOutcomes {
    /// 0 if each run succeeded, otherwise 1.
    pub retcode: i32,
    /// The outcomes, by node.
    pub nodes: BTreeMap<String, RunOutcome>,
}

document!(RunOutcomes);
