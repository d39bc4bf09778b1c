//! Backups of the cluster, which the master's host and its standbys make on timers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{field_schemas, formats};

/// Minutes between two turns.
const MINUTES_APART: u32 = 15;
/// The number of turns of standbys.
const TURNS: u32 = 3;
/// The hour of the day at which the first host verifies its newest backup.
const VERIFIED_HOUR: u32 = 5;

/// Backups of the whole cluster: etcd, the master's store, the CAs, and the declaration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Backup {
    /// The times of day at which a backup is made, by the clock of the master's host: `02:30`, or
    /// `00/6:00` for every six hours from midnight on. The standbys make theirs 15 to 45 minutes
    /// later.
    #[schemars(schema_with = "field_schemas::times_of_day")]
    pub at: String,
    /// The number of backups to keep in the directory of each host. Older ones are removed.
    #[schemars(range(min = 1, max = 1000))]
    pub keep: u32,
    /// The number of hosts that must hold a verified backup. With 1, only the master's host makes
    /// backups; with more, each standby makes its own, even while the master is down.
    #[schemars(range(min = 1, max = 3))]
    pub copies: u32,
    /// The directory of the backups, on each host that makes some. Mount another disk or a share
    /// there, one for each host, so that the backups survive the loss of the host. While the mount
    /// is in `/etc/fstab` and not mounted, no backup is made.
    #[schemars(schema_with = "field_schemas::path")]
    pub directory: String,
    /// The day of the week on which the newest backup is read completely, and a separate etcd is
    /// started with its snapshot; or `daily`, or `never`.
    #[schemars(schema_with = "field_schemas::day_of_week")]
    pub verify: String,
    /// The public keys of age (`age1…`) whose holders can decrypt the backups. Without one, backups
    /// are not encrypted, and contain all keys and secrets of the cluster.
    #[schemars(schema_with = "field_schemas::recipients")]
    pub recipients: Vec<String>,
}

impl Default for Backup {
    fn default() -> Self {
        Self {
            at: "00/6:00".to_owned(),
            keep: 28,
            copies: 2,
            directory: "/var/lib/halite/backup".to_owned(),
            verify: "Sun".to_owned(),
            recipients: Vec::new(),
        }
    }
}

impl Backup {
    /// The first hour of a day, the hours between two backups, and the minute.
    fn times(&self) -> (u32, u32, u32) {
        let (hours, minute) = self.at.split_once(':').unwrap_or((&self.at, ""));
        let (first, step) = hours.split_once('/').unwrap_or((hours, "24"));
        let number = |text: &str| text.parse().ok().filter(|number| (0..60).contains(number));
        let (first, step) = (number(first), number(step));
        let step = step.unwrap_or(24).clamp(1, 24);
        (
            first.unwrap_or(0).min(23),
            step,
            number(minute).unwrap_or(0),
        )
    }

    /// The longest time between two backups, in hours. Repetitions end with the day, as systemd's
    /// do.
    #[must_use]
    pub fn longest_gap(&self) -> i64 {
        let (first, step, _) = self.times();
        let last = first + (23 - first) / step * step;
        // Over midnight, from the last of one day to the first of the next.
        let night = 24 - last + first;
        i64::from(if last == first {
            night
        } else {
            night.max(step)
        })
    }

    /// The turn of a standby; the turn of the master's host is 0. It depends on its name alone, so
    /// that no host that joins or leaves changes the times of another. Names that end in
    /// consecutive numbers have different turns.
    #[must_use]
    pub fn turn_of_standby(name: &str) -> u32 {
        1 + u32::from(name.bytes().next_back().unwrap_or_default()) % TURNS
    }

    /// The hours of the day of a host with this turn, in order, and the minute of each.
    #[must_use]
    pub fn hours_of(&self, turn: u32) -> (Vec<u32>, u32) {
        let (first, step, minute) = self.times();
        let minute = minute + turn * MINUTES_APART;
        let all = (first..24).step_by(step as usize);
        let mut hours: Vec<u32> = all.map(|hour| (hour + minute / 60) % 24).collect();
        hours.sort_unstable();
        (hours, minute % 60)
    }

    /// The times of day of a host with this turn, in systemd's format.
    #[must_use]
    pub fn times_of(&self, turn: u32) -> String {
        if turn == 0 {
            return self.at.clone();
        }
        let (hours, minute) = self.hours_of(turn);
        let hours: Vec<String> = hours.iter().map(|hour| format!("{hour:02}")).collect();
        format!("{}:{minute:02}", hours.join(","))
    }

    /// The time of day at which one host verifies its newest backup.
    #[must_use]
    pub fn verified_at(turn: u32) -> String {
        let minute = turn * MINUTES_APART;
        format!("{:02}:{:02}", VERIFIED_HOUR + minute / 60, minute % 60)
    }

    /// The longest time between two verifications, in hours; `None` with `never`.
    #[must_use]
    pub fn verified_every(&self) -> Option<i64> {
        match self.verify.as_str() {
            formats::NEVER => None,
            "daily" => Some(24),
            _ => Some(7 * 24),
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

    #[test]
    fn the_hosts_take_turns_at_the_declared_interval() {
        for (at, turn, times) in [
            ("00/6:00", 0, "00/6:00"),
            ("00/6:00", 1, "00,06,12,18:15"),
            ("00/6:00", 2, "00,06,12,18:30"),
            ("02:30", 1, "02:45"),
            ("02:50", 1, "03:05"),
            ("23:50", 2, "00:20"),
            ("05/6:50", 1, "00,06,12,18:05"),
            ("00/5:59", 2, "01,06,11,16,21:29"),
        ] {
            let backup = Backup {
                at: at.to_owned(),
                ..Backup::default()
            };
            assert_eq!(backup.times_of(turn), times, "{at}");
        }
        assert_eq!(Backup::default().hours_of(0), (vec![0, 6, 12, 18], 0));
        let turns = ["cp-1", "cp-2", "cp-3"].map(Backup::turn_of_standby);
        assert_eq!(turns, [2, 3, 1]);
        assert_eq!(Backup::verified_at(0), "05:00");
        assert_eq!(Backup::verified_at(2), "05:30");
    }

    #[test]
    fn the_defaults_are_a_backup_each_six_hours_that_is_started_each_week() {
        let backup = Backup::default();
        assert_eq!((backup.longest_gap(), backup.copies), (6, 2));
        assert_eq!(backup.keep, 28, "those of a week");
        assert_eq!(backup.verified_every(), Some(7 * 24));
        let of = |verify: &str| {
            let verify = verify.to_owned();
            let backup = Backup {
                verify,
                ..Backup::default()
            };
            backup.verified_every()
        };
        assert_eq!((of("daily"), of("never")), (Some(24), None));
    }
}
