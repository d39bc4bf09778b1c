//! Regular checks of the cluster's health, for programs that must learn of a finding without a
//! query: metrics and notifications.
//!
//! A round is one [`inspect`], with the same checks as `ctl health`. Rounds run only while the
//! cluster document declares a program that needs them, and only on a master that may act: an
//! isolated one may see half of the cluster. The result of the last round is in a watch channel. A
//! round that does not end in time is cut off, and the previous result stays, marked as stale.

use std::sync::Arc;
use std::time::Duration;

use halite_api::Health;
use halite_core::refusal::Refusal;
use halite_errors::chain;
use halite_fleet::jobs::Jobs;
use halite_pillar::cluster::Cluster;
use halite_store::Millis;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::operator::status::{Inspection, inspect};

/// The time from the start of a round to the start of the next one.
pub const INTERVAL: Duration = Duration::from_secs(60);
/// The longest time of a round. Each query has a shorter limit of its own, so only a disk or the
/// store can take longer.
const LIMIT: Duration = Duration::from_secs(45);

/// A completed round.
#[derive(Debug)]
pub struct HealthRound {
    /// The time at which it ended.
    pub ended: Millis,
    /// Its length.
    pub took: Duration,
    /// The state of the cluster, with the results of the checks.
    pub inspection: Inspection,
    /// The number of jobs that have not ended.
    pub open_jobs: usize,
    /// The number of orchestrations that have not ended.
    pub open_runs: usize,
}

impl HealthRound {
    /// The results of the checks.
    #[must_use]
    pub fn health(&self) -> &Health {
        &self.inspection.status.health
    }
}

/// The latest knowledge about the cluster's health.
#[derive(Debug, Clone, Default)]
pub struct LatestHealth {
    /// The last completed round; `None` before the first one, while no program needs rounds, and
    /// while the master is isolated.
    pub round: Option<Arc<HealthRound>>,
    /// The reason why a later round has no result, so that `round` is out of date.
    pub stale: Option<Arc<str>>,
}

/// The rounds of one master.
pub struct HealthRounds {
    jobs: Arc<Jobs>,
    latest: watch::Sender<LatestHealth>,
}

/// Returns whether a program of this cluster needs the rounds.
fn are_needed(cluster: &Cluster) -> bool {
    cluster.master.metrics.is_some() || !cluster.notify.sinks.is_empty()
}

impl HealthRounds {
    /// Rounds over the cluster of these jobs; none has run.
    #[must_use]
    pub fn new(jobs: Arc<Jobs>) -> Self {
        let (latest, _) = watch::channel(LatestHealth::default());
        Self { jobs, latest }
    }

    /// The result of the last round, and each later one.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<LatestHealth> {
        self.latest.subscribe()
    }

    /// Runs the rounds; never returns. The first one waits until minions have had time to connect.
    pub async fn run(&self) {
        sleep(self.jobs.app().isolation.settles_in()).await;
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.round(LIMIT, self.inspect_if_needed()).await;
        }
    }

    /// One round, unless it is not needed.
    async fn inspect_if_needed(&self) -> Result<Option<HealthRound>, Refusal> {
        let app = self.jobs.app();
        let begun = app.clock.steady();
        let snapshot = self.jobs.declarations().in_force().await?;
        if !are_needed(&snapshot.declaration().cluster) || app.isolation.reason().is_some() {
            return Ok(None);
        }
        drop(snapshot);
        let inspection = inspect(app, &self.jobs).await?;
        let open_jobs = app.store.open_jobs().await?.len();
        let open_runs = app.store.open_runs().await?.len();
        let took = u64::try_from(app.clock.steady() - begun).unwrap_or_default();
        Ok(Some(HealthRound {
            ended: app.clock.now(),
            took: Duration::from_millis(took),
            inspection,
            open_jobs,
            open_runs,
        }))
    }

    /// Publishes the result of a round, which is cut off at the limit.
    async fn round(
        &self,
        limit: Duration,
        round: impl Future<Output = Result<Option<HealthRound>, Refusal>>,
    ) {
        let stale = match timeout(limit, round).await {
            Ok(Ok(round)) => {
                let round = round.map(Arc::new);
                self.latest
                    .send_replace(LatestHealth { round, stale: None });
                return;
            }
            Ok(Err(refusal)) => chain(&refusal),
            Err(_) => format!(
                "the checks of the cluster did not end within {} s",
                limit.as_secs()
            ),
        };
        tracing::warn!(reason = stale, "cannot check the health of the cluster");
        self.latest
            .send_modify(|latest| latest.stale = Some(stale.into()));
    }
}

#[cfg(test)]
#[path = "health_rounds_tests.rs"]
mod tests;
