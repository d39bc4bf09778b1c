//! Documents that `ctl` makes from files on its host.

use halite_names::BundleVersion;
use halite_proto::ids::MinionId;
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
    /// The time at which its recipe was resolved. Absent if its manifest cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub built: Option<String>,
    /// Its size in bytes. Absent if its manifest cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// The hosts whose last successful highstate used it. Absent if no master answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<String>>")]
    pub hosts: Option<Vec<MinionId>>,
    /// `true` if the cluster uses it.
    pub in_use: bool,
    /// The hosts whose documents name it, during an upgrade; left out if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub used_by: Vec<String>,
    /// Its path.
    pub path: String,
    /// The path to which its path links. Absent if it is not a link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elsewhere: Option<String>,
    /// The reason why it cannot be used. Absent if it can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The images of a bundle (`ctl images`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageList {
    /// The version of the bundle.
    #[schemars(with = "String")]
    pub bundle: BundleVersion,
    /// The images.
    pub images: Vec<BundleImage>,
}

document!(ImageList);

/// An image of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BundleImage {
    /// The reference by which it is pulled.
    pub reference: String,
    /// Its component in the recipe. Absent for an image without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub component: Option<String>,
    /// Its size in bytes.
    pub size: u64,
    /// Its digest.
    pub digest: String,
}

/// The backups of the cluster in a directory (`ctl backup list`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupList {
    /// The backups, by name.
    pub backups: Vec<BackupOnDisk>,
}

document!(BackupList);

/// A backup of the cluster. The fields other than `backup` and `problem` are absent if the file
/// cannot be read.
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
    /// The time at which it was started, RFC 3339 in UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// Its size in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// The Kubernetes of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<String>,
    // Text: an earlier version may have written the file.
    /// The bundle of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bundle: Option<String>,
    /// `true` if it is encrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encrypted: Option<bool>,
    /// The public keys of the recipients who can read it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recipients: Vec<String>,
    /// The number of keys in an etcd that the last verification started from it. Absent if that was
    /// a verification of another backup.
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

/// A backup of the site registry. The fields other than `backup` and `problem` are absent if it
/// cannot be read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RegistryBackupOnDisk {
    /// Its name.
    pub backup: String,
    /// The time of its creation, RFC 3339 in UTC.
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
    pub size: Option<u64>,
    /// The bytes that it adds to the previous backup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub added_size: Option<u64>,
    /// The reason why it cannot be read. Absent if it can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}
