//! Reports a wait inside a command of `ctl`: one line on standard error after a while, with or
//! without a terminal, and again at growing intervals as long as it waits.

use std::time::{Duration, Instant};

use crate::output::Screen;

/// The time after which a wait is first reported; each further report comes after twice the time.
const SAY: Duration = Duration::from_secs(10);
/// The interval between two checks whether a line is due.
const TICK: Duration = Duration::from_secs(1);

/// A wait in progress.
pub struct Waiting {
    /// The end that it waits for, for example `the master on cp-2 serves`.
    until: String,
    /// The time after which it stops waiting; `None` if it has no limit.
    limit: Option<Duration>,
    /// The operator's options.
    remedy: String,
    start: Instant,
    /// The time of the next line.
    next: Duration,
}

impl Waiting {
    /// A wait that starts now, for at most `limit`, until `until`; `remedy` has the operator's
    /// options.
    pub fn new(until: impl Into<String>, limit: Duration, remedy: impl Into<String>) -> Self {
        Self {
            limit: Some(limit),
            ..Self::without_limit(until, remedy)
        }
    }

    /// A wait that starts now, without a limit.
    pub fn without_limit(until: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            until: until.into(),
            limit: None,
            remedy: remedy.into(),
            start: Instant::now(),
            next: SAY,
        }
    }

    /// Returns true if the limit has passed.
    pub fn is_over(&self) -> bool {
        self.limit.is_some_and(|limit| self.start.elapsed() > limit)
    }

    /// Changes the awaited event; the wait keeps its start.
    pub fn until(&mut self, until: impl Into<String>) {
        self.until = until.into();
    }

    /// Prints a line on standard error if one is due.
    pub fn say(&mut self, screen: &mut Screen) {
        if let Some(line) = self.due(self.start.elapsed()) {
            let mark = screen.paint().notable("!");
            screen.note(format!("{mark} {line}"));
        }
    }

    /// Waits for work, and prints the due lines until it has ended.
    pub async fn during<T>(&mut self, screen: &mut Screen, work: impl Future<Output = T>) -> T {
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                () = tokio::time::sleep(TICK) => self.say(screen),
            }
        }
    }

    /// The line of a wait that has lasted for `since`, if one is due.
    fn due(&mut self, since: Duration) -> Option<String> {
        if since < self.next {
            return None;
        }
        self.next = since * 2;
        let most = self
            .limit
            .map(|limit| format!(" (at most {} s)", limit.as_secs()));
        Some(format!(
            "waiting for {} s{} until {}; {}",
            since.as_secs(),
            most.unwrap_or_default(),
            self.until,
            self.remedy
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting() -> Waiting {
        Waiting::new(
            "the master on cp-2 serves",
            Duration::from_secs(300),
            "`journalctl -u halite-master` there says more",
        )
    }

    #[test]
    fn a_wait_is_said_after_ten_seconds_and_at_growing_intervals() {
        let mut waiting = waiting();
        let said: Vec<u64> = (0..300)
            .filter(|second| waiting.due(Duration::from_secs(*second)).is_some())
            .collect();
        assert_eq!(said, [10, 20, 40, 80, 160]);
    }

    #[test]
    fn the_line_has_the_end_the_times_and_the_remedy() {
        let mut waiting = waiting();
        let line = waiting.due(Duration::from_millis(10_400));
        assert_eq!(
            line.as_deref(),
            Some(
                "waiting for 10 s (at most 300 s) until the master on cp-2 serves; `journalctl -u halite-master` there says \
                 more"
            )
        );
        waiting.until("cp-2 answers");
        let line = waiting.due(Duration::from_secs(30)).unwrap_or_default();
        assert!(
            line.contains("for 30 s (at most 300 s) until cp-2 answers"),
            "{line}"
        );
        let mut endless = Waiting::without_limit("the jobs end", "`ctl job list` shows them");
        assert_eq!(
            endless.due(SAY).as_deref(),
            Some("waiting for 10 s until the jobs end; `ctl job list` shows them")
        );
        assert!(!endless.is_over());
    }

    #[tokio::test]
    async fn work_ends_a_wait() {
        let mut screen = Screen::new(crate::output::Format::Json);
        assert_eq!(waiting().during(&mut screen, async { 7 }).await, 7);
    }
}
