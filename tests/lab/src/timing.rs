//! A record of the time that each build of this process took, for the table at the end of a run.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;

/// The number of running builds.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

static BUILDS: Mutex<Vec<Took>> = Mutex::new(Vec::new());

/// A piece of work and the time that it took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Took {
    /// Its name in the table.
    pub name: String,
    /// From its start to its end.
    pub time: Duration,
}

/// Runs a build for which a test may wait ([`is_building`]), and records it, unless it fails.
pub fn build<T>(name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    record(name, || {
        RUNNING.fetch_add(1, Ordering::Relaxed);
        let made = work();
        RUNNING.fetch_sub(1, Ordering::Relaxed);
        made
    })
}

/// Runs work in parallel with the tests and records it, unless it fails.
pub fn record<T>(name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
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

/// Returns whether a build runs.
#[must_use]
pub fn is_building() -> bool {
    RUNNING.load(Ordering::Relaxed) > 0
}
