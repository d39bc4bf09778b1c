//! The changes of membership, each a loop of one step at a time.
//!
//! Each round lists the members and does the one missing step. A step with an unknown outcome (the
//! connection broke) is followed by another round, which sees the result. A caller that was killed
//! runs the change again: `docs/dev/etcd-members.md` lists the moments.

mod add;
mod alone;
mod error;
mod gate;
mod leader;
mod promote;
mod remove;
mod space;

use std::time::Duration;

use crate::error::EtcdError;
use crate::member::{Member, Members};
use crate::pace::{Pace, Wait};

pub use add::Joined;
pub use alone::AloneError;
pub use error::ChangeError;
pub use gate::Gate;
pub use remove::Removal;
pub use space::{Freed, SpaceError};

/// A current or future member: the name and the peer address of its etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberHost {
    /// Its name.
    pub name: String,
    /// The address at which the other members reach it, `https://HOST:2380`.
    pub peer_url: String,
}

/// The changes of one cluster, one at a time: the caller holds a lock.
pub struct Changes<'a> {
    /// The cluster.
    pub members: &'a dyn Members,
    /// Time and reports.
    pub pace: &'a dyn Pace,
    /// The timeout of a change that waits.
    pub limit: Duration,
    /// The name of the member that should lead next when the leader must change; if it cannot, the
    /// member that has applied most entries leads.
    pub prefer: Option<&'a str>,
}

/// The result of one round.
enum Round<T> {
    /// The change is done.
    Done(T),
    /// Another round is needed, for this reason.
    Again(String),
}

/// The patience of one change.
struct Patience<'a> {
    changes: &'a Changes<'a>,
    until: String,
    start: Duration,
}

impl Patience<'_> {
    /// Reports the reason and pauses; returns the reason as an error after the timeout.
    async fn wait(&self, because: String) -> Result<(), String> {
        let Changes { pace, limit, .. } = *self.changes;
        let since = pace.now().saturating_sub(self.start);
        if since >= limit {
            return Err(because);
        }
        let wait = Wait {
            until: self.until.clone(),
            because,
            since,
            limit,
        };
        pace.report(&wait).await;
        pace.pause().await;
        Ok(())
    }

    fn over(&self, because: String) -> ChangeError {
        ChangeError::TooLong {
            until: self.until.clone(),
            limit: self.changes.limit.as_secs(),
            because,
        }
    }
}

impl Changes<'_> {
    fn patience(&self, until: String) -> Patience<'_> {
        Patience {
            changes: self,
            until,
            start: self.pace.now(),
        }
    }

    fn find<'m>(members: &'m [Member], host: &MemberHost) -> Option<&'m Member> {
        members.iter().find(|member| member.is_at(&host.peer_url))
    }
}

/// A failure of the cluster that may be over by the next round.
fn again<T>(error: &EtcdError) -> Round<T> {
    Round::Again(halite_errors::chain(error))
}
