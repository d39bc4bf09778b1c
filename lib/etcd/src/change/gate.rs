//! The check before work on a host during which its member is missing for a while.

use std::time::Duration;

use super::{ChangeError, Changes};
use crate::pace::Wait;
use crate::quorum::Verdict;
use crate::view::{MemberList, View};

/// The time without a quorum after which a cluster counts as in need of repair: an election or a
/// restart is over by then.
pub(super) const REPAIR_AFTER: Duration = Duration::from_secs(15);

/// The reason why work on a host is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gate {
    /// The others are a quorum without it.
    Allowed {
        /// Voting members.
        all: usize,
        /// Voting members that serve.
        serving: usize,
    },
    /// One or two members: the rule does not apply.
    TooFew,
    /// The cluster has no quorum: it is repaired without waiting.
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
                "etcd has no quorum and is repaired without waiting: {because}"
            ),
        }
    }
}

impl Gate {
    /// The same gate for planned work that repairs nothing: a reboot, an upgrade.
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
    /// Waits until the member of a host may be missing (`etcd_quorum_allows`). It concludes that
    /// the cluster has no quorum only if nothing indicates the opposite: it waits for members that
    /// lag or that only the caller cannot reach.
    ///
    /// # Errors
    /// The others were not a quorum without it at any time before the timeout.
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
                // No member answers this caller.
                0 => Verdict::NoQuorum,
                _ => voters.allow_missing(has_quorum, votes, serves),
            };
            let because = match voters.all {
                0 => "no member answers".to_owned(),
                _ if has_quorum && !voters.have_quorum() => format!(
                    "etcd has a quorum, but of members that cannot be reached or lack entries: {}",
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

    /// The members as agreed by a quorum, or else as known to one member.
    pub(super) async fn view(&self) -> View {
        let listed = MemberList::ask(self.members).await.unwrap_or_default();
        View::take(self.members, listed).await
    }
}
