//! The hosts that hold backups of the cluster, in `ctl status` and `ctl health`: the master's,
//! whose directory is read, and the standbys, whose minions send the reports of their runs with
//! their grains.

use std::collections::BTreeMap;

use halite_api::{BackupHost, ClusterBackups, Time};
use halite_core::clock::rfc3339;
use halite_host_reports::{BACKUP, BACKUP_VERIFY, GRAIN, RunReport};
use halite_pillar::backup::Backup;
use halite_pillar::declaration::Declaration;
use halite_proto::ids::MinionId;
use halite_store::{Facts, Millis};
use jiff::tz::TimeZone;
use serde_json::Value;

use crate::upkeep::calendar;

const HOUR: Millis = 60 * 60 * 1000;

/// The newest backup on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Newest {
    /// Made at this time.
    Of(Millis),
    /// Not made yet.
    Missing,
    /// Its directory cannot be read.
    Unknown,
}

/// A host that makes backups.
struct Holder {
    name: String,
    has_master: bool,
    /// The time since which it should make some; `None` if the host has not reported it.
    since: Option<Millis>,
    newest: Newest,
    /// The time of the next one.
    next: Option<Millis>,
    /// The failure of its last run.
    failure: Option<Failure>,
    verified: Option<RunReport>,
}

/// A run that failed.
struct Failure {
    why: String,
    ended: Millis,
}

/// The findings about them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Findings {
    /// Hosts without a backup whose first one is not overdue yet.
    pub first: Vec<String>,
    /// Hosts whose first backup is overdue, and standbys whose second backup after the newest is.
    /// The master's own newest backup is judged by its directory.
    pub overdue: Vec<String>,
    /// Hosts whose last run failed after their newest backup was made.
    pub failed: Vec<String>,
    /// Fewer hosts than declared hold a backup.
    pub few: Vec<String>,
    /// Hosts whose newest backup is damaged, or was last verified too long ago.
    pub unverified: Vec<String>,
}

/// The hosts and the findings about them. `newest` is the newest backup on the master's host,
/// `made` the time at which the cluster was made, and `zone` the time zone in which backups are
/// declared.
pub(super) fn inspect(
    declaration: &Declaration,
    facts: &BTreeMap<MinionId, Facts>,
    newest: Newest,
    made: Millis,
    (now, zone): (Millis, &TimeZone),
) -> (ClusterBackups, Findings) {
    let backup = &declaration.cluster.backup;
    let hosts = declaration.backup_hosts().into_iter();
    let holders: Vec<Holder> = hosts
        .enumerate()
        .map(|(turn, host)| {
            let name = host.metadata.name.as_str();
            let grains = facts.get(name).map(|facts| &facts.grains_json);
            let grains = grains.and_then(|text| serde_json::from_str::<Value>(text).ok());
            let reports = grains.map_or(Value::Null, |mut grains| grains[GRAIN].take());
            let mut holder = Holder::from_reports(name, &reports);
            if turn == 0 {
                holder.has_master = true;
                holder.newest = newest;
                holder.since = holder.since.or(Some(made));
            }
            let turn = match turn {
                0 => 0,
                _ => Backup::turn_of_standby(name),
            };
            let (hours, minute) = backup.hours_of(turn);
            holder.next = calendar::next(&hours, minute, now, zone);
            holder
        })
        .collect();
    let hosts = holders.iter().map(|holder| holder.document(now));
    let document = ClusterBackups {
        copies: backup.copies,
        hosts: hosts.collect(),
    };
    (document, judge(backup, &holders, now))
}

impl Holder {
    fn from_reports(name: &str, reports: &Value) -> Self {
        let report = |work: &str| -> Option<RunReport> {
            serde_json::from_value(reports[format!("{work}.json")].clone()).ok()
        };
        let last = report(BACKUP);
        Self {
            name: name.to_owned(),
            has_master: false,
            since: reports[format!("{BACKUP}.since")].as_i64(),
            newest: (last.as_ref())
                .and_then(|last| last.good.as_ref())
                .map_or(Newest::Missing, |good| Newest::Of(good.time)),
            next: None,
            failure: last.and_then(|last| {
                let (why, ended) = (last.failure?, last.ended);
                Some(Failure { why, ended })
            }),
            verified: report(BACKUP_VERIFY),
        }
    }

    /// The reason why the last run failed, as the end of a sentence.
    fn last_failure(&self) -> String {
        let why = self.failure.as_ref();
        why.map_or_else(String::new, |failure| {
            format!("; the last run failed: {}", failure.why)
        })
    }

    fn newest(&self) -> Option<Millis> {
        match self.newest {
            Newest::Of(time) => Some(time),
            Newest::Missing | Newest::Unknown => None,
        }
    }

    /// The times for `ctl status`, with the ages in seconds of the newest backup and of its last
    /// verification.
    fn document(&self, now: Millis) -> BackupHost {
        let age = |time: Millis| u64::try_from((now - time) / 1000).unwrap_or_default();
        let good = self.verified.as_ref().filter(|last| last.failure.is_none());
        BackupHost {
            host: self.name.clone(),
            newest: self.newest().map(Time::from_millis),
            newest_age: self.newest().map(age),
            next: self.next.map(Time::from_millis),
            verified: good.map(|last| Time::from_millis(last.ended)),
            verified_age: good.map(|last| age(last.ended)),
            keys: good.and_then(|last| last.good.as_ref()?.keys),
        }
    }
}

/// Returns whether a backup of this time has no successor although the second is due. One run may
/// fail, and its successor needs time.
pub(super) fn is_overdue(backup: &Backup, since: Millis, now: Millis) -> bool {
    now - since > (2 * backup.longest_gap() + 1) * HOUR
}

/// Returns whether the first backup is overdue on a host that makes some since this time.
fn is_first_overdue(backup: &Backup, since: Millis, now: Millis) -> bool {
    now - since > (backup.longest_gap() + 1) * HOUR
}

fn judge(backup: &Backup, holders: &[Holder], now: Millis) -> Findings {
    let mut findings = Findings {
        few: few(backup, holders, now).into_iter().collect(),
        unverified: (holders.iter())
            .filter_map(|own| unverified_on(backup, own, now))
            .collect(),
        ..Findings::default()
    };
    for holder in holders {
        match (holder.newest, holder.since) {
            (Newest::Missing, Some(since)) if is_first_overdue(backup, since, now) => {
                findings.overdue.push(first(holder, since, true));
            }
            (Newest::Missing, Some(since)) => findings.first.push(first(holder, since, false)),
            (Newest::Of(time), _) if !holder.has_master && is_overdue(backup, time, now) => {
                findings.overdue.push(overdue(holder, time));
            }
            (Newest::Of(time), _) => findings.failed.extend(failed(holder, time)),
            _ => {}
        }
    }
    findings
}

/// The finding about a host that has no backup yet.
fn first(holder: &Holder, since: Millis, is_overdue: bool) -> String {
    let name = &holder.name;
    let missing = match is_overdue {
        true => format!(
            "there is no backup of the cluster on {name}, where there should be some since {}",
            rfc3339(since)
        ),
        false => format!("there is no backup of the cluster on {name} yet"),
    };
    let why = holder.last_failure();
    let next = holder.next.map(rfc3339);
    let next = next.map_or_else(String::new, |next| format!("; the next is due at {next}"));
    let makes = match holder.has_master {
        true => "`ctl backup create`".to_owned(),
        false => format!("`systemctl start halite-backup` on {name}"),
    };
    let log = match is_overdue {
        true => format!("`journalctl -u halite-backup` on {name} shows more, and "),
        false => String::new(),
    };
    format!("{missing}{why}{next}: {log}{makes} makes one at once")
}

/// The finding about a standby whose newest backup is too old.
fn overdue(holder: &Holder, time: Millis) -> String {
    let name = &holder.name;
    format!(
        "the newest backup of the cluster on {name} was made at {}{}: `journalctl -u halite-backup` on {name} shows more, and \
         `systemctl start halite-backup` there makes one",
        rfc3339(time),
        holder.last_failure()
    )
}

/// The outcome of the verifications on a host.
enum Verification<'a> {
    /// The last one found the backup good and was in time; or none is declared.
    Good,
    /// The first one is not due yet.
    Awaited,
    /// No verification since this time, which is too long ago.
    Late(Millis),
    /// The last one, at this time, found the backup damaged.
    Failed(&'a str, Millis),
}

fn verification<'a>(backup: &Backup, holder: &'a Holder, now: Millis) -> Verification<'a> {
    // A run before the first backup says nothing about it.
    let last = holder.verified.as_ref().filter(|last| !last.nothing);
    if let Some(RunReport {
        failure: Some(failure),
        ended,
        ..
    }) = last
    {
        return Verification::Failed(failure, *ended);
    }
    let Some(every) = backup.verified_every() else {
        return Verification::Good;
    };
    let limit = (2 * every + 1) * HOUR;
    match (last, holder.since) {
        (Some(last), _) if now - last.ended > limit => Verification::Late(last.ended),
        (Some(_), _) => Verification::Good,
        (None, Some(since)) if now - since > limit => Verification::Late(since),
        (None, _) => Verification::Awaited,
    }
}

/// The finding about a host whose last run failed and that has an earlier backup; `None` if a
/// backup was made by hand afterwards.
fn failed(holder: &Holder, newest: Millis) -> Option<String> {
    let (name, failure) = (&holder.name, holder.failure.as_ref()?);
    (failure.ended >= newest).then(|| {
        format!(
            "the newest backup of the cluster on {name} was made at {}, and the run that ended at {} failed: {}; `journalctl -u \
             halite-backup` on {name} shows more, and `systemctl start halite-backup` there makes one",
            rfc3339(newest),
            rfc3339(failure.ended),
            failure.why
        )
    })
}

/// The finding that fewer hosts than declared hold a good backup. A host counts while its first
/// backup, or the first verification of it, is not due yet; a backup that is damaged or was not
/// verified for too long does not count.
fn few(backup: &Backup, holders: &[Holder], now: Millis) -> Option<String> {
    let needed = holders.len().min(backup.copies as usize);
    let (mut good, mut coming) = (Vec::new(), 0);
    for holder in holders {
        match (holder.newest, holder.since) {
            (Newest::Of(time), _) if !is_overdue(backup, time, now) => {
                match verification(backup, holder, now) {
                    Verification::Good => good.push(holder.name.as_str()),
                    Verification::Awaited => coming += 1,
                    Verification::Late(_) | Verification::Failed(..) => {}
                }
            }
            (Newest::Missing | Newest::Unknown, Some(since))
                if !is_first_overdue(backup, since, now) =>
            {
                coming += 1;
            }
            _ => {}
        }
    }
    (good.len() + coming < needed).then(|| {
        let on = match good.as_slice() {
            [] => String::new(),
            some => format!(" ({})", some.join(", ")),
        };
        let (what, units) = match backup.is_verified() {
            true => (
                "a verified backup",
                "`systemctl start halite-backup halite-backup-verify` on one makes a backup there and verifies it",
            ),
            false => (
                "a backup",
                "`systemctl start halite-backup` on one makes a backup there",
            ),
        };
        format!(
            "{} of {} hosts hold {what} of the cluster that is not overdue{on}, and `backup.copies` is {}: `ctl highstate` sets \
             up the others, and {units}",
            good.len(),
            holders.len(),
            backup.copies
        )
    })
}

fn unverified_on(backup: &Backup, holder: &Holder, now: Millis) -> Option<String> {
    // A missing first backup is another finding.
    if !backup.is_verified() || holder.newest == Newest::Missing {
        return None;
    }
    let name = &holder.name;
    let remedy = format!(
        "`journalctl -u halite-backup-verify` on {name} shows more; `systemctl start halite-backup halite-backup-verify` there \
         makes a new backup and verifies it"
    );
    match verification(backup, holder, now) {
        Verification::Good | Verification::Awaited => None,
        Verification::Failed(failure, ended) => Some(format!(
            "the newest backup of the cluster on {name} is not verified, {}: {failure}; {remedy}",
            rfc3339(ended)
        )),
        Verification::Late(since) => Some(format!(
            "no backup of the cluster on {name} was verified since {}: {remedy}",
            rfc3339(since)
        )),
    }
}

#[cfg(test)]
#[path = "backup_hosts_tests.rs"]
mod tests;
