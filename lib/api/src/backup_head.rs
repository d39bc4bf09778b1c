//! The first part of the answer to `ctl backup create`.

use halite_names::BundleVersion;
use serde::{Deserialize, Serialize};

use crate::{StreamReport, Time};

/// The facts about a backup, before its files. The master sends it, or `halite-master save` on a
/// standby; the signature of the backup covers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupHead {
    /// The name of the cluster.
    pub cluster: String,
    /// SHA-256 of the certificate of the cluster's own CA. An earlier version has the alias.
    #[serde(alias = "cluster_id")]
    pub cluster_id: String,
    /// The time at which the backup was started.
    pub created: Time,
    /// The epoch of the store in it.
    pub epoch: u64,
    /// The version of Halite.
    pub halite: String,
    /// The version of Kubernetes.
    pub kubernetes: String,
    /// The version of the bundle in use. Absent without a bundle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bundle: Option<BundleVersion>,
    /// The source of etcd's snapshot.
    pub etcd: SnapshotMember,
    /// The declared options.
    pub backup: BackupOptions,
    /// The standby whose copy was saved. Absent in a backup by the master.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standby: Option<SavedStandby>,
}

/// The member of etcd whose snapshot is in a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotMember {
    /// Its name.
    pub member: String,
    /// The version of its program.
    pub version: String,
    /// The id of the cluster of members, in hexadecimal as etcd writes it.
    pub cluster: String,
    /// Its keys when the backup started. Absent in the answer of an earlier version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<KeysAtRevision>,
}

/// The number of etcd's keys at a revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeysAtRevision {
    /// The revision.
    pub revision: i64,
    /// The number of keys.
    pub count: u64,
}

/// The declared options of backups that concern the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupOptions {
    /// The directory of the backups.
    pub directory: String,
    /// The number of backups to keep in it.
    pub keep: u32,
    /// The public keys of age that can decrypt the backup; empty if it is not encrypted.
    pub recipients: Vec<String>,
}

/// A standby that has saved its copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SavedStandby {
    /// Its host. Absent if no node document names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The state of its stream from the master. Absent before the first one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub followed: Option<StreamReport>,
}
