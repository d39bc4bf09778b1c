//! Time and reports of a step that waits.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use halite_etcd::{Moment, Pace, Wait};
use serde_json::json;
use tokio::time::Instant;

use super::record::Recorder;

/// Time after which a step says what it waits for, and then again.
const SAY: Duration = Duration::from_secs(10);

/// Real time. Reports go into the record of the step and into the log.
pub(super) struct StepPace<'a> {
    recorder: &'a Recorder,
    index: usize,
    pause: Duration,
    start: Instant,
    /// Time of the last report.
    said: Mutex<Duration>,
}

impl<'a> StepPace<'a> {
    /// Time of this step that starts now, with this pause between two attempts.
    pub(super) fn new(recorder: &'a Recorder, index: usize, pause: Duration) -> Self {
        Self {
            recorder,
            index,
            pause,
            start: Instant::now(),
            said: Mutex::default(),
        }
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
            let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
            let is_due = wait.since >= *said + SAY;
            if is_due {
                *said = wait.since;
            }
            is_due
        };
        Box::pin(async move {
            if is_due {
                tracing::info!(%wait, "a step waits");
                // A store that fails stops the run at the end of the step.
                let _ = self
                    .recorder
                    .note(self.index, "waits", json!(wait.to_string()))
                    .await;
            }
        })
    }
}
