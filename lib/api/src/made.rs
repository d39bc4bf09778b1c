//! Answers of commands that make something on this host.

use std::collections::BTreeMap;

use halite_states::low::StateReturn;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::document::document;
use crate::word::words;
use crate::{OperatorRole, Time};

/// A new token (`ctl token create`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewToken {
    /// The token, with its secret. It is not shown again.
    pub token: String,
    /// The time at which it ends.
    pub expires: Time,
}

document!(NewToken);

/// Declared hosts (`ctl node add --no-wait`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewNodes {
    /// The hosts, in the order of the command line.
    pub nodes: Vec<NewNode>,
}

document!(NewNodes);

/// A declared host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewNode {
    /// Its name.
    pub host: String,
    /// Its token, with its secret.
    pub token: String,
    /// The command to run on it as root.
    pub command: String,
}

/// A new operator (`ctl operator create`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewOperator {
    /// The name in the certificate.
    pub name: String,
    /// The role: `viewer`, `deployer` or `admin`.
    pub role: OperatorRole,
    /// The end of the certificate.
    pub expires: Time,
    /// The file with the identity.
    pub identity: String,
}

document!(NewOperator);

/// A kubeconfig that was written to a file (`ctl kubeconfig --out`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeconfigFile {
    /// The file.
    pub file: String,
    /// The address of the Kubernetes API.
    pub server: String,
    /// The name of its user in Kubernetes.
    pub user: String,
    /// The end of its certificate.
    pub expires: Time,
}

document!(KubeconfigFile);

/// An archive for support (`ctl support`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SupportArchive {
    /// Its path.
    pub file: String,
    /// The number of hosts in it.
    pub hosts: usize,
    /// The reasons why other hosts are not in it, by host.
    pub missing: BTreeMap<String, String>,
}

document!(SupportArchive);

/// The outcome of states on this host (`ctl local apply`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalOutcome {
    /// The id of this host.
    pub minion: String,
    /// The number of states that changed something, or would in test mode.
    pub changed: usize,
    /// The number of states that failed.
    pub failed: usize,
    /// The states, with Salt's names.
    #[schemars(with = "Vec<Map<String, Value>>")]
    pub states: Vec<StateReturn>,
}

document!(LocalOutcome);

/// The check of the declaration (`ctl config validate`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeclarationCheck {
    /// `true` if it has no problems.
    pub valid: bool,
    /// The problems.
    pub problems: Vec<DeclarationProblem>,
    /// Remarks on a valid declaration.
    pub warnings: Vec<DeclarationProblem>,
}

document!(DeclarationCheck);

/// The documents of a configuration directory, with all defaults and without secrets (`ctl config
/// show`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DisplayedDeclaration {
    /// The [cluster document](cluster.md).
    pub cluster: Value,
    /// The [node documents](node.md), by name.
    pub nodes: BTreeMap<String, Value>,
    /// The operator's own states, by path; left out if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom: Option<Value>,
}

document!(DisplayedDeclaration);

/// A problem of the declaration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeclarationProblem {
    /// The file.
    pub file: String,
    /// The line, from 1. Absent if it is about the whole file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The column, from 1. Absent as `line`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// The path of the value, for example `networks.pods`. Absent if it is not about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The problem, in one sentence.
    pub message: String,
    /// The remedy. Absent if the message names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

words! {
    /// The result of a check of the preflight.
    PreflightVerdict {
        /// Nothing was found.
        Good = "good",
        /// A remark; the host may join.
        Warning = "warning",
        /// A problem; the host may not join.
        Bad = "bad",
    }
}

/// The preflight of the first host, and the plan for it (`ctl bootstrap --test`). Nothing was
/// changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BootstrapPlan {
    /// The checks.
    pub preflight: Vec<PreflightCheck>,
    /// Always `false`: nothing was changed.
    pub changed: bool,
    /// The states that would be applied. Absent if a check failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlannedStates>,
}

document!(BootstrapPlan);

/// A check of the preflight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreflightCheck {
    /// Its name.
    pub check: String,
    /// The result: `good`, `warning` or `bad`.
    pub verdict: PreflightVerdict,
    /// The finding; empty if the result is `good`.
    pub message: String,
    /// The remedy; empty if there is none.
    pub hint: String,
}

/// Predicted states.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedStates {
    /// The states, with Salt's names.
    #[schemars(with = "Vec<Map<String, Value>>")]
    pub states: Vec<StateReturn>,
    /// The number of states that would change something.
    pub changed: usize,
    /// The number of states that would fail.
    pub failed: usize,
}
