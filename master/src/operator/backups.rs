//! The backups of the site registry in `ctl status`. They are made on the registry's host, whose
//! minion sends the report of each run with its grains.

use std::collections::BTreeMap;

use halite_api::{RegistryBackups, Time};
use halite_host_reports::{GRAIN, REGISTRY_BACKUP, REGISTRY_VERIFY, RunReport};
use halite_pillar::declaration::Declaration;
use halite_pillar::registry::{BACKUP_PERIOD, RegistryBackup};
use halite_proto::ids::MinionId;
use halite_store::{Facts, Millis};
use serde_json::Value;

/// The time after its due date within which the first backup must be made.
const FIRST: Millis = 60 * 60 * 1000;
/// The time within which systemd records the failure of a run that has reported it itself.
const AT_ONCE: Millis = 60 * 1000;

/// The document about the registry's backups, and their problems; empty if no registry is declared.
pub(super) fn inspect(
    declaration: &Declaration,
    facts: &BTreeMap<MinionId, Facts>,
    now: Millis,
) -> (Option<RegistryBackups>, Vec<String>) {
    let Some(host) = declaration
        .registry_host()
        .map(|host| host.metadata.name.as_str())
    else {
        return (None, Vec::new());
    };
    // The table of nodes shows that this host has never connected.
    let Some(facts) = facts.get(host) else {
        let unknown = RegistryBackups {
            host: host.to_owned(),
            ..RegistryBackups::default()
        };
        return (Some(unknown), Vec::new());
    };
    let grains: Value = serde_json::from_str(&facts.grains_json).unwrap_or_default();
    let known = Known {
        host,
        backup: &declaration.cluster.site_registry.backup,
        reports: &grains[GRAIN],
    };
    (Some(known.document()), known.problems(now))
}

struct Known<'a> {
    host: &'a str,
    backup: &'a RegistryBackup,
    /// The reports of the host.
    reports: &'a Value,
}

impl Known<'_> {
    fn document(&self) -> RegistryBackups {
        let (backup, verify) = (self.report(REGISTRY_BACKUP), self.report(REGISTRY_VERIFY));
        let good = backup.and_then(|report| report.good);
        let verified = verify.filter(|report| report.failure.is_none());
        RegistryBackups {
            host: self.host.to_owned(),
            backup_time: good.as_ref().map(|good| Time::from_millis(good.time)),
            backup: good.map(|good| good.name),
            verified: verified.map(|report| Time::from_millis(report.ended)),
        }
    }

    fn problems(&self, now: Millis) -> Vec<String> {
        let Some(since) = self.time_of(REGISTRY_BACKUP, "since") else {
            return vec![format!(
                "there is no report on backups of the site registry on {}: `ctl highstate` sets them up there",
                self.host
            )];
        };
        let mut problems: Vec<String> = self.late(since, now).into_iter().collect();
        problems.extend(self.failed(REGISTRY_BACKUP).map(|(when, why)| {
            format!(
                "the backup of the site registry on {} {why}, {when}: `journalctl -u halite-{REGISTRY_BACKUP}` there shows \
                 more, and `systemctl start halite-{REGISTRY_BACKUP}` tries again",
                self.host
            )
        }));
        let verify = self
            .backup
            .is_verified()
            .then(|| self.failed(REGISTRY_VERIFY))
            .flatten();
        problems.extend(verify.map(|(when, why)| {
            format!(
                "the verification of the backups of the site registry on {} {why}, {when}: `ctl registry verify {}` there \
                 names the damage and the remedy; after that, `systemctl start halite-{REGISTRY_BACKUP} \
                 halite-{REGISTRY_VERIFY}`",
                self.host, self.backup.directory
            )
        }));
        problems
    }

    fn late(&self, since: Millis, now: Millis) -> Option<String> {
        let host = self.host;
        let what = match self.report(REGISTRY_BACKUP).and_then(|report| report.good) {
            Some(good) if now - good.time > 2 * BACKUP_PERIOD => {
                format!(
                    "the last good backup of the site registry on {host} is {}, of {}",
                    good.name,
                    time(good.time)
                )
            }
            None if now - since > BACKUP_PERIOD + FIRST => format!(
                "there is no good backup of the site registry on {host}, where there should be one each day since {}",
                time(since)
            ),
            _ => return None,
        };
        Some(format!(
            "{what}: `journalctl -u halite-{REGISTRY_BACKUP}` there shows why, and `systemctl start halite-{REGISTRY_BACKUP}` \
             makes one"
        ))
    }

    /// Time and reason of the last run of a unit, if it failed.
    fn failed(&self, work: &str) -> Option<(String, String)> {
        let report = self.report(work);
        let noted = self.time_of(work, "failed");
        let ended = report.as_ref().map_or(Millis::MIN, |report| report.ended);
        let failure = report.and_then(|report| report.failure);
        match (noted, failure) {
            // The run could not report its failure itself.
            (Some(noted), None) if noted > ended => Some((time(noted), self.cut_off())),
            (Some(noted), Some(_)) if noted > ended.saturating_add(AT_ONCE) => {
                Some((time(noted), self.cut_off()))
            }
            (_, Some(failure)) => Some((time(ended), format!("failed ({failure})"))),
            (_, None) => None,
        }
    }

    fn cut_off(&self) -> String {
        format!(
            "could not start or was cut off (is {} mounted?)",
            self.backup.directory
        )
    }

    fn report(&self, work: &str) -> Option<RunReport> {
        serde_json::from_value(self.reports[format!("{work}.json")].clone()).ok()
    }

    fn time_of(&self, work: &str, what: &str) -> Option<Millis> {
        self.reports[format!("{work}.{what}")].as_i64()
    }
}

/// A time without milliseconds, for display.
fn time(time: Millis) -> String {
    jiff::Timestamp::from_millisecond(time)
        .map_or_else(|_| time.to_string(), |time| format!("{time:.0}"))
}

#[cfg(test)]
#[path = "backups_tests.rs"]
mod tests;
