//! Checks of etcd's members.

use halite_errors::chain;
use halite_etcd::{AlarmKind, MemberOverview};
use halite_host_reports::etcd::DATA;

use super::Finding;
use super::picture::Picture;

/// The used part of its quota, in percent, above which a database is nearly full.
const FULL: i128 = 80;
/// The free bytes on a member's file system below which it is nearly full. Each segment of its log
/// takes 64 MiB, and the next one is preallocated.
const LITTLE_SPACE: u64 = 256 << 20;

/// A finding about a member. The remedy for the cluster's own members does not apply to an external
/// etcd.
fn finding(picture: &Picture, member: &str, message: String) -> Finding {
    let seen = picture.seen.as_ref();
    if seen.is_some_and(|seen| seen.etcd_is_external) {
        return Finding::complete(format!(
            "{message}; etcd is external (etcd.placement): repair it where it runs"
        ));
    }
    Finding::on(member, message)
}

/// Members whose file system is nearly full, as reported by their hosts, so also without the
/// members' answers.
pub(super) fn disks(picture: &Picture) -> Vec<Finding> {
    let short = picture.answers().filter_map(|(host, health)| {
        let free = health.etcd_free.filter(|free| *free < LITTLE_SPACE)?;
        let message = format!(
            "only {} MiB are free on the file system of {DATA} on {host}: its etcd member ends when it cannot write",
            free >> 20
        );
        Some(Finding::on(host.as_str(), message))
    });
    short.collect()
}

pub(super) fn quorum(picture: &Picture) -> Vec<Finding> {
    let answer = picture.seen.as_ref().and_then(|seen| seen.etcd.as_ref());
    match answer {
        Some(Err(fault)) => vec![finding(
            picture,
            "",
            format!("no member of etcd answers: {}", chain(fault)),
        )],
        Some(Ok(overview)) if !overview.has_quorum => {
            let message = format!("etcd: {}", overview.quorum_line());
            vec![finding(picture, "", message)]
        }
        _ => Vec::new(),
    }
}

pub(super) fn members(picture: &Picture) -> Vec<Finding> {
    let members = picture.etcd().map(|overview| overview.members.as_slice());
    let faults = members.unwrap_or_default().iter().filter_map(|own| {
        let fault = own.fault.as_ref()?;
        let message = format!("the etcd member {fault}");
        Some(finding(picture, &own.member.title(), message))
    });
    faults.collect()
}

pub(super) fn alarms(picture: &Picture) -> Vec<Finding> {
    let Some(overview) = picture.etcd() else {
        return Vec::new();
    };
    let alarm = |alarm: &halite_etcd::Alarm| {
        let mut members = overview.members.iter();
        let owner = members.find(|own| own.member.id == alarm.member);
        let name = owner.map_or_else(|| alarm.member.to_string(), |own| own.member.title());
        let what = match alarm.kind {
            AlarmKind::NoSpace => {
                "NOSPACE: its database has reached its quota, and etcd takes no writes"
            }
            AlarmKind::Corrupt => "CORRUPT: its data differ from those of the other members",
        };
        let message = format!("the etcd member {name} has the alarm {what}");
        finding(picture, &name, message)
    };
    overview.alarms.iter().map(alarm).collect()
}

pub(super) fn space(picture: &Picture) -> Vec<Finding> {
    let full = |own: &MemberOverview| {
        let status = own.status.as_ref()?;
        let (size, quota) = (i128::from(status.db_size), i128::from(status.db_quota));
        if quota <= 0 || size * 100 < quota * FULL {
            return None;
        }
        let (name, percent) = (own.member.title(), size * 100 / quota);
        let message =
            format!("the database of the etcd member {name} has used {percent} % of its quota");
        Some(finding(picture, &name, message))
    };
    let overview = picture.etcd();
    let members = overview.map(|overview| overview.members.as_slice());
    members
        .unwrap_or_default()
        .iter()
        .filter_map(full)
        .collect()
}
