//! Members and their states, and the trait that the real cluster and the fake implement.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use crate::error::EtcdError;
use crate::snapshot::Snapshot;

/// An answer of the cluster, boxed: the cluster is used as `dyn Members`.
pub type MembersFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, EtcdError>> + Send + 'a>>;

/// The id of a member. Its text is etcd's: hexadecimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u64);

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// A member, as the cluster lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its id.
    pub id: MemberId,
    /// Its name; empty until it has started for the first time.
    pub name: String,
    /// The addresses at which the other members reach it.
    pub peer_urls: Vec<String>,
    /// The addresses at which clients reach it; empty until it has started for the first time.
    pub client_urls: Vec<String>,
    /// `true` while it has no vote.
    pub is_learner: bool,
}

impl Member {
    /// Returns whether it has run: etcd lists name and client addresses only then.
    #[must_use]
    pub fn has_started(&self) -> bool {
        !self.name.is_empty()
    }

    /// Its name, or its id while it has no name, like kubeadm.
    #[must_use]
    pub fn title(&self) -> String {
        if self.has_started() {
            self.name.clone()
        } else {
            self.id.to_string()
        }
    }

    /// Returns whether other members reach it at this address.
    #[must_use]
    pub fn is_at(&self, peer_url: &str) -> bool {
        self.peer_urls.iter().any(|url| url == peer_url)
    }
}

/// The state of one running member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The member.
    pub member: MemberId,
    /// The id of its cluster.
    pub cluster: u64,
    /// The leader that it follows; `None` while it knows none.
    pub leader: Option<MemberId>,
    /// The last entry that it knows to be committed.
    pub raft_index: u64,
    /// The last entry that it has applied.
    pub applied: u64,
    /// The revision of its newest write.
    pub revision: i64,
    /// Bytes of its database file.
    pub db_size: u64,
    /// Bytes of the database that are in use; the rest is free after a defragmentation.
    pub db_in_use: u64,
    /// The size at which it raises the alarm for space; 0 if this version does not report it.
    pub db_quota: u64,
    /// `true` while it has no vote.
    pub is_learner: bool,
    /// The version of the program.
    pub version: String,
    /// The problems that it reports, alarms included.
    pub errors: Vec<String>,
}

impl Status {
    /// The free part of its database, in percent, which a defragmentation would return.
    #[must_use]
    pub fn free_percent(&self) -> u64 {
        let free = self.db_size.saturating_sub(self.db_in_use);
        (free * 100).checked_div(self.db_size).unwrap_or(0)
    }
}

/// Verb and object of a count of keys.
pub(crate) const KEYS: &str = "count the keys of etcd";

/// The number of keys of a member at one of its revisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keys {
    /// The revision.
    pub revision: i64,
    /// The number of keys.
    pub count: u64,
}

/// The hash of a member's keys and values at one revision. The hashes of two members can be
/// compared only if both have the same revision **and** the same compaction: at the revision of its
/// last compaction, a member returns the hash from before the compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeysHash {
    /// The hash.
    pub hash: u32,
    /// The revision.
    pub revision: i64,
    /// The revision of the preceding compaction; -1 if there was none.
    pub compacted: i64,
}

/// The kind of an alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlarmKind {
    /// The quota of the database is reached: the cluster accepts no writes.
    NoSpace,
    /// The members' data differs.
    Corrupt,
}

/// An alarm that a member has raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alarm {
    /// The member.
    pub member: MemberId,
    /// The kind.
    pub kind: AlarmKind,
}

/// The membership of a cluster. All of etcd's checks apply: it refuses a change that visibly breaks
/// the quorum, and a second learner.
///
/// A change that fails without a [`crate::Refusal`] may have happened: list the members again.
pub trait Members: Send + Sync {
    /// The members, as agreed by a quorum.
    fn list(&self) -> MembersFuture<'_, Vec<Member>>;
    /// The members, as known to one of them; works without a quorum.
    fn known(&self) -> MembersFuture<'_, Vec<Member>>;
    /// The state of a member, from the member itself.
    fn status<'a>(&'a self, member: &'a Member) -> MembersFuture<'a, Status>;
    /// The alarms of all members.
    fn alarms(&self) -> MembersFuture<'_, Vec<Alarm>>;
    /// Adds a member without a vote.
    fn add_learner<'a>(&'a self, peer_url: &'a str) -> MembersFuture<'a, ()>;
    /// Gives a learner its vote.
    fn promote(&self, id: MemberId) -> MembersFuture<'_, ()>;
    /// Removes a member.
    fn remove(&self, id: MemberId) -> MembersFuture<'_, ()>;
    /// Makes another member the leader; the request goes to the current leader.
    fn move_leader<'a>(&'a self, leader: &'a Member, to: MemberId) -> MembersFuture<'a, ()>;
    /// Removes overwritten and deleted values up to a revision. Returns when the asked member has
    /// finished; the others follow by themselves.
    fn compact(&self, revision: i64) -> MembersFuture<'_, ()>;
    /// Returns the free space of a member's database. It answers nothing else during that time.
    fn defragment<'a>(&'a self, member: &'a Member) -> MembersFuture<'a, ()>;
    /// Disarms an alarm.
    fn disarm(&self, alarm: Alarm) -> MembersFuture<'_, ()>;
    /// The number of a member's own keys at a revision (0: its newest), from the member itself. A
    /// snapshot taken afterwards contains this revision, too.
    fn keys<'a>(&'a self, member: &'a Member, revision: i64) -> MembersFuture<'a, Keys>;
    /// A snapshot of a member's database.
    fn snapshot<'a>(&'a self, member: &'a Member) -> MembersFuture<'a, Snapshot>;
}
