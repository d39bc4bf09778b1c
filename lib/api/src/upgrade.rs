//! Upgrades: the plan before one, and the progress of the last one.

use std::collections::BTreeMap;

use halite_names::BundleVersion;
use halite_proto::ids::{JobId, MinionId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::Time;
use crate::document::document;
use crate::word::words;

/// The plan of an upgrade: the bundle, the order, and the findings against it. `ctl upgrade` reads
/// it, and `ctl upgrade --test` prints it with the changes on each host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpgradePlan {
    /// The version of the next bundle.
    #[schemars(with = "String")]
    pub bundle: BundleVersion,
    /// Its Kubernetes.
    pub kubernetes: String,
    /// The bundle in use.
    pub before: BundleRelease,
    /// The hosts that do not have the next bundle. In a return, also those of `begun`.
    #[schemars(with = "Vec<String>")]
    pub hosts: Vec<MinionId>,
    /// The next bundle is the previous one, to which the hosts of an upgrade return (`ctl upgrade
    /// back`).
    #[serde(default)]
    pub back: bool,
    /// In a return, the hosts that a stopped upgrade had begun to change, and that still record the
    /// previous bundle.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub begun: Vec<MinionId>,
    /// The digest of what was planned: the bundle, the options, and all states that each host has
    /// at the end. `ctl upgrade --plan` takes it.
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
    #[schemars(with = "BTreeMap<String, BTreeMap<String, String>>")]
    pub states: BTreeMap<MinionId, BTreeMap<String, String>>,
    /// The options with which it was computed.
    #[serde(default)]
    pub options: UpgradeOptions,
    /// The differences from the plan that an operator has named with `ctl upgrade --plan`; left out
    /// if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
}

document!(UpgradePlan);

/// Hosts that change at the same time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeTurn {
    /// The hosts.
    #[schemars(with = "Vec<String>")]
    pub hosts: Vec<MinionId>,
    /// Those that are drained before they change; left out if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub drained: Vec<MinionId>,
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
    // Text, because an operator can start the run with any pillar.
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
    #[schemars(with = "Vec<String>")]
    pub done: Vec<MinionId>,
    /// The hosts that do not have it.
    #[schemars(with = "Vec<String>")]
    pub left: Vec<MinionId>,
    /// The options with which it continues. Absent if it is neither paused, stopped nor incomplete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub options: Option<UpgradeOptions>,
}

document!(UpgradeStatus);

/// The options of an upgrade, or of a return.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct UpgradeOptions {
    /// The hosts that change at the same time: a number, or a percentage such as `25%`. Absent for
    /// the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<String>,
    /// A backup is made first.
    pub backup: bool,
    /// The drain of each host. Absent if none is drained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain: Option<UpgradeDrain>,
    /// The place of a pause: `control-plane`. Absent without one.
    #[serde(alias = "pause_after", skip_serializing_if = "Option::is_none")]
    pub pause_after: Option<String>,
    /// It is the return to the previous bundle.
    pub back: bool,
    /// The confirmed plan. Absent in a plan, and if the upgrade continues with another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<ConfirmedPlan>,
}

/// The options of the drains of an upgrade.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct UpgradeDrain {
    /// Pods with data in an emptyDir are evicted, too.
    #[serde(alias = "delete_emptydir_data")]
    pub delete_emptydir_data: bool,
    /// Pods without a controller are evicted, too.
    pub force: bool,
    /// The time for the eviction, in seconds. Absent for the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u64>,
    /// The time for a pod to end, in seconds. Absent for its own grace period.
    #[serde(alias = "grace_period", skip_serializing_if = "Option::is_none")]
    pub grace_period: Option<u64>,
}

/// The plan that an operator has confirmed. The run compares each turn with it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ConfirmedPlan {
    /// Its id.
    pub id: String,
    /// The version of the master that computed it.
    #[serde(alias = "planned_by", skip_serializing_if = "Option::is_none")]
    pub planned_by: Option<String>,
    /// For each host a digest of what each SLS declares. Absent if it is not compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<BTreeMap<String, BTreeMap<String, String>>>")]
    pub states: Option<BTreeMap<MinionId, BTreeMap<String, String>>>,
    /// The hosts that the stopped upgrade had begun to change, in a return.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub begun: Vec<MinionId>,
    /// The messages of its findings that are errors.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
}

impl UpgradeOptions {
    /// Reads the options in the pillar of a run.
    ///
    /// # Errors
    /// A value has another form, as it may in another version.
    pub fn from_pillar(pillar: &Map<String, Value>) -> serde_json::Result<Self> {
        Self::deserialize(Value::Object(pillar.clone()))
    }

    /// The values over the pillar of a run to a bundle. Their names are in snake case, as in all
    /// pillars.
    #[must_use]
    pub fn to_pillar(&self, bundle: &str) -> Value {
        let drain = self.drain.as_ref().map(|drain| {
            given([
                ("delete_emptydir_data", json!(drain.delete_emptydir_data)),
                ("force", json!(drain.force)),
                ("timeout", json!(drain.timeout)),
                ("grace_period", json!(drain.grace_period)),
            ])
        });
        let plan = self.plan.as_ref().map(|plan| {
            given([
                ("id", json!(plan.id)),
                ("planned_by", json!(plan.planned_by)),
                ("states", json!(plan.states)),
                ("begun", list(&plan.begun)),
                ("errors", list(&plan.errors)),
            ])
        });
        given([
            ("bundle", json!(bundle)),
            ("batch", json!(self.batch)),
            ("backup", json!(self.backup)),
            ("drain", json!(drain)),
            ("pause_after", json!(self.pause_after)),
            ("plan", json!(plan)),
            ("back", json!(self.back.then_some(true))),
        ])
    }
}

/// A list, or null if it is empty.
fn list<T: Serialize>(all: &[T]) -> Value {
    json!((!all.is_empty()).then_some(all))
}

/// A mapping of the values that are not null.
fn given<const N: usize>(values: [(&str, Value); N]) -> Value {
    let given = values.into_iter().filter(|(_, value)| !value.is_null());
    given.map(|(key, value)| (key.to_owned(), value)).collect()
}

/// A bundle and its Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BundleRelease {
    /// The version of the bundle.
    #[schemars(with = "String")]
    pub bundle: BundleVersion,
    /// Its Kubernetes.
    pub kubernetes: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_the_same_after_a_way_through_a_pillar() {
        let options = UpgradeOptions {
            batch: Some("3".to_owned()),
            backup: true,
            drain: Some(UpgradeDrain {
                delete_emptydir_data: true,
                force: true,
                timeout: Some(90),
                grace_period: Some(5),
            }),
            pause_after: Some("control-plane".to_owned()),
            back: true,
            plan: Some(ConfirmedPlan {
                id: "0123".to_owned(),
                planned_by: Some("1.0".to_owned()),
                states: Some(BTreeMap::from([("cp-1".parse().unwrap(), BTreeMap::new())])),
                begun: vec!["cp-1".parse().unwrap()],
                errors: vec!["a pod".to_owned()],
            }),
        };
        let pillar = options.to_pillar("1.1");
        assert_eq!(pillar["bundle"], "1.1");
        for (place, value) in [
            ("/pause_after", json!("control-plane")),
            ("/drain/delete_emptydir_data", json!(true)),
            ("/drain/grace_period", json!(5)),
            ("/plan/planned_by", json!("1.0")),
        ] {
            assert_eq!(pillar.pointer(place), Some(&value), "{place}");
        }
        let read = UpgradeOptions::from_pillar(pillar.as_object().unwrap());
        assert_eq!(read.unwrap(), options);
        let document = serde_json::to_value(&options).unwrap();
        assert_eq!(document["pauseAfter"], "control-plane");
        let read: UpgradeOptions = serde_json::from_value(document).unwrap();
        assert_eq!(read, options);
        let none = UpgradeOptions::default().to_pillar("1.1");
        assert_eq!(none, json!({"bundle": "1.1", "backup": false}));
    }
}
