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
    /// The number of tags.
    pub tags: usize,
    /// The number of blobs.
    pub blobs: usize,
    /// Its size in bytes.
    pub size: u64,
    /// The bytes that the previous backup did not have.
    pub added_size: u64,
    /// The names of the older backups that were removed.
    pub removed: Vec<String>,
    /// The reason why an older backup could not be removed. Absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

document!(MadeRegistryBackup);

/// A verified backup of the site registry (`ctl registry verify`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VerifiedRegistryBackup {
    /// Its name.
    pub backup: String,
    /// Its directory.
    pub path: String,
    /// The number of blobs.
    pub blobs: usize,
    /// Its size in bytes.
    pub size: u64,
    /// `true` if it is undamaged. A damaged backup is an error, so this is always `true`.
    pub sound: bool,
}

document!(VerifiedRegistryBackup);

/// A restore of the site registry (`ctl registry restore`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoredRegistry {
    /// The name of the backup.
    pub backup: String,
    /// The number of tags.
    pub tags: usize,
    /// The number of blobs.
    pub blobs: usize,
    /// The size of the backup in bytes.
    pub size: u64,
    /// The bytes that the registry did not have intact, which were copied.
    pub added_size: u64,
}

document!(RestoredRegistry);
