//! Members and their states, and the trait that the real cluster and the fake have in common.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use crate::error::EtcdError;
use crate::snapshot::Snapshot;

/// An answer of the cluster, boxed: the cluster is used as `dyn Members`.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, EtcdError>> + Send + 'a>>;

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
    /// The addresses at which clients reach it; none until it has started for the first time.
    pub client_urls: Vec<String>,
    /// True while it has no vote.
    pub is_learner: bool,
}

impl Member {
    /// True when it has run: etcd lists name and client addresses only then.
    #[must_use]
    pub fn has_started(&self) -> bool {
        !self.name.is_empty()
    }

    /// Its name; the id of one that has none yet, as kubeadm does.
    #[must_use]
    pub fn title(&self) -> String {
        if self.has_started() {
            self.name.clone()
        } else {
            self.id.to_string()
        }
    }

    /// True when other members reach it at this address.
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
    /// The size at which it raises the alarm for space; 0 when this version does not say.
    pub db_quota: u64,
    /// True while it has no vote.
    pub is_learner: bool,
    /// The version of the program.
    pub version: String,
    /// What it says is wrong with it, alarms included.
    pub errors: Vec<String>,
}

impl Status {
    /// The free part of its database, in percent: what a defragmentation gives back.
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
    /// The keys that there were.
    pub count: u64,
}

/// The hash of a member's keys and values at one revision. Those of two members say something about
/// their data only when both have the same revision **and** the same compaction: at the revision of
/// its last compaction a member answers the hash of the time before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeysHash {
    /// The hash.
    pub hash: u32,
    /// The revision.
    pub revision: i64,
    /// The revision of the compaction before it; -1: none.
    pub compacted: i64,
}

/// The kind of an alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlarmKind {
    /// The quota of the database is reached: the cluster takes no writes.
    NoSpace,
    /// The data of members differ.
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

/// The membership of a cluster. All of etcd's checks apply: it refuses what it can see to break
/// quorum, and a second learner.
///
/// A change that fails without a [`crate::Refusal`] may have happened: list the members again.
pub trait Members: Send + Sync {
    /// The members, as a quorum of them agrees.
    fn list(&self) -> Answer<'_, Vec<Member>>;
    /// The members, as one of them knows them: also answered without a quorum.
    fn known(&self) -> Answer<'_, Vec<Member>>;
    /// The state of a member, asked of itself.
    fn status<'a>(&'a self, member: &'a Member) -> Answer<'a, Status>;
    /// The alarms of all members.
    fn alarms(&self) -> Answer<'_, Vec<Alarm>>;
    /// Adds a member without a vote.
    fn add_learner<'a>(&'a self, peer_url: &'a str) -> Answer<'a, ()>;
    /// Gives a learner its vote.
    fn promote(&self, id: MemberId) -> Answer<'_, ()>;
    /// Removes a member.
    fn remove(&self, id: MemberId) -> Answer<'_, ()>;
    /// Makes another member the leader; asked of the present one.
    fn move_leader<'a>(&'a self, leader: &'a Member, to: MemberId) -> Answer<'a, ()>;
    /// Removes what was written over or deleted up to a revision. Returns when the member that was
    /// asked has done so; the others follow by themselves.
    fn compact(&self, revision: i64) -> Answer<'_, ()>;
    /// Gives the free room of a member's database back. It answers nothing else for that time.
    fn defragment<'a>(&'a self, member: &'a Member) -> Answer<'a, ()>;
    /// Takes an alarm back.
    fn disarm(&self, alarm: Alarm) -> Answer<'_, ()>;
    /// The number of a member's own keys at a revision (0: its newest), asked of itself. A snapshot
    /// that it makes afterwards has this revision, too.
    fn keys<'a>(&'a self, member: &'a Member, revision: i64) -> Answer<'a, Keys>;
    /// A snapshot of a member's database.
    fn snapshot<'a>(&'a self, member: &'a Member) -> Answer<'a, Snapshot>;
}
