//! A cluster of one is made from the last member: it keeps its data, and the others are forgotten.
//!
//! etcd itself does it when it starts with `--force-new-cluster`. Members that it forgets and that come
//! back later are refused by it, and end. What only they had is lost, so this asks before: is there
//! really no quorum, and does really no other member run?

use std::time::Duration;

use super::gate::REPAIR_AFTER;
use super::{Changes, Round, again};
use crate::overview::{MemberOverview, Overview};

/// The reason why a member does not become the only one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AloneError {
    /// Nothing is lost yet.
    #[error(
        "cannot make a cluster of {name} alone: etcd has a quorum ({quorum}), and would lose writes; `ctl node replace` brings back \
         each host that is gone"
    )]
    Quorum {
        /// The member.
        name: String,
        /// The quorum in one line.
        quorum: String,
    },
    /// There would be two clusters.
    #[error(
        "cannot make a cluster of {name} alone: the member {other} runs, and would go on as another cluster; switch its host off, or \
         recover from {other}"
    )]
    Another {
        /// The member.
        name: String,
        /// The other one.
        other: String,
    },
    /// It has no data that are known of.
    #[error(
        "cannot make a cluster of {name} alone: it is no member of etcd; the members are {members}"
    )]
    NoMember {
        /// The host.
        name: String,
        /// The members.
        members: String,
    },
    /// The limit has passed.
    #[error("waited {limit} s until {until}: {because}")]
    TooLong {
        /// The end that was waited for.
        until: String,
        /// The limit in seconds.
        limit: u64,
        /// The last reason.
        because: String,
    },
}

impl Changes<'_> {
    /// Waits until it is certain that the members have no quorum and that only this one runs. One
    /// that is alone already may be.
    ///
    /// # Errors
    /// There is a quorum, another member runs, or this one does not answer within the limit.
    pub async fn may_be_alone(&self, name: &str) -> Result<(), AloneError> {
        let patience = self.patience(format!("{name} is certain to be the last member"));
        let mut since = None;
        loop {
            let because = match self.last_round(name, &mut since).await? {
                Round::Done(()) => return Ok(()),
                Round::Again(because) => because,
            };
            let waited = patience.wait(because).await;
            waited.map_err(|because| self.too_long(&patience.until, because))?;
        }
    }

    /// One round; `since` is the moment from which the same was true, with a quorum that is not seen
    /// (`true`) or without one.
    async fn last_round(
        &self,
        name: &str,
        since: &mut Option<(bool, Duration)>,
    ) -> Result<Round<()>, AloneError> {
        let overview = match Overview::take(self.members).await {
            Ok(overview) => overview,
            Err(error) => return Ok(again(&error)),
        };
        let titles = || overview.members.iter().map(|own| own.member.title());
        let own = overview
            .members
            .iter()
            .find(|own| own.member.title() == name);
        let Some(own) = own else {
            return Err(AloneError::NoMember {
                name: name.to_owned(),
                members: titles().collect::<Vec<_>>().join(", "),
            });
        };
        if is_alone(&overview) {
            return Ok(Round::Done(()));
        }
        if overview.voters.have_quorum() {
            return Err(AloneError::Quorum {
                name: name.to_owned(),
                quorum: overview.quorum_line(),
            });
        }
        let runs =
            |other: &&MemberOverview| other.status.is_some() && other.member.id != own.member.id;
        if let Some(other) = overview.members.iter().find(runs) {
            return Err(AloneError::Another {
                name: name.to_owned(),
                other: other.member.title(),
            });
        }
        if own.status.is_none() {
            return Ok(Round::Again(format!("{name} does not answer")));
        }
        let now = self.pace.now();
        let hidden = overview.has_quorum;
        if since.is_none_or(|(before, _)| before != hidden) {
            *since = Some((hidden, now));
        }
        let began = since.map_or(now, |(_, began)| began);
        let quorum = overview.quorum_line();
        // A restart of the others looks the same, and so does the moment after their end, in which the
        // last one still follows a leader.
        match (now.saturating_sub(began) >= REPAIR_AFTER, hidden) {
            (true, false) => Ok(Round::Done(())),
            (true, true) => Err(AloneError::Quorum {
                name: name.to_owned(),
                quorum,
            }),
            (false, _) => Ok(Round::Again(format!("it may be a restart: {quorum}"))),
        }
    }

    /// Waits until this member is the only one, and leads.
    ///
    /// # Errors
    /// It is not within the limit.
    pub async fn wait_alone(&self, name: &str) -> Result<(), AloneError> {
        let patience = self.patience(format!("{name} is the only member"));
        loop {
            let because = match Overview::take(self.members).await {
                Ok(overview) if is_alone(&overview) && overview.voters.have_quorum() => {
                    return Ok(());
                }
                Ok(overview) => overview.quorum_line(),
                Err(error) => halite_errors::chain(&error),
            };
            let waited = patience.wait(because).await;
            waited.map_err(|because| self.too_long(&patience.until, because))?;
        }
    }

    fn too_long(&self, until: &str, because: String) -> AloneError {
        AloneError::TooLong {
            until: until.to_owned(),
            limit: self.limit.as_secs(),
            because,
        }
    }
}

fn is_alone(overview: &Overview) -> bool {
    overview.members.len() == 1
}
