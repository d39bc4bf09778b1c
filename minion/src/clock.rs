//! The wall clock: the only place in the minion that reads it.

use std::time::{SystemTime, UNIX_EPOCH};

/// The time now.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the clock"
)]
pub(crate) fn now() -> SystemTime {
    SystemTime::now()
}

/// Seconds since the epoch.
pub(crate) fn seconds() -> i64 {
    let since = now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
