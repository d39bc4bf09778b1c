//! The clocks of the host, as values that tests can set.

use std::ops::{Add, Sub};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use halite_store::Millis;
use tokio::time::Instant;

/// A point in the time since the host started. The wall clock may be set at any moment, and a
/// host's first highstate sets it; this clock never jumps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Steady(pub Millis);

impl Add<Millis> for Steady {
    type Output = Self;

    fn add(self, millis: Millis) -> Self {
        Self(self.0.saturating_add(millis))
    }
}

impl Sub for Steady {
    type Output = Millis;

    fn sub(self, earlier: Self) -> Millis {
        self.0.saturating_sub(earlier.0)
    }
}

/// A source of time.
pub trait Clock: Send + Sync {
    /// The current time of day, for records, certificates and tokens.
    fn now(&self) -> Millis;
    /// The time since the host started, for durations.
    fn steady(&self) -> Steady;
    /// The id of this boot of the host: times of different boots cannot be compared. Empty if it is
    /// unknown.
    fn boot(&self) -> &str;
}

/// The host's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Millis {
        #[expect(
            clippy::disallowed_methods,
            reason = "the only place that reads the wall clock"
        )]
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }

    fn steady(&self) -> Steady {
        let since = START.at.elapsed().as_millis();
        START.steady + Millis::try_from(since).unwrap_or(Millis::MAX)
    }

    fn boot(&self) -> &str {
        &START.boot
    }
}

/// The first reading of the time since the host started.
struct Start {
    at: Instant,
    steady: Steady,
    boot: String,
}

static START: LazyLock<Start> = LazyLock::new(|| {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let at = Instant::now();
    let uptime = uptime(&read("/proc/uptime"));
    // Without the uptime, times of another process cannot be compared either.
    let boot = uptime.map(|_| read("/proc/sys/kernel/random/boot_id").trim().to_owned());
    Start {
        at,
        steady: uptime.unwrap_or_default(),
        boot: boot.unwrap_or_default(),
    }
});

/// The first number of `/proc/uptime`: seconds with two decimals.
fn uptime(text: &str) -> Option<Steady> {
    let (seconds, fraction) = text.split_whitespace().next()?.split_once('.')?;
    let (seconds, hundredths) = (
        seconds.parse::<Millis>().ok()?,
        fraction.parse::<Millis>().ok()?,
    );
    Some(Steady(seconds.checked_mul(1000)? + hundredths * 10))
}

/// A clock that a test sets.
#[derive(Debug, Default)]
pub struct ManualClock {
    now: AtomicI64,
    steady: AtomicI64,
}

impl ManualClock {
    /// Returns a clock that shows `now`.
    #[must_use]
    pub fn at(now: Millis) -> Self {
        Self {
            now: AtomicI64::new(now),
            steady: AtomicI64::new(1),
        }
    }

    /// Lets `millis` pass.
    pub fn advance(&self, millis: Millis) {
        self.step(millis);
        self.steady.fetch_add(millis, Ordering::SeqCst);
    }

    /// Steps the time of day forward or back without letting any time pass.
    pub fn step(&self, millis: Millis) {
        self.now.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Millis {
        self.now.load(Ordering::SeqCst)
    }

    fn steady(&self) -> Steady {
        Steady(self.steady.load(Ordering::SeqCst))
    }

    fn boot(&self) -> &'static str {
        "manual"
    }
}

/// Formats a time as in events and documents: RFC 3339 in UTC with milliseconds.
#[must_use]
pub fn rfc3339(time: Millis) -> String {
    jiff::Timestamp::from_millisecond(time).map_or_else(|_| time.to_string(), |t| format!("{t:.3}"))
}

/// Parses a text of [`rfc3339`]; `None` if it is invalid.
#[must_use]
pub fn millis(text: &str) -> Option<Millis> {
    let time: jiff::Timestamp = text.parse().ok()?;
    Some(time.as_millisecond())
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
        clock.step(-3);
        assert_eq!((clock.now(), clock.steady()), (9, Steady(8)));
    }

    #[test]
    fn the_time_since_the_host_started_is_read_from_the_kernel() {
        assert_eq!(uptime("350735.47 234388.90\n"), Some(Steady(350_735_470)));
        assert_eq!(uptime(""), None);
        assert!(SystemClock.steady() <= SystemClock.steady());
        assert!(!SystemClock.boot().is_empty());
    }
}
