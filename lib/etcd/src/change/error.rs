//! The reasons why a change of membership failed. The members are unchanged unless the text says
//! otherwise.

use crate::quorum::{Voters, quorum};

/// The reason why a change of membership failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// Another member has the name.
    #[error(
        "cannot add {name} at {wanted}: a member of that name is at {there}; remove that member first, or use another name"
    )]
    NameTaken {
        /// The name.
        name: String,
        /// The address of the new host.
        wanted: String,
        /// The address of the member.
        there: String,
    },
    /// Another member has the address.
    #[error(
        "cannot use {url} for {name}: it is the address of the member {by}; remove that member first, or use another address"
    )]
    AddressTaken {
        /// The name of the host.
        name: String,
        /// The address.
        url: String,
        /// The member.
        by: String,
    },
    /// The member has run before, and its host has none of its data.
    #[error(
        "cannot start {name} again: it is a member that has run, and its host has no data; a member that comes back without \
         its data can undo writes that the cluster has acknowledged. Remove the member, then add it again"
    )]
    DataLost {
        /// The member.
        name: String,
    },
    /// The host is not a member.
    #[error(
        "cannot promote {name}: no member of etcd is at {url}; run the same command again, which adds it first"
    )]
    NoMember {
        /// The host.
        name: String,
        /// Its address.
        url: String,
    },
    /// The learner did not get its vote in time.
    #[error("cannot promote {name} within {limit} s: {because}; {end}")]
    NeverSynced {
        /// The learner.
        name: String,
        /// The timeout in seconds.
        limit: u64,
        /// The last reason.
        because: String,
        /// The fate of the learner.
        end: LearnerEnd,
    },
    /// The only member with a vote.
    #[error(
        "cannot remove {name}: it is the only voting member of etcd, and all data would be lost with it"
    )]
    LastVoter {
        /// The member.
        name: String,
    },
    /// The remaining members would not be a quorum.
    #[error(
        "cannot remove {name}: {} of {} voting members serve, and {} of the {} that remain would be needed; bring the others back first",
        .voters.serving, .voters.all, quorum(.voters.all - 1), .voters.all - 1
    )]
    QuorumLost {
        /// The member.
        name: String,
        /// The voting members before the removal.
        voters: Voters,
    },
    /// The member does not answer, and the caller did not declare it dead.
    #[error(
        "cannot remove {name}: it does not answer ({because}); if its host is gone for good, remove it as dead"
    )]
    Silent {
        /// The member.
        name: String,
        /// The cause.
        because: String,
    },
    /// The quorum cannot lose one more member.
    #[error(
        "cannot continue with {host}: {serving} of {all} voting members of etcd serve, and without it there would be no quorum; waited {limit} s: {because}"
    )]
    Gate {
        /// The host.
        host: String,
        /// Voting members that serve.
        serving: usize,
        /// Voting members.
        all: usize,
        /// The timeout in seconds.
        limit: u64,
        /// The members that do not serve.
        because: String,
    },
    /// The cluster must be repaired before planned work.
    #[error(
        "cannot continue with {host}: etcd has no quorum: {because}; switch on the hosts that are off, and repair those that run with \
         `ctl highstate`; then run the same command again"
    )]
    NoQuorum {
        /// The host.
        host: String,
        /// The members that do not serve.
        because: String,
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

/// The fate of a learner that did not get its vote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LearnerEnd {
    /// It was removed: the members are unchanged.
    Removed,
    /// It could not be removed.
    Stays(String),
}

impl std::fmt::Display for LearnerEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Removed => f.write_str(
                "it was removed and the members are unchanged; once its etcd can reach the others, run the same command again",
            ),
            Self::Stays(why) => write!(
                f,
                "it could not be removed and is still a learner: {why}; once etcd has its quorum, run the same command again"
            ),
        }
    }
}
