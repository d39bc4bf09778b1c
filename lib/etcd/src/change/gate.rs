//! May a host be worked on, so that its member is missing for a while?

use std::time::Duration;

use super::{ChangeError, Changes};
use crate::pace::Wait;
use crate::quorum::Verdict;
use crate::view::{Listed, View};

/// Time for which a cluster has had no quorum before it counts as one that is to be repaired: an
/// election or a restart is over by then.
pub(super) const REPAIR_AFTER: Duration = Duration::from_secs(15);

/// Why a host may be worked on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gate {
    /// The others are a quorum without it: of so many voting members so many serve.
    Allowed {
        /// Voting members.
        all: usize,
        /// Voting members that serve.
        serving: usize,
    },
    /// One or two members: the rule does not apply.
    TooFew,
    /// The cluster has had no quorum: it is repaired, not waited for.
    Repair {
        /// The members that do not serve.
        because: String,
    },
}

impl std::fmt::Display for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Allowed { all, serving } => {
                write!(
                    f,
                    "{serving} of {all} voting members of etcd serve; one may be missing"
                )
            }
            Self::TooFew => f.write_str("fewer than three members: none may be missing"),
            Self::Repair { because } => write!(
                f,
                "etcd has no quorum and is repaired, not waited for: {because}"
            ),
        }
    }
}

impl Gate {
    /// The same gate for work that is planned, and repairs nothing: a reboot, an upgrade.
    ///
    /// # Errors
    /// The cluster has no quorum.
    pub fn planned(self, host: &str) -> Result<Self, ChangeError> {
        match self {
            Self::Repair { because } => Err(ChangeError::NoQuorum {
                host: host.to_owned(),
                because,
            }),
            Self::Allowed { .. } | Self::TooFew => Ok(self),
        }
    }
}

impl Changes<'_> {
    /// Waits until the member of a host may be missing (`etcd_quorum_allows`). That the cluster has no
    /// quorum is concluded only when nothing says the opposite: members that lag, or that only the
    /// caller cannot reach, are waited for.
    ///
    /// # Errors
    /// Within the limit there was no moment in which the others are a quorum without it.
    pub async fn allow_missing(&self, host: &str) -> Result<Gate, ChangeError> {
        let start = self.pace.now();
        let mut without_quorum = None;
        loop {
            let view = self.view().await;
            let voters = view.count();
            let own = view.seen.iter().find(|seen| seen.member.name == host);
            let votes = own.is_some_and(|seen| !seen.member.is_learner);
            let serves = own.is_some_and(|seen| view.fault(seen).is_none());
            let has_quorum = view.has_quorum();
            let now = self.pace.now();
            let verdict = match voters.all {
                // Nothing answers at all, as far as can be seen.
                0 => Verdict::NoQuorum,
                _ => voters.allow_missing(has_quorum, votes, serves),
            };
            let because = match voters.all {
                0 => "no member answers".to_owned(),
                _ if has_quorum && !voters.have_quorum() => format!(
                    "etcd has a quorum, but of members that cannot be asked or lack entries: {}",
                    view.faults()
                ),
                _ => view.faults(),
            };
            match verdict {
                Verdict::TooFew => return Ok(Gate::TooFew),
                Verdict::Allowed => {
                    return Ok(Gate::Allowed {
                        all: voters.all,
                        serving: voters.serving,
                    });
                }
                Verdict::NoQuorum => {
                    let since = *without_quorum.get_or_insert(now);
                    if now.saturating_sub(since) >= REPAIR_AFTER {
                        return Ok(Gate::Repair { because });
                    }
                }
                Verdict::Refused => without_quorum = None,
            }
            let since = now.saturating_sub(start);
            if since >= self.limit && verdict == Verdict::Refused {
                return Err(ChangeError::Gate {
                    host: host.to_owned(),
                    serving: voters.serving,
                    all: voters.all,
                    limit: self.limit.as_secs(),
                    because,
                });
            }
            let wait = Wait {
                until: format!("etcd can miss {host}"),
                because,
                since,
                limit: self.limit,
            };
            self.pace.report(&wait).await;
            self.pace.pause().await;
        }
    }

    /// The members as a quorum knows them, or else as one of them does.
    pub(super) async fn view(&self) -> View {
        let listed = Listed::ask(self.members).await.unwrap_or_default();
        View::take(self.members, listed).await
    }
}
