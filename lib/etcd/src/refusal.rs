//! The reasons for which etcd refuses a call.

use tonic::{Code, Status};

/// A refusal by a member; the texts are etcd's (`api/v3rpc/rpctypes/error.go`).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Another learner is there: one at a time.
    #[error("etcdserver: too many learner members in cluster")]
    TooManyLearners,
    /// A member with this address is there.
    #[error("etcdserver: Peer URLs already exists")]
    PeerUrlExists,
    /// Fewer members than a quorum have ever started.
    #[error("etcdserver: re-configuration failed due to not enough started members")]
    NotEnoughStarted,
    /// Members have not been connected to all others for five seconds.
    #[error("etcdserver: unhealthy cluster")]
    Unhealthy,
    /// There is no such member.
    #[error("etcdserver: member not found")]
    MemberNotFound,
    /// The member has its vote.
    #[error("etcdserver: can only promote a learner member")]
    NotLearner,
    /// The learner lacks more than a tenth of the entries.
    #[error("etcdserver: can only promote a learner member which is in sync with leader")]
    LearnerNotReady,
    /// A learner was asked that only voting members answer.
    #[error("etcdserver: rpc not supported for learner")]
    IsLearner,
    /// The asked member is not the leader.
    #[error("etcdserver: not leader")]
    NotLeader,
    /// The member cannot become leader.
    #[error("etcdserver: bad leader transferee")]
    BadTransferee,
    /// What was asked for has been compacted already.
    #[error("etcdserver: mvcc: required revision has been compacted")]
    Compacted,
    /// The member cannot answer now: no leader, an election, a time limit, a connection that ended.
    #[error("{0}")]
    Unavailable(String),
    /// Another reason.
    #[error("{0}")]
    Other(String),
}

impl Refusal {
    /// All whose text alone says which they are.
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

    /// True when another member may answer what this one did not.
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
        // `Unhealthy` has the code of a passing failure, and yet is the cluster's answer.
        assert!(!read(Code::Unavailable, "etcdserver: unhealthy cluster").is_of_this_member());
        assert_eq!(
            read(Code::DataLoss, "etcdserver: corrupt cluster"),
            Refusal::Other("etcdserver: corrupt cluster".into())
        );
    }
}
