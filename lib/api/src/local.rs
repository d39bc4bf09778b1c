//! Documents that `ctl` makes of what is on its host.

use halite_names::BundleVersion;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::document::document;

/// The bundles of the site (`ctl bundle list`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BundleList {
    /// The bundles, by version.
    pub bundles: Vec<BundleOnSite>,
}

document!(BundleList);

/// A bundle of the site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BundleOnSite {
    /// Its version.
    #[schemars(with = "String")]
    pub version: BundleVersion,
    /// Its Kubernetes. Absent if its manifest cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<String>,
    /// The time at which its content was resolved. Absent if its manifest cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub built: Option<String>,
    /// Its size in bytes. Absent if its manifest cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// The hosts whose last successful highstate used it. Absent if no master answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<String>>,
    /// Whether the cluster uses it.
    pub in_use: bool,
    /// The hosts whose documents name it, during an upgrade; left out if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub used_by: Vec<String>,
    /// Its path.
    pub path: String,
    /// The path to which its path links. Absent if it is no link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elsewhere: Option<String>,
    /// The reason why it cannot be used. Absent if it can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The backups of the cluster in a directory (`ctl backup list`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupList {
    /// The backups, by name.
    pub backups: Vec<BackupOnDisk>,
}

document!(BackupList);

/// A backup of the cluster. The fields other than `backup` and `problem` are absent if the file cannot be
/// read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupOnDisk {
    /// The name of its file.
    pub backup: String,
    /// The name of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The id of the cluster: SHA-256 of its CA.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// The time at which it was begun, RFC 3339 in UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// Its size in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The Kubernetes of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<String>,
    /// The bundle of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bundle: Option<String>,
    /// Whether it is encrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encrypted: Option<bool>,
    /// The public keys of those who can read it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recipients: Vec<String>,
    /// The number of keys with which an etcd has started with it, in the last verification. Absent if that was
    /// of another backup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_keys: Option<u64>,
    /// The reason why it cannot be read. Absent if it can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The backups of the site registry in a directory (`ctl registry list`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RegistryBackupList {
    /// The backups, by name.
    pub backups: Vec<RegistryBackupOnDisk>,
}

document!(RegistryBackupList);

/// A backup of the site registry. The fields other than `backup` and `problem` are absent if it cannot be
/// read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RegistryBackupOnDisk {
    /// Its name.
    pub backup: String,
    /// The time at which it was made, RFC 3339 in UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// The number of tags.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<usize>,
    /// The number of blobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blobs: Option<usize>,
    /// Its size in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The bytes that it has more than the backup before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_new: Option<u64>,
    /// The reason why it cannot be read. Absent if it can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}
