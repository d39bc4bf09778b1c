//! `ctl etcd status`: the members of etcd.

use halite_api::{Alarm, DefragSchedule, EtcdMember, EtcdMemberRole, EtcdStatus, Time};
use halite_core::declared::Snapshot;
use halite_core::refusal::{Refusal, RefusalKind};
use halite_errors::chain;
use halite_etcd::{AlarmKind, MemberOverview, Overview};
use halite_fleet::jobs::Jobs;
use halite_pillar::etcd::Defrag;
use halite_store::Millis;
use jiff::tz::TimeZone;

use crate::upkeep::calendar;

/// The members, alarms, quorum and problems, and the time of the master's next defragmentation.
///
/// # Errors
/// No member answers.
pub(super) async fn document(jobs: &Jobs, snapshot: &Snapshot) -> Result<EtcdStatus, Refusal> {
    let members = jobs.clusters().etcd().members(snapshot).await?;
    let overview = Overview::take(members.as_ref()).await;
    let overview =
        overview.map_err(|error| Refusal::new(RefusalKind::Unavailable, chain(&error)))?;
    let cluster = &snapshot.declaration().cluster;
    let is_external = cluster.external_etcd().is_some();
    let mut document = status(&overview, is_external);
    if !is_external {
        let defrag = &cluster.etcd.defrag;
        let app = jobs.app();
        let trial = app.upkeep.trouble().map(|trouble| trouble.next);
        let next = next(defrag, trial, app.clock.now(), &calendar::local());
        document.defrag = Some(DefragSchedule {
            at: defrag.at.clone(),
            above: defrag.above.clone(),
            next: next.map(Time::from_millis),
        });
    }
    Ok(document)
}

/// The time of the next defragmentation: a declared one, or the next trial after a failed one;
/// `None` with `never`.
fn next(defrag: &Defrag, trial: Option<Millis>, now: Millis, zone: &TimeZone) -> Option<Millis> {
    let declared = calendar::upcoming(defrag.weekly()?, now, zone)?;
    let trial = trial.filter(|trial| *trial > now);
    Some(trial.map_or(declared, |trial| trial.min(declared)))
}

/// The members as a document.
pub(super) fn status(overview: &Overview, is_external: bool) -> EtcdStatus {
    let alarms = overview.alarms.iter().map(|alarm| Alarm {
        member: owner(overview, alarm.member),
        alarm: match alarm.kind {
            AlarmKind::NoSpace => halite_api::AlarmKind::NoSpace,
            AlarmKind::Corrupt => halite_api::AlarmKind::Corrupt,
        },
    });
    EtcdStatus {
        error: None,
        external: is_external,
        quorum: Some(overview.quorum_line()),
        voters: overview.voters.all,
        serving: overview.voters.serving,
        members: overview.members.iter().map(member).collect(),
        alarms: alarms.collect(),
        problems: problems(overview),
        defrag: None,
    }
}

fn member(own: &MemberOverview) -> EtcdMember {
    let role = match (own.member.is_learner, own.leads) {
        (true, _) => EtcdMemberRole::Learner,
        (false, true) => EtcdMemberRole::Leader,
        (false, false) => EtcdMemberRole::Follower,
    };
    let status = own.status.as_ref();
    EtcdMember {
        name: own.member.title(),
        id: own.member.id.to_string(),
        role,
        peer: own.member.peer_urls.clone(),
        client: own.member.client_urls.clone(),
        version: status.map(|status| status.version.clone()),
        db_size: status.map(|status| status.db_size),
        db_in_use: status.map(|status| status.db_in_use),
        db_quota: status
            .map(|status| status.db_quota)
            .filter(|quota| *quota > 0),
        lag: own.lag,
        fault: own.fault.clone(),
    }
}

fn owner(overview: &Overview, id: halite_etcd::MemberId) -> String {
    let own = overview.members.iter().find(|own| own.member.id == id);
    own.map_or_else(|| id.to_string(), |own| own.member.title())
}

fn problems(overview: &Overview) -> Vec<String> {
    let faults = overview.members.iter().filter_map(|own| own.fault.clone());
    let alarms = overview.alarms.iter().map(|alarm| {
        let name = owner(overview, alarm.member);
        match alarm.kind {
            AlarmKind::NoSpace => format!(
                "{name} has the alarm NOSPACE: its database has reached its quota, and etcd takes no writes"
            ),
            AlarmKind::Corrupt => format!(
                "{name} has the alarm CORRUPT: its data differ from those of the other members"
            ),
        }
    });
    faults.chain(alarms).collect()
}

#[cfg(test)]
mod tests {
    use halite_core::clock::{millis, rfc3339};

    use super::*;

    #[test]
    fn the_next_defragmentation_is_at_the_declared_time_or_that_of_the_next_trial() {
        let at = |text: &str| Defrag {
            at: text.to_owned(),
            ..Defrag::default()
        };
        let now = millis("2026-11-25T12:00:00Z").unwrap();
        let next = |at: &Defrag, trial: Option<&str>| {
            let trial = trial.and_then(millis);
            next(at, trial, now, &TimeZone::UTC).map(rfc3339)
        };
        let (weekly, never) = (at("Sun 03:30"), at("never"));
        let declared = Some("2026-11-29T03:30:00.000Z".to_owned());
        assert_eq!(next(&weekly, None), declared);
        // That time has passed: it waits for its turn.
        assert_eq!(next(&weekly, Some("2026-11-25T11:00:00Z")), declared);
        assert_eq!(next(&weekly, Some("2026-11-30T00:00:00Z")), declared);
        let trial = Some("2026-11-25T16:00:00.000Z".to_owned());
        assert_eq!(next(&weekly, trial.as_deref()), trial);
        assert_eq!(next(&never, trial.as_deref()), None);
    }
}
