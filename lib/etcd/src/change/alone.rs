//! A new cluster of one from the last member: it keeps its data and forgets the other members.
//!
//! etcd itself does this when it starts with `--force-new-cluster`. If forgotten members come back
//! later, it refuses them and they exit. Data that only they had is lost, so the conditions are
//! checked first: there is no quorum, and no other member runs.

use std::time::Duration;

use super::gate::REPAIR_AFTER;
use super::{Changes, Round, again};
use crate::overview::{MemberOverview, Overview};

/// The reason why a member cannot become the only one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AloneError {
    /// There is still a quorum.
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
    /// Another member runs: there would be two clusters.
    #[error(
        "cannot make a cluster of {name} alone: the member {other} runs, and would continue as another cluster; switch its host off, or \
         recover from {other}"
    )]
    Another {
        /// The member.
        name: String,
        /// The other one.
        other: String,
    },
    /// It is not a member.
    #[error(
        "cannot make a cluster of {name} alone: it is not a member of etcd; the members are {members}"
    )]
    NoMember {
        /// The host.
        name: String,
        /// The members.
        members: String,
    },
    /// The timeout has expired.
    #[error("waited {limit} s until {until}: {because}")]
    TooLong {
        /// The awaited condition.
        until: String,
        /// The timeout in seconds.
        limit: u64,
        /// The last reason.
        because: String,
    },
}

impl Changes<'_> {
    /// Waits until it is certain that the members have no quorum and that only this one runs.
    /// Succeeds also if it is already the only member.
    ///
    /// # Errors
    /// There is a quorum, another member runs, or this one does not answer in time.
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

    /// One round; `since` is the time since which the observation has been the same: `true` for a
    /// quorum that cannot be seen, `false` for none.
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
        // A restart of the others looks the same, and so does the moment after they stop, while the
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

    /// Waits until this member is the only one and leads.
    ///
    /// # Errors
    /// The timeout expires first.
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
