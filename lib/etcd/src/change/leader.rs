//! The transfer of leadership to another member.

use super::{ChangeError, Changes, Round, again};
use crate::member::{Member, MemberId};
use crate::view::{MemberStatus, View};

impl Changes<'_> {
    /// Makes another member the leader before a host's member is taken down on purpose: a leader
    /// that vanishes costs an election of one to two seconds. Returns the name of the new leader;
    /// `None` if that member does not lead, or no other member can.
    ///
    /// # Errors
    /// It still leads after the timeout.
    pub async fn move_leader_off(&self, name: &str) -> Result<Option<String>, ChangeError> {
        let patience = self.patience(format!("{name} does not lead etcd"));
        let mut moved = None;
        loop {
            let view = self.view().await;
            let own = view.seen.iter().find(|seen| seen.member.name == name);
            let Some(own) = own.filter(|own| own.status.is_ok() && leads(&view, own.member.id))
            else {
                return Ok(moved);
            };
            let Some(next) = successor(&view, &own.member, self.prefer) else {
                return Ok(None);
            };
            let because = match self.lead(&own.member, next).await? {
                Round::Done(()) => return Ok(moved),
                Round::Again(because) => because,
            };
            moved = Some(next.title().to_owned());
            let waited = patience.wait(because).await;
            waited.map_err(|because| patience.over(because))?;
        }
    }

    /// Asks a leader to make another member the leader.
    pub(super) async fn lead(
        &self,
        leader: &Member,
        next: &Member,
    ) -> Result<Round<()>, ChangeError> {
        match self.members.move_leader(leader, next.id).await {
            Ok(()) => Ok(Round::Again(format!("{} becomes the leader", next.title()))),
            Err(error) => Ok(again(&error)),
        }
    }
}

/// The voting member that serves and has applied most entries, other than the leader. The preferred
/// member takes precedence if it serves.
pub(super) fn successor<'v>(
    view: &'v View,
    leader: &Member,
    prefer: Option<&str>,
) -> Option<&'v Member> {
    let able = |seen: &&MemberStatus| seen.member.id != leader.id && view.fault(seen).is_none();
    let rank = |seen: &&MemberStatus| {
        let applied = seen.status.as_ref().map_or(0, |status| status.applied);
        (prefer == Some(seen.member.name.as_str()), applied)
    };
    let next = view.voters().filter(able).max_by_key(rank);
    next.map(|seen| &seen.member)
}

/// Returns whether any member reports this one as leader.
pub(super) fn leads(view: &View, id: MemberId) -> bool {
    let known = view
        .seen
        .iter()
        .filter_map(|seen| seen.status.as_ref().ok());
    // The answer of the newest term would be best. But a former leader reports itself for a moment
    // at most; moving it is then refused and retried.
    known.filter(|status| status.leader == Some(id)).count() > 0
}
