//! Answers about one backup of the site registry.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::document::document;

/// A new backup of the site registry (`ctl registry backup`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MadeRegistryBackup {
    /// Its name.
    pub backup: String,
    /// Its directory.
    pub path: String,
    /// The number of repositories.
    pub repositories: usize,
    /// The number of tags.
    pub tags: usize,
    /// The number of blobs.
    pub blobs: usize,
    /// Its size in bytes.
    pub bytes: u64,
    /// The bytes that the previous backup did not have.
    pub bytes_new: u64,
    /// The blobs that are missing in it, because they are damaged in the registry.
    pub damaged: Vec<RegistryDamage>,
    /// The blobs that are damaged in the registry and were taken from an earlier backup.
    pub repaired: Vec<RepairedBlob>,
    /// The names of the older backups that were removed.
    pub removed: Vec<String>,
    /// The reason why an older backup could not be removed. Absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

document!(MadeRegistryBackup);

/// Damage to a registry or to a backup of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RegistryDamage {
    /// The digest of the damaged blob, or a path.
    pub what: String,
    /// The reason.
    pub why: String,
    /// The repositories that refer to it.
    pub repositories: Vec<String>,
}

/// A damaged blob that an earlier backup had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RepairedBlob {
    /// The digest of the damaged blob, or a path.
    pub what: String,
    /// The reason.
    pub why: String,
    /// The repositories that refer to it.
    pub repositories: Vec<String>,
    /// The earlier backup.
    pub from: String,
}

/// A verified backup of the site registry (`ctl registry verify`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VerifiedRegistryBackup {
    /// Its name.
    pub backup: String,
    /// Its directory.
    pub path: String,
    /// The number of intact blobs.
    pub blobs: usize,
    /// The size of the intact blobs in bytes.
    pub bytes: u64,
    /// All damage.
    pub damaged: Vec<RegistryDamage>,
    /// `true` if nothing is damaged.
    pub sound: bool,
}

document!(VerifiedRegistryBackup);

/// A restore of the site registry (`ctl registry restore`). The numbers are absent if nothing was changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoredRegistry {
    /// The name of the backup.
    pub backup: String,
    /// `true` if the registry was changed; `false` if blobs of the backup are damaged, without
    /// `--without-damaged`.
    pub changed: bool,
    /// The number of repositories of the backup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repositories: Option<usize>,
    /// The number of tags of the backup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<usize>,
    /// The number of blobs of the backup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blobs: Option<usize>,
    /// The size of the backup in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The number of copied blobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copied: Option<usize>,
    /// The size of the copied blobs in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_new: Option<u64>,
    /// The digests of the blobs that were damaged in the registry and are repaired.
    pub repaired: Vec<String>,
    /// The damage because of which something was not restored.
    pub damaged: Vec<RegistryDamage>,
    /// The images that cannot be pulled without the damaged blobs: `REPOSITORY:TAG` or `REPOSITORY@DIGEST`.
    pub lost: Vec<String>,
}

document!(RestoredRegistry);
