//! The members with their states, and whether they serve.

use futures_util::future::join_all;
use halite_errors::chain;

use crate::error::EtcdError;
use crate::member::{Member, Members, Status};
use crate::quorum::Voters;

/// The lag, in entries, up to which a member counts as having caught up: a learner with a smaller
/// lag gets its vote, a voting member with a larger lag does not count as serving yet.
pub(crate) const LAG: u64 = 1000;

/// A member and its state, or the reason why there is none.
pub(crate) struct MemberStatus {
    pub(crate) member: Member,
    pub(crate) status: Result<Status, String>,
}

/// The members, before they are asked for their states.
#[derive(Default)]
pub(crate) struct MemberList {
    pub(crate) members: Vec<Member>,
    /// `true` if a quorum has agreed on them; otherwise one member has named them.
    pub(crate) agreed: bool,
}

impl MemberList {
    /// Asks a quorum, or else one member.
    ///
    /// # Errors
    /// No member answers.
    pub(crate) async fn ask(cluster: &dyn Members) -> Result<Self, EtcdError> {
        if let Ok(members) = cluster.list().await {
            return Ok(Self::agreed(members));
        }
        cluster.known().await.map(Self::named)
    }

    /// The members on which a quorum has agreed.
    pub(crate) fn agreed(members: Vec<Member>) -> Self {
        let agreed = true;
        Self { members, agreed }
    }

    /// The members that one of them has named.
    pub(crate) fn named(members: Vec<Member>) -> Self {
        let agreed = false;
        Self { members, agreed }
    }
}

/// The members, each asked for its state.
pub(crate) struct View {
    pub(crate) seen: Vec<MemberStatus>,
    /// The newest entry that any of them knows as committed.
    pub(crate) index: u64,
    /// `true` if a quorum has agreed on their list.
    agreed: bool,
}

async fn ask(cluster: &dyn Members, member: Member) -> MemberStatus {
    let status = if member.has_started() {
        cluster.status(&member).await.map_err(|error| chain(&error))
    } else {
        Err("it has not started".to_owned())
    };
    MemberStatus { member, status }
}

impl View {
    /// Asks all members in parallel.
    pub(crate) async fn take(cluster: &dyn Members, listed: MemberList) -> Self {
        let MemberList { members, agreed } = listed;
        let mut asked = Vec::new();
        for member in members {
            asked.push(ask(cluster, member));
        }
        let seen = join_all(asked).await;
        let known = seen.iter().filter_map(|seen| seen.status.as_ref().ok());
        let index = known.map(|status| status.raft_index).max().unwrap_or(0);
        Self {
            seen,
            index,
            agreed,
        }
    }

    /// Returns whether the members certainly have a quorum, however few of them the caller reaches
    /// and however far those lag: a quorum has agreed on their list, or a voting member follows a
    /// leader. Without a quorum, a leader steps down, and its followers forget it, within the time
    /// of an election (raft's `CheckQuorum` and `PreVote`); a learner never forgets it.
    pub(crate) fn has_quorum(&self) -> bool {
        let follows = |seen: &MemberStatus| {
            let status = seen.status.as_ref();
            status.is_ok_and(|status| status.leader.is_some())
        };
        self.agreed || self.voters().any(follows)
    }

    /// The reason why a member does not serve; `None` if it serves.
    pub(crate) fn fault(&self, seen: &MemberStatus) -> Option<String> {
        let name = seen.member.title();
        match &seen.status {
            Err(why) => Some(format!("{name}: {why}")),
            Ok(status) if status.leader.is_none() => Some(format!("{name} follows no leader")),
            Ok(status) if self.lag(status) > LAG => {
                let lag = self.lag(status);
                Some(format!("{name} lacks {lag} of {} entries", self.index))
            }
            Ok(_) => None,
        }
    }

    /// The entries that a member lacks.
    pub(crate) fn lag(&self, status: &Status) -> u64 {
        self.index.saturating_sub(status.applied)
    }

    pub(crate) fn voters(&self) -> impl Iterator<Item = &MemberStatus> {
        self.seen.iter().filter(|seen| !seen.member.is_learner)
    }

    /// The number of voting members, and of the serving ones.
    pub(crate) fn count(&self) -> Voters {
        let serving = self.voters().filter(|seen| self.fault(seen).is_none());
        Voters {
            all: self.voters().count(),
            serving: serving.count(),
        }
    }

    /// The reasons why voting members do not serve.
    pub(crate) fn faults(&self) -> String {
        let faults: Vec<String> = self.voters().filter_map(|seen| self.fault(seen)).collect();
        if faults.is_empty() {
            return "all voting members serve".to_owned();
        }
        faults.join("; ")
    }
}
