//! The checks of the cluster.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::document::document;
use crate::word::words;

words! {
    /// The result of a check.
    CheckState {
        /// There are no findings.
        Good = "good",
        /// There may be a failure later, or something could be improved.
        Warning = "warning",
        /// Something is wrong.
        Failure = "failure",
    }
}

/// The results of all checks (`ctl health`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// `true` if no check has failed. Warnings do not count.
    pub healthy: bool,
    /// The checks; [health.md](health.md) describes them.
    pub checks: Vec<CheckResult>,
}

document!(Health);

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckResult {
    /// The name of the check, for example `etcd-quorum`.
    pub name: String,
    /// The sound state, as a heading.
    pub title: String,
    /// The result: `good`, `warning` or `failure`.
    pub state: CheckState,
    /// The findings; empty if the state is `good`.
    pub findings: Vec<HealthFinding>,
}

/// A finding of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthFinding {
    /// The finding, in one sentence.
    pub message: String,
    /// The host. Absent if the finding is about the cluster, or its message names the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The operator's next step. Absent if the message names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}
