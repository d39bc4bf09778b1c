//! Time of a step that waits, and what is said about it: one line after a while, and again as long
//! as it waits.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use halite_etcd::{Moment, Pace, Wait};
use tokio::time::Instant;

use super::record::Recorder;

/// Time after which a step says what it waits for, and then again.
pub(super) const SAY: Duration = Duration::from_secs(10);

/// Real time. Reports go to those who watch the run, into the record of the step, and into the log.
pub(super) struct StepPace<'a> {
    recorder: &'a Recorder,
    index: usize,
    pause: Duration,
    start: Instant,
    due: Mutex<Due>,
    /// What the operator can do, where the reason does not say it.
    remedy: String,
}

/// The time of the next report.
#[derive(Debug, Default)]
struct Due {
    /// Time of the last report.
    said: Duration,
}

impl Due {
    /// Returns whether a wait is reported now, and notes that it is.
    fn take(&mut self, since: Duration) -> bool {
        let is_due = since >= self.said + SAY;
        if is_due {
            self.said = since;
        }
        is_due
    }
}

impl<'a> StepPace<'a> {
    /// Time of this step that starts now, with this pause between two attempts.
    pub(super) fn new(recorder: &'a Recorder, index: usize, pause: Duration) -> Self {
        Self {
            recorder,
            index,
            pause,
            start: Instant::now(),
            due: Mutex::default(),
            remedy: String::new(),
        }
    }

    /// Adds what the operator can do.
    pub(super) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }

    /// Reports a wait that began with this pace.
    pub(super) async fn say(&self, until: String, because: String, limit: Duration) {
        let wait = Wait {
            until,
            because,
            since: self.now(),
            limit,
        };
        self.report(&wait).await;
    }
}

impl Pace for StepPace<'_> {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn pause(&self) -> Moment<'_> {
        Box::pin(tokio::time::sleep(self.pause))
    }

    fn report<'a>(&'a self, wait: &'a Wait) -> Moment<'a> {
        let is_due = {
            let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
            due.take(wait.since)
        };
        Box::pin(async move {
            if is_due {
                tracing::info!(%wait, "a step waits");
                // A store that fails stops the run at the end of the step.
                let _ = self
                    .recorder
                    .note_wait(self.index, wait, &self.remedy)
                    .await;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_reported_every_ten_seconds() {
        let mut due = Due::default();
        let reported: Vec<u64> = (0..35)
            .filter(|second| due.take(Duration::from_secs(*second)))
            .collect();
        assert_eq!(reported, [10, 20, 30]);
    }
}
