//! The promotion of a learner to a voting member, or its removal.

use super::error::LearnerEnd;
use super::{ChangeError, Changes, MemberHost, Round, again};
use crate::member::MemberId;
use crate::view::{LAG, MemberList, View};

impl Changes<'_> {
    /// Waits until a learner has caught up with the others and gives it its vote. A learner without
    /// a vote at the timeout is removed.
    ///
    /// # Errors
    /// The host is not a member, its address is another's, or it did not get its vote in time.
    pub async fn promote(&self, host: &MemberHost) -> Result<MemberId, ChangeError> {
        let patience = self.patience(format!("{} is in sync and has its vote", host.name));
        loop {
            let because = match self.promote_round(host).await? {
                Round::Done(id) => return Ok(id),
                Round::Again(because) => because,
            };
            if let Err(because) = patience.wait(because).await {
                return self.never_synced(host, because).await;
            }
        }
    }

    async fn promote_round(&self, host: &MemberHost) -> Result<Round<MemberId>, ChangeError> {
        let members = match self.members.list().await {
            Ok(members) => members,
            Err(error) => return Ok(again(&error)),
        };
        let Some(member) = Self::find(&members, host).cloned() else {
            return Err(ChangeError::NoMember {
                name: host.name.clone(),
                url: host.peer_url.clone(),
            });
        };
        if !member.has_started() {
            let why = "it has not started: its etcd has not reached the other members";
            return Ok(Round::Again(why.to_owned()));
        }
        if member.name != host.name {
            return Err(ChangeError::AddressTaken {
                name: host.name.clone(),
                url: host.peer_url.clone(),
                by: member.title(),
            });
        }
        if !member.is_learner {
            return Ok(Round::Done(member.id));
        }
        let view = View::take(self.members, MemberList::agreed(members)).await;
        let learner = view.seen.iter().find(|seen| seen.member.id == member.id);
        match learner.map(|seen| &seen.status) {
            Some(Ok(status)) if view.lag(status) > LAG => {
                return Ok(Round::Again(format!(
                    "it has {} of {} entries",
                    status.applied, view.index
                )));
            }
            Some(Err(why)) => return Ok(Round::Again(why.clone())),
            _ => {}
        }
        if !view.count().keep_quorum_with_one_more() {
            return Ok(Round::Again(view.faults()));
        }
        // etcd has its own rule: nine tenths of the leader's entries.
        match self.members.promote(member.id).await {
            Ok(()) => Ok(Round::Again("the promotion is confirmed".to_owned())),
            Err(error) => Ok(again(&error)),
        }
    }

    /// Removes a learner after its timeout, unless it has got its vote after all.
    async fn never_synced(
        &self,
        host: &MemberHost,
        because: String,
    ) -> Result<MemberId, ChangeError> {
        let patience = self.patience(format!("the learner {} is removed", host.name));
        let end = loop {
            let why = match self.give_up_round(host).await {
                // The last attempt succeeded, but its answer was lost.
                Round::Done(Some(id)) => return Ok(id),
                Round::Done(None) => break LearnerEnd::Removed,
                Round::Again(why) => why,
            };
            if let Err(why) = patience.wait(why).await {
                break LearnerEnd::Stays(why);
            }
        };
        Err(ChangeError::NeverSynced {
            name: host.name.clone(),
            limit: self.limit.as_secs(),
            because,
            end,
        })
    }

    async fn give_up_round(&self, host: &MemberHost) -> Round<Option<MemberId>> {
        let members = match self.members.list().await {
            Ok(members) => members,
            Err(error) => return again(&error),
        };
        match Self::find(&members, host) {
            Some(member) if !member.is_learner => Round::Done(Some(member.id)),
            Some(member) => match self.members.remove(member.id).await {
                Ok(()) => Round::Again("the removal is confirmed".to_owned()),
                Err(error) => again(&error),
            },
            None => Round::Done(None),
        }
    }
}
