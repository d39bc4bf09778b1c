//! Waiting for a condition, with a deadline whose error names what was missing.

use std::sync::mpsc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Polls `condition` until it returns `Ok`, at most for `limit`. The last error, which says what is
/// still missing, is the cause of the error at the deadline.
pub fn until<T>(what: &str, limit: Duration, condition: impl FnMut() -> Result<T>) -> Result<T> {
    every(Duration::from_millis(100), what, limit, condition)
}

/// As [`until`], for a moment that must not be missed: polls every millisecond, so the condition
/// must be cheap.
pub fn promptly<T>(what: &str, limit: Duration, condition: impl FnMut() -> Result<T>) -> Result<T> {
    every(Duration::from_millis(1), what, limit, condition)
}

fn every<T>(
    between: Duration,
    what: &str,
    limit: Duration,
    mut condition: impl FnMut() -> Result<T>,
) -> Result<T> {
    // A channel without a writer serves as the pause between two polls.
    let (_keep, pause) = mpsc::channel::<()>();
    let start = Instant::now();
    loop {
        let missing = match condition() {
            Ok(value) => return Ok(value),
            Err(missing) => missing,
        };
        if start.elapsed() > limit {
            let waited = format!("waited {} s for {what}; still missing", limit.as_secs());
            return Err(missing.context(waited));
        }
        if pause.recv_timeout(between) == Err(RecvTimeoutError::Disconnected) {
            bail!("the wait for {what} was interrupted");
        }
    }
}
