//! The hosts that hold backups of the cluster, in `ctl status` and `ctl health`: the master's, whose
//! directory is read, and the standbys, whose minions send the reports of their runs with their
//! grains.

use std::collections::BTreeMap;

use halite_host_reports::{BACKUP, BACKUP_VERIFY, GRAIN, Report};
use halite_pillar::backup::Backup;
use halite_pillar::declaration::Declaration;
use halite_proto::ids::MinionId;
use serde_json::{Value, json};

use crate::clock::rfc3339;
use crate::store::{Facts, Millis};

const HOUR: Millis = 60 * 60 * 1000;

/// A host that makes backups.
struct Holder {
    name: String,
    has_master: bool,
    /// The time since which there should be some, if the host has said.
    since: Option<Millis>,
    newest: Option<Millis>,
    /// The reason why its last run failed.
    failure: Option<String>,
    verified: Option<Report>,
}

/// The findings about them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Findings {
    /// Standbys whose second backup is overdue. The master's own is judged by its directory.
    pub overdue: Vec<String>,
    /// Fewer hosts than declared hold a backup.
    pub few: Vec<String>,
    /// Hosts on which the newest backup is no good, or was not verified for long.
    pub unverified: Vec<String>,
}

/// The hosts and the findings about them. `newest` is the time of the newest backup on the master's
/// host, and `made` the time at which the cluster was made.
pub(super) fn inspect(
    declaration: &Declaration,
    facts: &BTreeMap<MinionId, Facts>,
    newest: Option<Millis>,
    made: Millis,
    now: Millis,
) -> (Value, Findings) {
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
            holder
        })
        .collect();
    let backup = &declaration.cluster.backup;
    let document = json!({
        "copies": backup.copies,
        "hosts": holders.iter().map(Holder::document).collect::<Vec<_>>(),
    });
    (document, judge(backup, &holders, now))
}

impl Holder {
    fn from_reports(name: &str, reports: &Value) -> Self {
        let report = |work: &str| -> Option<Report> {
            serde_json::from_value(reports[format!("{work}.json")].clone()).ok()
        };
        let last = report(BACKUP);
        Self {
            name: name.to_owned(),
            has_master: false,
            since: reports[format!("{BACKUP}.since")].as_i64(),
            newest: last
                .as_ref()
                .and_then(|last| Some(last.good.as_ref()?.time)),
            failure: last.and_then(|last| last.failure),
            verified: report(BACKUP_VERIFY),
        }
    }

    fn document(&self) -> Value {
        let good = self.verified.as_ref().filter(|last| last.failure.is_none());
        json!({
            "node": self.name,
            "newest": self.newest.map(rfc3339),
            "verified": good.map(|last| rfc3339(last.ended)),
            "keys": good.and_then(|last| last.good.as_ref()?.keys),
        })
    }
}

/// Returns whether a backup of this time has no successor although the second is due. One may fail,
/// and its successor may take its time.
pub(super) fn is_overdue(backup: &Backup, since: Millis, now: Millis) -> bool {
    now - since > (2 * backup.longest_gap() + 1) * HOUR
}

fn judge(backup: &Backup, holders: &[Holder], now: Millis) -> Findings {
    let standbys = holders.iter().filter(|holder| !holder.has_master);
    let unverified = holders.iter();
    Findings {
        overdue: standbys
            .filter_map(|own| overdue(backup, own, now))
            .collect(),
        few: few(backup, holders, now).into_iter().collect(),
        unverified: unverified
            .filter_map(|own| unverified_on(backup, own, now))
            .collect(),
    }
}

fn overdue(backup: &Backup, holder: &Holder, now: Millis) -> Option<String> {
    let name = &holder.name;
    let what = match (holder.newest, holder.since) {
        (Some(time), _) if is_overdue(backup, time, now) => format!(
            "the newest backup of the cluster on {name} is of {}",
            rfc3339(time)
        ),
        (None, Some(since)) if is_overdue(backup, since, now) => format!(
            "there is no backup of the cluster on {name}, where there should be some since {}",
            rfc3339(since)
        ),
        _ => return None,
    };
    let why = holder.failure.as_ref();
    let why = why.map_or_else(String::new, |why| format!("; the last run failed: {why}"));
    Some(format!(
        "{what}{why}: `journalctl -u halite-backup` on {name} shows more, and `systemctl start halite-backup` there makes one"
    ))
}

/// Fewer hosts with a backup than declared; those of which the first one is not due yet count.
fn few(backup: &Backup, holders: &[Holder], now: Millis) -> Option<String> {
    let needed = holders.len().min(backup.copies as usize);
    let first = (backup.longest_gap() + 1) * HOUR;
    let (mut good, mut coming) = (Vec::new(), 0);
    for holder in holders {
        match (holder.newest, holder.since) {
            (Some(time), _) if !is_overdue(backup, time, now) => good.push(holder.name.as_str()),
            (None, Some(since)) if now - since <= first => coming += 1,
            _ => {}
        }
    }
    (good.len() + coming < needed).then(|| {
        let on = match good.as_slice() {
            [] => String::new(),
            some => format!(" ({})", some.join(", ")),
        };
        format!(
            "{} of {} hosts hold a verified backup of the cluster that is not overdue{on}, and `backup.copies` is {}: \
             `ctl highstate` sets up the others, and `systemctl start halite-backup` on one makes a backup there",
            good.len(),
            holders.len(),
            backup.copies
        )
    })
}

fn unverified_on(backup: &Backup, holder: &Holder, now: Millis) -> Option<String> {
    let limit = (2 * backup.verified_every()? + 1) * HOUR;
    let name = &holder.name;
    let remedy = format!(
        "`journalctl -u halite-backup-verify` on {name} shows more; `systemctl start halite-backup halite-backup-verify` there \
         makes a new backup and verifies it"
    );
    let ended = holder.verified.as_ref().map(|last| last.ended);
    match holder
        .verified
        .as_ref()
        .and_then(|last| last.failure.as_ref())
    {
        Some(failure) => Some(format!(
            "the newest backup of the cluster on {name} is not verified, {}: {failure}; {remedy}",
            rfc3339(ended.unwrap_or(now))
        )),
        None if now - ended.or(holder.since)? > limit => Some(format!(
            "no backup of the cluster on {name} was verified since {}: {remedy}",
            rfc3339(ended.or(holder.since)?)
        )),
        None => None,
    }
}

#[cfg(test)]
#[path = "backup_hosts_tests.rs"]
mod tests;
