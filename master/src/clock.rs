//! The wall clock, as a value that tests can set.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::store::Millis;

/// A source of wall-clock time.
pub trait Clock: Send + Sync {
    /// The present time.
    fn now(&self) -> Millis;
}

/// The host's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Millis {
        #[expect(
            clippy::disallowed_methods,
            reason = "the one place that reads the wall clock"
        )]
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }
}

/// A clock that moves only when a test moves it.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock that shows `now`.
    #[must_use]
    pub fn at(now: Millis) -> Self {
        Self(AtomicI64::new(now))
    }

    /// Moves it on by `millis`.
    pub fn advance(&self, millis: Millis) {
        self.0.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Millis {
        self.0.load(Ordering::SeqCst)
    }
}

/// The form of a time in events and documents: RFC 3339 in UTC with milliseconds.
#[must_use]
pub fn rfc3339(time: Millis) -> String {
    jiff::Timestamp::from_millisecond(time).map_or_else(|_| time.to_string(), |t| format!("{t:.3}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc_with_milliseconds() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(1_763_683_200_123), "2025-11-21T00:00:00.123Z");
    }

    #[test]
    fn a_manual_clock_moves_only_when_it_is_advanced() {
        let clock = ManualClock::at(5);
        assert_eq!(clock.now(), 5);
        clock.advance(7);
        assert_eq!(clock.now(), 12);
    }
}
