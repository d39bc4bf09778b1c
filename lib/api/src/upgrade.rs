//! Upgrades: the plan before one, and the progress of the last one.

use std::collections::BTreeMap;

use halite_proto::ids::JobId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Time;
use crate::document::document;
use crate::word::words;

/// The plan of an upgrade: the bundle, the order, and the findings against it. `ctl upgrade` reads it,
/// and `ctl upgrade --test` prints it with the changes on each host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpgradePlan {
    /// The version of the next bundle.
    pub bundle: String,
    /// Its Kubernetes.
    pub kubernetes: String,
    /// The bundle in use.
    pub before: BundleRelease,
    /// The hosts that do not have the next bundle. In a return, also those of `begun`.
    pub hosts: Vec<String>,
    /// The next bundle is the previous one, to which the hosts of an upgrade return (`ctl upgrade
    /// back`).
    #[serde(default)]
    pub back: bool,
    /// In a return, the hosts that a stopped upgrade had begun to change, and that still record the
    /// previous bundle.
    #[serde(default)]
    pub begun: Vec<String>,
    /// The digest of what was planned: the bundle, the options, and all states that each host has at
    /// the end. `ctl upgrade --plan` takes it.
    #[serde(default)]
    pub id: String,
    /// The version of the master that computed it; another one may compute another plan.
    #[serde(default)]
    pub planned_by: String,
    /// The order in which hosts change; left out if no host changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub turns: Vec<UpgradeTurn>,
    /// The estimate in seconds: the sum of the usual times of the steps here. Absent if no earlier
    /// upgrade has recorded one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimate: Option<u64>,
    /// The number of steps.
    #[serde(default)]
    pub steps: usize,
    /// The number of steps without a recorded time, which the estimate does not contain.
    #[serde(default)]
    pub unknown_steps: usize,
    /// The findings against the upgrade, errors first and `info` last; left out if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<UpgradeFinding>,
    /// The open run of an upgrade to this bundle. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub run: Option<JobId>,
    /// For each host a digest of what each SLS declares at the end of the upgrade. Hosts that have
    /// never connected are left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub states: BTreeMap<String, BTreeMap<String, String>>,
}

document!(UpgradePlan);

/// Hosts that change at the same time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeTurn {
    /// The hosts.
    pub hosts: Vec<String>,
    /// Those that are drained before they change; left out if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drained: Vec<String>,
    /// The usual time of its steps in seconds. Absent if none is recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimate: Option<u64>,
}

words! {
    /// The weight of a finding against an upgrade.
    UpgradeSeverity {
        /// It would stop the run: `ctl upgrade` refuses to start.
        Error = "error",
        /// It may hold up the run, or something is lost.
        Warning = "warning",
        /// It concerns a later upgrade, not this one.
        Info = "info",
    }
}

words! {
    /// The subject of a finding against an upgrade.
    UpgradeCheck {
        /// PodDisruptionBudgets that allow no eviction.
        Budgets = "budgets",
        /// Pods that no controller would recreate.
        Pods = "pods",
        /// Clients that use a deprecated API version.
        DeprecatedApis = "deprecated-apis",
        /// An upgrade without a backup.
        Backup = "backup",
        /// Certificates that end soon.
        Certificates = "certificates",
        /// The members of etcd.
        Etcd = "etcd",
        /// The space for the bundle and its images.
        Disk = "disk",
        /// Hosts that are not connected.
        Hosts = "hosts",
        /// Minions that run another program than their host's bundle has.
        Minions = "minions",
        /// Kubelets with another version than their host's bundle has.
        Kubelets = "kubelets",
        /// Packages on hold.
        Packages = "packages",
        /// The states of the next bundle.
        States = "states",
        /// The Kubernetes API.
        Api = "api",
    }
}

/// A finding against an upgrade.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeFinding {
    /// The weight: `error`, `warning` or `info`.
    pub severity: UpgradeSeverity,
    /// The subject: `budgets`, `pods`, `deprecated-apis`, `backup`, `certificates`, `etcd`, `disk`,
    /// `hosts`, `minions`, `kubelets`, `packages`, `states` or `api`.
    pub check: UpgradeCheck,
    /// The host. Absent if it is about the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// One sentence.
    pub message: String,
    /// The next step; empty if the message contains it.
    pub remedy: String,
}

words! {
    /// The state of the last upgrade.
    UpgradeState {
        /// There was none.
        None = "none",
        /// It is running.
        Running = "running",
        /// It is running, and pauses before the next host.
        Pausing = "pausing",
        /// It is paused.
        Paused = "paused",
        /// It has failed, or was cancelled.
        Stopped = "stopped",
        /// It has ended, and left out hosts that were not connected.
        Incomplete = "incomplete",
        /// It has ended.
        Done = "done",
    }
}

/// The progress of the last upgrade (`ctl upgrade status`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeStatus {
    /// The state: `none`, `running`, `pausing`, `paused`, `stopped`, `incomplete` or `done`.
    pub state: UpgradeState,
    /// The run. Absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub run: Option<JobId>,
    /// The version of the bundle. Absent if there was no upgrade.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bundle: Option<String>,
    /// It is the return to the previous bundle (`ctl upgrade back`).
    #[serde(default)]
    pub back: bool,
    /// The operator who started it. Absent if there was no upgrade.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator: Option<String>,
    /// The time of its start. Absent if there was no upgrade.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<Time>,
    /// The time of its last change. Absent if there was no upgrade.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed: Option<Time>,
    /// The current step, or the one that failed. Absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The reason why that step failed. Absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The operator who paused it. Absent if none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused_by: Option<String>,
    /// The hosts that have the bundle.
    pub done: Vec<String>,
    /// The hosts that do not have it.
    pub left: Vec<String>,
    /// The options with which it continues. Absent if it is neither paused, stopped nor incomplete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub options: Option<Map<String, Value>>,
}

document!(UpgradeStatus);

/// The values in [`UpgradeStatus::options`] that have words on the command line. A run that continues gets
/// all of them unchanged, also those of another version.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct UpgradeOptions {
    /// The hosts that change at the same time: a number, or a percentage such as `25%`.
    pub batch: Option<String>,
    /// A backup is made first.
    pub backup: bool,
    /// The drain of each host; `None` if none is drained.
    pub drain: Option<UpgradeDrain>,
    /// The place of a pause.
    pub pause_after: Option<String>,
    /// It is the return to the previous bundle.
    pub back: bool,
}

/// The options of the drains of an upgrade.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct UpgradeDrain {
    /// Pods without a controller are evicted, too.
    pub force: bool,
    /// The time for the eviction, in seconds; `None` for the usual one.
    pub timeout: Option<u64>,
}

impl UpgradeOptions {
    /// Reads the options of a status.
    ///
    /// # Errors
    /// A value has another form, as it may in another version.
    pub fn read(options: &Map<String, Value>) -> serde_json::Result<Self> {
        Self::deserialize(Value::Object(options.clone()))
    }
}

/// A bundle and its Kubernetes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BundleRelease {
    /// The version of the bundle.
    pub bundle: String,
    /// Its Kubernetes.
    pub kubernetes: String,
}
