//! The time of a waiting step, and its reports: one line after a while, repeated while it waits.

use std::time::Duration;

use halite_core::due::NextReport;
use halite_etcd::{Moment, Pace, Wait};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::record::Recorder;

/// Real time. Reports go to the watchers of the run, into the record of the step, and into the log.
pub(super) struct StepPace<'a> {
    recorder: &'a Recorder,
    index: usize,
    pause: Duration,
    start: Instant,
    due: NextReport,
    /// The operator's remedy, if the reason does not contain one.
    remedy: String,
    /// The time that this step usually takes here, looked up with the first report.
    usual: OnceCell<Option<Duration>>,
}

impl<'a> StepPace<'a> {
    /// The time of this step, which starts now, with this pause between two attempts.
    pub(super) fn new(recorder: &'a Recorder, index: usize, pause: Duration) -> Self {
        Self {
            recorder,
            index,
            pause,
            start: Instant::now(),
            due: NextReport::default(),
            remedy: String::new(),
            usual: OnceCell::new(),
        }
    }

    /// Sets the operator's remedy.
    pub(super) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }

    /// Reports a wait that started with this pace.
    pub(super) async fn say(&self, until: String, because: String, limit: Duration) {
        let remedy = self.remedy.as_str();
        self.say_with(until, because, limit, remedy).await;
    }

    /// The same, with a remedy that belongs to the present reason.
    pub(super) async fn say_with(
        &self,
        until: String,
        because: String,
        limit: Duration,
        remedy: &str,
    ) {
        let wait = Wait {
            until,
            because,
            since: self.now(),
            limit,
        };
        self.note(&wait, remedy).await;
    }

    /// Ends the step here, between two attempts, if its run was cancelled.
    pub(super) async fn leave_if_cancelled(&self) {
        self.recorder.leave_if_cancelled(self.index).await;
    }

    async fn note(&self, wait: &Wait, remedy: &str) {
        if !self.due.take(wait.since) {
            return;
        }
        tracing::info!(%wait, "a step waits");
        let usual = self.usual.get_or_init(|| self.recorder.usual(self.index));
        let usual = *usual.await;
        // A store that fails stops the run at the end of the step.
        let noted = self.recorder.note_wait(self.index, wait, usual, remedy);
        let _ = noted.await;
    }
}

impl Pace for StepPace<'_> {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn pause(&self) -> Moment<'_> {
        Box::pin(async {
            tokio::select! {
                () = tokio::time::sleep(self.pause) => {}
                _ = self.recorder.cancellation().requested() => {}
            }
            self.leave_if_cancelled().await;
        })
    }

    fn report<'a>(&'a self, wait: &'a Wait) -> Moment<'a> {
        Box::pin(self.note(wait, &self.remedy))
    }
}
