//! Backups of the cluster, which the master's host makes on a timer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{field_schemas, formats};

/// Backups of the whole cluster: etcd, the master's store, the CAs, and what is declared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Backup {
    /// The times of day at which one is made, by the clock of the master's host: `02:30`, or
    /// `00/6:00` for every six hours from midnight on.
    #[schemars(schema_with = "field_schemas::times_of_day")]
    pub at: String,
    /// The number of backups to keep.
    #[schemars(range(min = 1, max = 1000))]
    pub keep: u32,
    /// The directory of the backups, on the master's host. Mount another disk or a share here, so
    /// that the backups survive the loss of the host; while it is in `/etc/fstab` and not mounted,
    /// no backup is made.
    #[schemars(schema_with = "field_schemas::path")]
    pub directory: String,
    /// The day of the week on which the newest backup is read completely; or `daily`, or `never`.
    #[schemars(schema_with = "field_schemas::day_of_week")]
    pub verify: String,
    /// The public keys of age (`age1…`) whose holders can decrypt the backups. Without one they are
    /// not encrypted, and contain all keys and secrets of the cluster.
    #[schemars(schema_with = "field_schemas::recipients")]
    pub recipients: Vec<String>,
}

impl Default for Backup {
    fn default() -> Self {
        Self {
            at: "00/6:00".to_owned(),
            keep: 28,
            directory: "/var/lib/halite/backup".to_owned(),
            verify: "Sun".to_owned(),
            recipients: Vec::new(),
        }
    }
}

impl Backup {
    /// Returns whether backups are verified on schedule.
    #[must_use]
    pub fn is_verified(&self) -> bool {
        self.verify != formats::NEVER
    }
}
