//! The wait of a step while its master is isolated: another host may have taken its place, and
//! would work on the same run.

use std::time::Duration;

use halite_etcd::{Pace as _, Wait};

use super::pace::StepPace;
use super::step_runner::StepRunner;

/// Polling interval.
const PAUSE: Duration = Duration::from_millis(250);
/// The condition that ends the wait.
const UNTIL: &str = "a standby follows, half of the minions are connected, or every other host that may run a master \
    answers that it is a standby";

impl StepRunner<'_> {
    /// Waits until this master is not isolated, without a limit. A test run changes nothing and
    /// does not wait.
    pub(super) async fn wait_while_isolated(&self, index: usize) {
        if self.run.test {
            return;
        }
        let pace = StepPace::new(self.recorder, index, PAUSE);
        let mut is_said = false;
        while let Some(because) = self.jobs.app().isolation.reason() {
            let wait = Wait {
                until: UNTIL.to_owned(),
                because,
                since: pace.now(),
                limit: Duration::ZERO,
            };
            if is_said {
                pace.report(&wait).await;
            } else {
                // A store that fails stops the run at the end of the step.
                let _ = self.recorder.note_wait(index, &wait, None, "").await;
                tracing::warn!(%wait, "a step waits");
                is_said = true;
            }
            pace.pause().await;
        }
    }
}
