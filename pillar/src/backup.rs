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
    /// The longest time between two backups, in hours. Repetitions end with the day, as systemd's do.
    #[must_use]
    pub fn longest_gap(&self) -> i64 {
        let (hours, _) = self.at.split_once(':').unwrap_or((&self.at, ""));
        let (first, step) = hours.split_once('/').unwrap_or((hours, "24"));
        let number = |text: &str| text.parse().ok().filter(|number| (0..=24).contains(number));
        let (first, step) = (
            number(first).unwrap_or(0),
            number(step).unwrap_or(24).max(1),
        );
        let last = first + (23 - first).max(0) / step * step;
        // Over midnight, from the last of a day to the first of the next.
        let night = 24 - last + first;
        if last == first {
            night
        } else {
            night.max(step)
        }
    }

    /// Returns whether backups are verified on schedule.
    #[must_use]
    pub fn is_verified(&self) -> bool {
        self.verify != formats::NEVER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_gap_may_be_over_midnight() {
        for (at, hours) in [
            ("02:30", 24),
            ("00/6:00", 6),
            ("00/1:15", 1),
            ("23/5:00", 24),
            ("00/5:00", 5),
            ("06/6:00", 12),
            ("00/23:00", 23),
        ] {
            let backup = Backup {
                at: at.to_owned(),
                ..Backup::default()
            };
            assert_eq!(backup.longest_gap(), hours, "{at}");
        }
    }
}
