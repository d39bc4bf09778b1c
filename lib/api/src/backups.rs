//! Backups in the status: of the cluster, and of the site registry.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Time;

/// The backups of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterBackups {
    /// The number of hosts that should hold a verified backup.
    pub copies: u32,
    /// The hosts that make backups, the master's first.
    pub hosts: Vec<BackupHost>,
}

/// A host that makes backups of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupHost {
    /// The host.
    pub host: String,
    /// The time of the newest backup. Absent if there is none, or if it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub newest: Option<Time>,
    /// The age of the newest backup in seconds. Absent if `newest` is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub newest_age: Option<u64>,
    /// The time of the next backup. Absent if none is declared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<Time>,
    /// The time of the last verification that found a backup good. Absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified: Option<Time>,
    /// The age of that verification in seconds. Absent if `verified` is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified_age: Option<u64>,
    /// The number of keys of etcd that the verification found. Absent if it did not count them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<u64>,
}

/// The backups of the site registry.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RegistryBackups {
    /// The host of the registry.
    pub host: String,
    /// The name of the last good backup. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup: Option<String>,
    /// The time of the last good backup. Absent if `backup` is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup_time: Option<Time>,
    /// The time of the last verification without a problem. Absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified: Option<Time>,
}
