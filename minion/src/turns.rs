//! The turn of this host: before a job restarts a service, the master decides whether as many hosts
//! as its budget allows are out already.

use crate::host::{HostFuture, HostResult};

/// The answer to a question for a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turn {
    /// This job may restart services until it ends.
    Taken,
    /// The job asks again, for this reason.
    Waits(String),
    /// The job may not restart services, for this reason.
    Refused(String),
}

/// The master of a job, which gives turns.
pub trait Turns: Send + Sync {
    /// Asks for a turn to restart this unit, and any later one of the job.
    fn ask<'a>(&'a self, unit: &'a str) -> HostFuture<'a, HostResult<Turn>>;
}
