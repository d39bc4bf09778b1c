//! The defragmentation of etcd at the declared time.
//!
//! It is a run of the orchestration of `ctl etcd defrag`, under its lock. No state in memory
//! matters: past trials are read from the runs in the store, so a killed master continues, and
//! makes up for a declared time at which it was off.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use halite_core::board::Trouble;
use halite_core::clock::Steady;
use halite_core::declared::Snapshot;
use halite_core::refusal::Refusal;
use halite_etcd::Overview;
use halite_fleet::jobs::Jobs;
use halite_orchestrate::Orchestrator;
use halite_pillar::etcd::Placement;
use halite_proto::v1;
use halite_states::shipped::DEFRAG_ETCD;
use halite_store::Millis;
use jiff::tz::TimeZone;
use serde_json::json;

use super::history::{self, DEFRAGMENTATION, OPERATOR};
use super::trials::{self, Trials};
use super::{Random, busy, calendar, random, sleep};

const SECOND: Millis = 1000;
/// The interval between two checks of the clock.
pub(super) const LOOK: Millis = 30 * SECOND;
/// The time after a start before the work, within which hosts come back after a power cut.
pub(super) const SETTLE: Millis = 5 * 60 * SECOND;
/// The time after a run that could not be made until the next trial.
const SOON: Millis = 10 * 60 * SECOND;
/// The seconds after which a run stops waiting for members that do not serve.
const LIMIT: u64 = 300;
/// The time that the members have to answer.
const ANSWER: Duration = Duration::from_secs(30);

/// The part of the upkeep that defragments etcd.
pub struct Defragmentation {
    jobs: Arc<Jobs>,
    orchestrator: Arc<Orchestrator>,
    started: Steady,
    zone: TimeZone,
    limit: u64,
    random: Random,
    /// The declared time for which the store was read, with no work left to do.
    settled: Mutex<Option<Millis>>,
    /// The time of a run that could not be made, which the store does not contain, and the reason.
    refused: Mutex<Option<(Millis, String)>>,
}

/// The next action.
enum Next {
    /// A run, for databases of which more than this percentage is free.
    Begin(u8),
    /// Nothing.
    Rest,
    /// Nothing before this time: the last trial failed.
    Failed(Trouble),
}

impl Defragmentation {
    /// Defragmentation with the orchestrations of this master.
    #[must_use]
    pub fn new(jobs: Arc<Jobs>, orchestrator: Arc<Orchestrator>) -> Self {
        Self::with(jobs, orchestrator, calendar::local(), LIMIT)
    }

    pub(super) fn with(
        jobs: Arc<Jobs>,
        orchestrator: Arc<Orchestrator>,
        zone: TimeZone,
        limit: u64,
    ) -> Self {
        let started = jobs.app().clock.steady();
        Self {
            jobs,
            orchestrator,
            started,
            zone,
            limit,
            random: Box::new(random),
            settled: Mutex::default(),
            refused: Mutex::default(),
        }
    }

    /// Checks the clock repeatedly; never returns.
    pub async fn run(&self) {
        sleep(LOOK / 2 + (self.random)(LOOK / 2)).await;
        loop {
            let next = self.step().await.unwrap_or_else(|error| {
                tracing::error!(%error, "cannot defragment etcd at the declared time; trying again");
                self.jobs.app().clock.now() + LOOK
            });
            let left = next - self.jobs.app().clock.now();
            sleep(left.clamp(SECOND, LOOK)).await;
        }
    }

    /// One check, and its resulting work, to its end; returns the time of the next.
    pub(super) async fn step(&self) -> Result<Millis, Refusal> {
        let app = self.jobs.app();
        let now = app.clock.now();
        match self.next(now).await? {
            Next::Rest => app.upkeep.put_trouble(None),
            Next::Failed(trouble) => app.upkeep.put_trouble(Some(trouble)),
            Next::Begin(above) => {
                self.work(above).await?;
                return Ok(app.clock.now());
            }
        }
        Ok(now + LOOK)
    }

    async fn next(&self, now: Millis) -> Result<Next, Refusal> {
        let snapshot = self.jobs.declarations().in_force().await?;
        let etcd = &snapshot.declaration().cluster.etcd;
        match etcd.placement {
            Placement::Stacked | Placement::Dedicated => self.scheduled(&snapshot, now).await,
            // Halite does not change the members of an external etcd.
            Placement::External => Ok(Next::Rest),
        }
    }

    /// The work, if its time has come.
    async fn scheduled(&self, snapshot: &Snapshot, now: Millis) -> Result<Next, Refusal> {
        let defrag = &snapshot.declaration().cluster.etcd.defrag;
        let time = defrag.weekly();
        let Some(time) = time.and_then(|time| calendar::last(time, now, &self.zone)) else {
            return Ok(Next::Rest);
        };
        let settling = self.jobs.app().clock.steady() - self.started < SETTLE;
        if settling || *lock(&self.settled) == Some(time) {
            return Ok(Next::Rest);
        }
        // The store need not be read until the time of the next trial.
        let known = self.jobs.app().upkeep.trouble();
        if let Some(trouble) = known.filter(|trouble| is_ahead(trouble.next, now)) {
            return Ok(Next::Failed(trouble));
        }
        let trials = self.trials().await?;
        if !trials.is_due(time) {
            *lock(&self.settled) = Some(time);
            return Ok(Next::Rest);
        }
        let failed = self.refused().or(trials.failure(time));
        if let Some((next, why)) = failed.filter(|(next, _)| is_ahead(*next, now)) {
            return Ok(Next::Failed(Trouble { why, next }));
        }
        let waits = busy(&self.jobs).await?.is_some() || !self.takes_writes(snapshot).await?;
        Ok(match waits {
            true => Next::Rest,
            false => Next::Begin(defrag.above_percent()),
        })
    }

    /// Returns whether etcd has a quorum and no member has reached its quota. Without a quorum a
    /// run would only delay the renewal of certificates; at the quota, [`super::Room`] frees space.
    async fn takes_writes(&self, snapshot: &Snapshot) -> Result<bool, Refusal> {
        let members = self.jobs.clusters().etcd().members(snapshot).await?;
        let taken = tokio::time::timeout(ANSWER, Overview::take(members.as_ref())).await;
        let Ok(Ok(overview)) = taken else {
            return Ok(false);
        };
        Ok(overview.voters.have_quorum() && !overview.has_reached_quota())
    }

    async fn trials(&self) -> Result<Trials, Refusal> {
        let trials = Trials::read(self.jobs.app()).await?;
        trials.note_outcomes(self.jobs.app()).await?;
        Ok(trials)
    }

    /// The time of the next trial after one that could not be made, and the reason.
    fn refused(&self) -> Option<(Millis, String)> {
        let refused = lock(&self.refused).clone();
        refused.map(|(ended, why)| (ended + SOON, why))
    }

    /// Does the work, to its end.
    async fn work(&self, above: u8) -> Result<(), Refusal> {
        let app = self.jobs.app();
        let request = v1::OrchestrateRequest {
            sls: DEFRAG_ETCD.to_owned(),
            pillar_json: json!({"above": above, "timeout": self.limit}).to_string(),
            ..v1::OrchestrateRequest::default()
        };
        let what = || DEFRAGMENTATION.to_owned();
        history::append(app, what(), history::BEGINS.to_owned()).await?;
        let mut events = match self.orchestrator.start(OPERATOR, request).await {
            Ok(events) => events,
            Err(refusal) => {
                let outcome = format!("refused: {}", refusal.message);
                history::append(app, what(), outcome).await?;
                *lock(&self.refused) = Some((app.clock.now(), refusal.message));
                return Ok(());
            }
        };
        *lock(&self.refused) = None;
        while events.next().await.is_some() {}
        self.trials().await.map(drop)
    }
}

/// Returns whether the next trial is still ahead. A time far ahead dates from before the clock was
/// set back.
fn is_ahead(next: Millis, now: Millis) -> bool {
    next > now && next - now <= trials::AGAIN
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
