//! A record of how long each build of this process took, for the table at the end of a run.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;

static BUILDS: Mutex<Vec<Took>> = Mutex::new(Vec::new());

/// A piece of work and the time that it took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Took {
    /// Its name in the table.
    pub name: String,
    /// From its start to its end.
    pub time: Duration,
}

/// Runs a build and records it, unless it fails.
pub fn build<T>(name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    let made = work()?;
    let took = Took {
        name: name.to_owned(),
        time: start.elapsed(),
    };
    BUILDS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(took);
    Ok(made)
}

/// All builds that were recorded, in the order of their ends.
#[must_use]
pub fn builds() -> Vec<Took> {
    BUILDS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}
