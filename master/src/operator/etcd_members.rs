//! `ctl etcd status`: the members of etcd.

use halite_errors::chain;
use halite_etcd::{AlarmKind, MemberOverview, Overview};
use serde_json::{Value, json};

use crate::declared::Snapshot;
use crate::jobs::Jobs;
use crate::refusal::{Refusal, RefusalKind};

/// The members, the alarms, the quorum and the problems, and when the master defragments the members.
///
/// # Errors
/// No member answers.
pub(super) async fn document(jobs: &Jobs, snapshot: &Snapshot) -> Result<Value, Refusal> {
    let members = jobs.clusters().etcd().members(snapshot).await?;
    let overview = Overview::take(members.as_ref()).await;
    let overview =
        overview.map_err(|error| Refusal::new(RefusalKind::Unavailable, chain(&error)))?;
    let cluster = &snapshot.declaration().cluster;
    let is_external = cluster.external_etcd().is_some();
    let mut document = json(&overview, is_external);
    if !is_external {
        document["defrag"] = json!(cluster.etcd.defrag);
    }
    Ok(document)
}

/// The members as a document.
pub(super) fn json(overview: &Overview, is_external: bool) -> Value {
    let alarms = || {
        overview
            .alarms
            .iter()
            .map(|alarm| (owner(overview, alarm.member), alarm.kind))
    };
    json!({
        "external": is_external,
        "quorum": overview.quorum_line(),
        "voters": overview.voters.all,
        "serving": overview.voters.serving,
        "members": overview.members.iter().map(member).collect::<Vec<_>>(),
        "alarms": alarms().map(|(name, kind)| json!({"member": name, "alarm": text(kind)})).collect::<Vec<_>>(),
        "problems": problems(overview),
    })
}

fn member(own: &MemberOverview) -> Value {
    let role = match (own.member.is_learner, own.leads) {
        (true, _) => "learner",
        (false, true) => "leader",
        (false, false) => "follower",
    };
    let status = own.status.as_ref();
    json!({
        "name": own.member.title(),
        "id": own.member.id.to_string(),
        "role": role,
        "peer": own.member.peer_urls,
        "client": own.member.client_urls,
        "version": status.map(|status| &status.version),
        "dbSize": status.map(|status| status.db_size),
        "dbInUse": status.map(|status| status.db_in_use),
        "dbQuota": status.map(|status| status.db_quota).filter(|quota| *quota > 0),
        "lag": own.lag,
        "fault": own.fault,
    })
}

fn owner(overview: &Overview, id: halite_etcd::MemberId) -> String {
    let own = overview.members.iter().find(|own| own.member.id == id);
    own.map_or_else(|| id.to_string(), |own| own.member.title())
}

fn text(kind: AlarmKind) -> &'static str {
    match kind {
        AlarmKind::NoSpace => "NOSPACE",
        AlarmKind::Corrupt => "CORRUPT",
    }
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
