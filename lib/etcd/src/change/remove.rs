//! The removal of a member.

use super::leader::{leads, successor};
use super::{ChangeError, Changes, Round, again};
use crate::member::{Member, MemberId};
use crate::view::{MemberList, View};

/// The removal of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    /// Its name. A member that never started has no name: use its id, or `peer_url`.
    pub name: String,
    /// The address of its host. A learner at this address that never started is the member, too:
    /// etcd identifies it by nothing else, and accepts no other learner until it is gone.
    pub peer_url: Option<String>,
    /// `true` if the host is lost: the member need not answer.
    pub dead: bool,
}

impl Removal {
    fn is_of(&self, member: &Member) -> bool {
        let is_at_its_host = || {
            let url = self.peer_url.as_deref();
            url.is_some_and(|url| member.is_at(url))
        };
        member.title() == self.name || !member.has_started() && is_at_its_host()
    }
}

impl Changes<'_> {
    /// Removes a member; another one becomes the leader first. Does nothing if no member has that
    /// name.
    ///
    /// # Errors
    /// It is the only voting member, the remaining members would not be a quorum, or it does not
    /// answer and was not declared dead.
    pub async fn remove(&self, removal: &Removal) -> Result<(), ChangeError> {
        let patience = self.patience(format!("etcd is without {}", removal.name));
        loop {
            let because = match self.remove_round(removal).await? {
                Round::Done(()) => return Ok(()),
                Round::Again(because) => because,
            };
            let waited = patience.wait(because).await;
            waited.map_err(|because| patience.over(because))?;
        }
    }

    async fn remove_round(&self, removal: &Removal) -> Result<Round<()>, ChangeError> {
        let members = match self.members.list().await {
            Ok(members) => members,
            Err(error) => return self.without_list(removal, &error).await,
        };
        let Some(member) = members.iter().find(|member| removal.is_of(member)).cloned() else {
            return Ok(Round::Done(()));
        };
        if member.is_learner {
            return self.remove_now(member.id).await;
        }
        if members.iter().filter(|member| !member.is_learner).count() == 1 {
            return Err(ChangeError::LastVoter {
                name: removal.name.clone(),
            });
        }
        let view = View::take(self.members, MemberList::agreed(members)).await;
        let Some(seen) = view.seen.iter().find(|seen| seen.member.id == member.id) else {
            return Ok(Round::Again("the members have changed".to_owned()));
        };
        if let Err(because) = &seen.status
            && !removal.dead
            && member.has_started()
        {
            return Err(ChangeError::Silent {
                name: removal.name.clone(),
                because: because.clone(),
            });
        }
        let voters = view.count();
        if !voters.keep_quorum_without_one(view.fault(seen).is_none()) {
            return Err(ChangeError::QuorumLost {
                name: removal.name.clone(),
                voters,
            });
        }
        if seen.status.is_ok() && leads(&view, member.id) {
            return match successor(&view, &member, self.prefer) {
                Some(next) => self.lead(&member, next).await,
                None => Ok(Round::Again(view.faults())),
            };
        }
        self.remove_now(member.id).await
    }

    /// Without a quorum nothing can be removed. The answering members give the number of voters.
    async fn without_list(
        &self,
        removal: &Removal,
        error: &crate::error::EtcdError,
    ) -> Result<Round<()>, ChangeError> {
        let Ok(known) = self.members.known().await else {
            return Ok(again(error));
        };
        let view = View::take(self.members, MemberList::named(known)).await;
        let voters = view.count();
        // An election looks the same for a moment: all members answer and follow no leader.
        if view.has_quorum() || view.voters().all(|seen| seen.status.is_ok()) || voters.all < 2 {
            return Ok(again(error));
        }
        Err(ChangeError::QuorumLost {
            name: removal.name.clone(),
            voters,
        })
    }

    async fn remove_now(&self, id: MemberId) -> Result<Round<()>, ChangeError> {
        match self.members.remove(id).await {
            Ok(()) => Ok(Round::Again("the removal is confirmed".to_owned())),
            Err(error) => Ok(again(&error)),
        }
    }
}
