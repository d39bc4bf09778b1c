//! The reasons why etcd refuses a call.

use tonic::{Code, Status};

/// A refusal by a member; the texts are etcd's (`api/v3rpc/rpctypes/error.go`).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There already is a learner: one at a time.
    #[error("etcdserver: too many learner members in cluster")]
    TooManyLearners,
    /// There already is a member with this address.
    #[error("etcdserver: Peer URLs already exists")]
    PeerUrlExists,
    /// Fewer members than a quorum have started so far.
    #[error("etcdserver: re-configuration failed due to not enough started members")]
    NotEnoughStarted,
    /// Members have not been connected to all others for five seconds.
    #[error("etcdserver: unhealthy cluster")]
    Unhealthy,
    /// No member has this id.
    #[error("etcdserver: member not found")]
    MemberNotFound,
    /// The member already has its vote.
    #[error("etcdserver: can only promote a learner member")]
    NotLearner,
    /// The learner lacks more than a tenth of the entries.
    #[error("etcdserver: can only promote a learner member which is in sync with leader")]
    LearnerNotReady,
    /// A learner received a call that only voting members answer.
    #[error("etcdserver: rpc not supported for learner")]
    IsLearner,
    /// The asked member is not the leader.
    #[error("etcdserver: not leader")]
    NotLeader,
    /// The member cannot become leader.
    #[error("etcdserver: bad leader transferee")]
    BadTransferee,
    /// The requested revision has already been compacted.
    #[error("etcdserver: mvcc: required revision has been compacted")]
    Compacted,
    /// The member cannot answer now: no leader, an election, a timeout, a connection that ended.
    #[error("{0}")]
    Unavailable(String),
    /// Another reason.
    #[error("{0}")]
    Other(String),
}

impl Refusal {
    /// All refusals that are identified by their text alone.
    const KNOWN: [Self; 11] = [
        Self::TooManyLearners,
        Self::PeerUrlExists,
        Self::NotEnoughStarted,
        Self::Unhealthy,
        Self::MemberNotFound,
        Self::NotLearner,
        Self::LearnerNotReady,
        Self::IsLearner,
        Self::NotLeader,
        Self::BadTransferee,
        Self::Compacted,
    ];

    pub(crate) fn from_status(status: &Status) -> Self {
        let text = status.message();
        let known = Self::KNOWN
            .into_iter()
            .find(|known| known.to_string() == text);
        known.unwrap_or_else(|| match status.code() {
            Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => {
                Self::Unavailable(text.to_owned())
            }
            _ => Self::Other(text.to_owned()),
        })
    }

    /// Returns whether another member may answer a call that this one refused.
    pub(crate) fn is_of_this_member(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::IsLearner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etcds_texts_are_read() {
        let read = |code, text: &str| Refusal::from_status(&Status::new(code, text));
        for known in Refusal::KNOWN {
            assert_eq!(read(Code::FailedPrecondition, &known.to_string()), known);
        }
        let election = "etcdserver: leader changed";
        assert_eq!(
            read(Code::Unavailable, election),
            Refusal::Unavailable(election.into())
        );
        assert!(read(Code::Unavailable, election).is_of_this_member());
        // `Unhealthy` has the code of a transient failure, and yet is the cluster's answer.
        assert!(!read(Code::Unavailable, "etcdserver: unhealthy cluster").is_of_this_member());
        assert_eq!(
            read(Code::DataLoss, "etcdserver: corrupt cluster"),
            Refusal::Other("etcdserver: corrupt cluster".into())
        );
    }
}
