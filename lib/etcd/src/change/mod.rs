//! The changes of membership, each a loop of one step at a time.
//!
//! Each round lists the members and does the one step that is missing. A step whose outcome is not
//! known (the connection broke) is followed by another round, which sees what happened. A caller
//! that was killed runs the change again: `docs/dev/etcd-members.md` lists the moments.

mod add;
mod error;
mod gate;
mod promote;
mod remove;
mod view;

use std::time::Duration;

use crate::error::EtcdError;
use crate::member::{Member, Members};
use crate::pace::{Pace, Wait};

pub use add::Joined;
pub use error::ChangeError;
pub use gate::Gate;
pub use remove::Removal;

/// A host that is to be, or is, a member: the name and the peer address that its etcd gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// The address at which the other members reach it, `https://HOST:2380`.
    pub peer_url: String,
}

/// The changes of one cluster. One at a time: the caller holds a lock.
pub struct Changes<'a> {
    /// The cluster.
    pub members: &'a dyn Members,
    /// Time and reports.
    pub pace: &'a dyn Pace,
    /// Time after which a change that waits fails.
    pub limit: Duration,
}

/// The outcome of one round.
enum Round<T> {
    /// The change is done.
    Done(T),
    /// Another round is needed, for this reason.
    Again(String),
}

/// The outcome of a change that waited.
enum Waited<T> {
    Done(T),
    /// The limit has passed; the last reason.
    Over(String),
}

impl Changes<'_> {
    /// Repeats rounds until one is the last, or the limit has passed.
    async fn rounds<T>(
        &self,
        until: &str,
        round: impl AsyncFn() -> Result<Round<T>, ChangeError>,
    ) -> Result<Waited<T>, ChangeError> {
        let start = self.pace.now();
        loop {
            let because = match round().await? {
                Round::Done(done) => return Ok(Waited::Done(done)),
                Round::Again(because) => because,
            };
            let since = self.pace.now().saturating_sub(start);
            if since >= self.limit {
                return Ok(Waited::Over(because));
            }
            let wait = Wait {
                until: until.to_owned(),
                because,
                since,
                limit: self.limit,
            };
            self.pace.report(&wait).await;
            self.pace.pause().await;
        }
    }

    fn too_long(&self, until: &str, because: String) -> ChangeError {
        ChangeError::TooLong {
            until: until.to_owned(),
            limit: self.limit.as_secs(),
            because,
        }
    }

    fn find<'m>(members: &'m [Member], host: &Host) -> Option<&'m Member> {
        members.iter().find(|member| member.is_at(&host.peer_url))
    }
}

/// A failure of the cluster that another round may not meet.
fn again<T>(error: &EtcdError) -> Round<T> {
    Round::Again(halite_errors::chain(error))
}
