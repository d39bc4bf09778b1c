//! Time and reports of a change that waits.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::Instant;

/// A boxed future without a result.
pub type Moment<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// One report of a change that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// The awaited condition, for example `cp-2 is in sync`.
    pub until: String,
    /// The reason why it does not hold yet.
    pub because: String,
    /// The duration of the wait so far.
    pub since: Duration,
    /// The timeout of the wait.
    pub limit: Duration,
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (since, limit) = (self.since.as_secs(), self.limit.as_secs());
        let limit = match limit {
            0 => String::new(),
            limit => format!(" of {limit} s"),
        };
        write!(
            f,
            "waiting until {}, for {since} s{limit}: {}",
            self.until, self.because
        )
    }
}

/// Time, pauses and reports; tests provide their own.
pub trait Pace: Send + Sync {
    /// The time since a fixed moment.
    fn now(&self) -> Duration;
    /// The pause between two attempts.
    fn pause(&self) -> Moment<'_>;
    /// Takes a report, once for each attempt.
    fn report<'a>(&'a self, wait: &'a Wait) -> Moment<'a>;
}

/// The real time; reports are dropped.
pub struct RealPace {
    start: Instant,
    pause: Duration,
}

impl RealPace {
    /// Time that starts now, with this pause between two attempts.
    #[must_use]
    pub fn new(pause: Duration) -> Self {
        let start = Instant::now();
        Self { start, pause }
    }
}

impl Pace for RealPace {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn pause(&self) -> Moment<'_> {
        Box::pin(tokio::time::sleep(self.pause))
    }

    fn report<'a>(&'a self, _wait: &'a Wait) -> Moment<'a> {
        Box::pin(std::future::ready(()))
    }
}
