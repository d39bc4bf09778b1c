//! The state of the cluster.

use halite_names::BundleVersion;
use halite_proto::ids::{JobId, MinionId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::document::document;
use crate::word::words;
use crate::{
    CertificateRenewals, ClusterBackups, EtcdStatus, Health, KeyState, Masters, RegistryBackups,
    RunStatus, Time,
};

/// The state of the cluster (`ctl status`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// The name of the cluster.
    pub cluster: String,
    /// The version of the master.
    pub version: String,
    /// The addresses of the master, HOST:PORT.
    pub master: Vec<String>,
    /// The master's host and its standbys.
    pub masters: Masters,
    /// The bundle in use. Absent if it cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bundle: Option<BundleInUse>,
    /// The Kubernetes API.
    pub api: ApiState,
    /// The API servers. Absent if the documents cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_servers: Option<Vec<ApiServer>>,
    /// The virtual address of the API. Absent if Halite manages none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vip: Option<VirtualAddress>,
    /// The members of etcd. Absent if the documents cannot be read, or declare none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etcd: Option<EtcdStatus>,
    /// The cluster's DNS. Absent if the API did not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns: Option<ClusterDns>,
    /// The backups of the site registry. Absent if none is declared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registry: Option<RegistryBackups>,
    /// The backups of the cluster. Absent if the documents cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backups: Option<ClusterBackups>,
    /// The certificates on the hosts.
    pub certificates: CertificateRenewals,
    /// All hosts that are declared or have a key, by name.
    pub nodes: Vec<NodeStatus>,
    /// The last highstate of the pseudo-minion `master`. Absent if there was none among the newest
    /// jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub master_highstate: Option<LastHighstate>,
    /// The newest runs, the newest first.
    pub runs: Vec<RecentRun>,
    /// The problems, one sentence each.
    pub problems: Vec<String>,
    /// The results of the checks.
    pub health: Health,
}

document!(ClusterStatus);

/// The bundle in use, and those of the site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BundleInUse {
    /// Its version.
    #[schemars(with = "String")]
    pub version: BundleVersion,
    /// Its Kubernetes, for example `v1.36.3`.
    pub kubernetes: String,
    /// Its directory on the master's host.
    pub path: String,
    /// All bundles of the site.
    pub site: Vec<BundleOfSite>,
}

/// A bundle of the site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BundleOfSite {
    /// Its version.
    #[schemars(with = "String")]
    pub version: BundleVersion,
    /// Its Kubernetes, for example `v1.36.3`.
    pub kubernetes: String,
    /// Its directory on the master's host.
    pub path: String,
    /// SHA-256 of its manifest.
    pub manifest: String,
}

/// The state of the Kubernetes API.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiState {
    /// `true` if it answers.
    pub answers: bool,
    /// The reason why it does not answer. Absent if it answers, and if the documents cannot be
    /// read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// An API server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiServer {
    /// Its host.
    #[schemars(with = "String")]
    pub host: MinionId,
    /// `true` if it is ready.
    pub ready: bool,
    /// The reason why it is not ready. Absent if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The virtual address of the Kubernetes API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualAddress {
    /// The address.
    pub address: String,
    /// The hosts that hold it, among those whose minions answered.
    #[schemars(with = "Vec<String>")]
    pub holders: Vec<MinionId>,
}

/// The cluster's DNS.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterDns {
    /// The hosts with a ready replica.
    pub replicas: Vec<String>,
    /// The nodes without a ready replica.
    pub without: Vec<String>,
}

/// The hosts (`ctl node list`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeList {
    /// All hosts that are declared or have a key, by name.
    pub nodes: Vec<NodeStatus>,
}

document!(NodeList);

/// The state of a host (`ctl node show`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// Its name.
    #[schemars(with = "String")]
    pub name: MinionId,
    /// `true` if it has a node document.
    pub declared: bool,
    /// Its declared roles; empty if it is not declared.
    pub roles: Vec<String>,
    /// Its address in the network of the control plane. Absent if it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The state of its key: `pending`, `accepted` or `rejected`. Absent if it has not enrolled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyState>,
    /// `true` if its minion is connected.
    pub connected: bool,
    /// The version of its minion. Absent before its first connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The time at which its minion was last heard. Absent before its first connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<Time>,
    /// Its Kubernetes node. Absent if there is none, or the API does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<KubernetesNode>,
    /// Its last highstate among the newest jobs. Absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub highstate: Option<LastHighstate>,
    /// The bundle that it uses instead of the cluster's, during an upgrade. Absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub uses: Option<BundleVersion>,
    /// The bundle of its last successful highstate. Absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub bundle: Option<BundleVersion>,
    /// All bundles from which it may have content. Absent if they are unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<String>>")]
    pub bundles: Option<Vec<BundleVersion>>,
}

document!(NodeStatus);

/// The state of a Kubernetes node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubernetesNode {
    /// `true` if it is Ready.
    pub ready: bool,
    /// The unhealthy conditions; left out if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// The version of its kubelet. Absent if the node does not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubelet: Option<String>,
}

words! {
    /// The result of a highstate on a host.
    HighstateResult {
        /// It is running.
        Running = "running",
        /// All states are as declared.
        Succeeded = "succeeded",
        /// A state failed.
        Failed = "failed",
        /// The minion was stopped before it finished.
        Interrupted = "interrupted",
        /// The minion did not return.
        Lost = "lost",
    }
}

/// The last highstate of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastHighstate {
    /// Its job.
    #[schemars(with = "String")]
    pub job: JobId,
    /// The result: `running`, `succeeded`, `failed`, `interrupted` or `lost`.
    pub result: HighstateResult,
    /// The time of its end. Absent while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Time>,
    /// The reason for a failure. Absent if there was none, or if the return contains it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A run in the status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecentRun {
    /// Its id.
    #[schemars(with = "String")]
    pub run: JobId,
    /// The name of the orchestration.
    pub sls: String,
    /// The status: `running`, `paused`, `succeeded`, `failed` or `cancelled`.
    pub status: RunStatus,
    /// The time of its last change.
    pub changed: Time,
}
