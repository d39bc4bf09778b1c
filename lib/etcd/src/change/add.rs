//! The addition of a host as a learner.

use super::{ChangeError, Changes, MemberHost, Round, again};
use crate::member::{Member, MemberId};

/// A host that is now a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    /// Its id.
    pub id: MemberId,
    /// The id of its cluster; `None` if no member with a vote answered for itself.
    pub cluster: Option<u64>,
    /// `true` if it has run before: it keeps the flags of its first start.
    pub has_started: bool,
    /// `true` if it already has its vote.
    pub votes: bool,
    /// The value of `--initial-cluster` for its first start: all members, its own included.
    pub initial_cluster: String,
}

impl Changes<'_> {
    /// Makes a host a learner. A member at its address that never started is reused. `bare` says
    /// that the host has no member's data.
    ///
    /// # Errors
    /// Name or address belong to another member, a member that has run lost its data, or the
    /// cluster accepted no learner within the limit (it accepts one at a time, and only while all
    /// voting members are connected).
    pub async fn add_learner(&self, host: &MemberHost, bare: bool) -> Result<Joined, ChangeError> {
        let patience = self.patience(format!("etcd takes {} as a learner", host.name));
        loop {
            let because = match self.add_round(host, bare).await? {
                Round::Done(joined) => return Ok(joined),
                Round::Again(because) => because,
            };
            let waited = patience.wait(because).await;
            waited.map_err(|because| patience.over(because))?;
        }
    }

    /// The id of the cluster, from the first member that answers.
    async fn cluster(&self, members: &[Member]) -> Option<u64> {
        let voters = members.iter();
        for voter in voters.filter(|member| member.has_started() && !member.is_learner) {
            if let Ok(status) = self.members.status(voter).await {
                return Some(status.cluster);
            }
        }
        None
    }

    async fn add_round(&self, host: &MemberHost, bare: bool) -> Result<Round<Joined>, ChangeError> {
        let members = match self.members.list().await {
            Ok(members) => members,
            Err(error) => return Ok(again(&error)),
        };
        if let Some(member) = Self::find(&members, host) {
            check(host, bare, member)?;
            let cluster = self.cluster(&members).await;
            return Ok(Round::Done(joined(host, member, &members, cluster)));
        }
        if let Some(other) = members.iter().find(|member| member.name == host.name) {
            return Err(ChangeError::NameTaken {
                name: host.name.clone(),
                wanted: host.peer_url.clone(),
                there: other.peer_urls.join(", "),
            });
        }
        if let Some(learner) = members.iter().find(|member| member.is_learner) {
            return Ok(Round::Again(format!(
                "the learner {} at {} comes first: `ctl node add` of its host continues with it, `ctl node remove` removes it",
                learner.title(),
                learner.peer_urls.join(", ")
            )));
        }
        match self.members.add_learner(&host.peer_url).await {
            Ok(()) => Ok(Round::Again("the addition is confirmed".to_owned())),
            Err(error) => Ok(again(&error)),
        }
    }
}

/// Refuses a member that belongs to another host or has lost its data.
fn check(host: &MemberHost, bare: bool, member: &Member) -> Result<(), ChangeError> {
    if member.has_started() {
        if member.name != host.name {
            return Err(ChangeError::AddressTaken {
                name: host.name.clone(),
                url: host.peer_url.clone(),
                by: member.title(),
            });
        }
        if bare {
            return Err(ChangeError::DataLost {
                name: host.name.clone(),
            });
        }
    }
    Ok(())
}

fn joined(host: &MemberHost, member: &Member, members: &[Member], cluster: Option<u64>) -> Joined {
    let entry = |other: &Member| {
        let name = if other.id == member.id {
            host.name.clone()
        } else {
            other.title()
        };
        let urls = other.peer_urls.iter();
        urls.map(|url| format!("{name}={url}"))
            .collect::<Vec<_>>()
            .join(",")
    };
    Joined {
        id: member.id,
        cluster,
        has_started: member.has_started(),
        votes: !member.is_learner,
        initial_cluster: members.iter().map(entry).collect::<Vec<_>>().join(","),
    }
}
