//! The members of an etcd cluster: a client of etcd's gRPC API, the rule of quorum, and the changes
//! of membership.
//!
//! A change ([`Changes`]) is a loop: it lists the members, does the one missing step, and lists
//! them again. So it can be interrupted anywhere and run again. It uses the trait [`Members`],
//! which the real [`Client`] and the cluster in memory ([`fake`]) implement.

mod access;
mod change;
mod client;
mod connection;
mod error;
pub mod fake;
mod member;
mod overview;
mod pace;
pub mod quorum;
mod refusal;
mod snapshot;
mod view;

pub use access::{Access, AccessError};
pub use change::{
    AloneError, ChangeError, Changes, Freed, Gate, Joined, MemberHost, Removal, SpaceError,
};
pub use client::Client;
pub use error::{EtcdError, NoAnswer, Unanswered};
pub use member::{
    Alarm, AlarmKind, Keys, KeysHash, Member, MemberId, Members, MembersFuture, Status,
};
pub use overview::{MemberOverview, Overview};
pub use pace::{Moment, Pace, RealPace, Wait};
pub use refusal::Refusal;
pub use snapshot::Snapshot;

/// The generated messages and clients.
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    reason = "generated code"
)]
mod wire {
    tonic::include_proto!("etcdserverpb");
}
