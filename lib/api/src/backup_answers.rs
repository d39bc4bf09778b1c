//! Answers about one backup of the cluster.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Time;
use crate::document::document;

/// A new backup (`ctl backup create`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MadeBackup {
    /// The name of its file.
    pub backup: String,
    /// The path of its file.
    pub path: String,
    /// The name of the cluster.
    pub cluster: String,
    /// The hash of the CA that signed it. A restore compares it.
    pub ca_hash: String,
    /// `true` if it is signed. A master of an earlier version does not sign.
    pub signed: bool,
    /// The time at which it was begun.
    pub created: Time,
    /// Its size in bytes.
    pub size: u64,
    /// The number of files in it.
    pub files: usize,
    /// The etcd member that the snapshot is from.
    pub member: String,
    /// `true` if it is encrypted.
    pub encrypted: bool,
    /// The names of the older backups that were removed.
    pub removed: Vec<String>,
    /// The time since which the standby that made it has not followed the master. Absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_followed_since: Option<Time>,
    /// The failures after the backup was made, one sentence each.
    pub problems: Vec<String>,
}

document!(MadeBackup);

/// A backup that was verified (`ctl backup verify`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VerifiedBackup {
    /// The path of its file.
    pub path: String,
    /// The name of the cluster.
    pub cluster: String,
    /// The time at which it was begun.
    pub created: Time,
    /// Its size in bytes.
    pub size: u64,
    /// Its SHA-256, which each byte of it was compared with.
    pub digest: String,
    /// The number of files in it. Absent if it is encrypted and no key was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<usize>,
    /// The hash of the CA of the cluster.
    pub ca_hash: String,
    /// `true` if it is signed by that CA. Absent as `files`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signed: Option<bool>,
    /// Always `true`: a damaged backup is an error.
    pub sound: bool,
    /// The etcd that was started with it. Absent without `--start`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<StartedEtcd>,
}

document!(VerifiedBackup);

/// An etcd that was started with a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StartedEtcd {
    /// The backup that was made for it, because the verified one is encrypted. Absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub made: Option<String>,
    /// The number of keys in it.
    pub keys: u64,
    /// The revision of its newest key.
    pub revision: i64,
    /// `true` if the number of keys was compared with that of the member. Older backups do not
    /// record it.
    pub compared: bool,
}

/// A copy of a backup (`ctl backup get`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CopiedBackup {
    /// The path of the copy.
    pub path: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its SHA-256.
    pub digest: String,
    /// `true` if it has the digest of the original.
    pub sound: bool,
}

document!(CopiedBackup);
