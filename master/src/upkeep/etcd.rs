//! etcd looks after itself: at the declared time its databases are defragmented, and a reached quota
//! is resolved at once.
//!
//! Both are runs of the orchestration of `ctl etcd defrag`, under its lock. Nothing is remembered
//! that matters: what was tried is read from the runs in the store, so a master that was killed goes
//! on, and a declared time at which it was off is made up for.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::StreamExt as _;
use halite_errors::chain;
use halite_etcd::AlarmKind;
use halite_proto::v1;
use jiff::tz::TimeZone;
use serde_json::json;

use super::etcd_trials::Trials;
use super::history::{self, OPERATOR};
use super::report::{Trouble, Work};
use super::{Random, busy, calendar, etcd_trials, random, sleep};
use crate::clock::Steady;
use crate::declared::Snapshot;
use crate::jobs::Jobs;
use crate::orchestrate::Orchestrator;
use crate::refusal::Refusal;
use crate::store::Millis;

const SECOND: Millis = 1000;
/// The time from one question for alarms to the next. It is one small entry in etcd's log.
pub(super) const LOOK: Millis = 30 * SECOND;
/// The time after a start before the scheduled work, within which hosts come back after a power cut.
pub(super) const SETTLE: Millis = 5 * 60 * SECOND;
/// The seconds after which a run stops to wait for members that do not serve.
const LIMIT: u64 = 300;
/// The free part, in percent, that no database has: only a reached quota is resolved.
const ONLY_FULL: u8 = 100;

/// The upkeep of etcd by one master.
pub struct EtcdUpkeep {
    jobs: Arc<Jobs>,
    orchestrator: Arc<Orchestrator>,
    started: Steady,
    zone: TimeZone,
    limit: u64,
    random: Random,
    /// The declared time for which the store was asked, and nothing is left to do.
    settled: Mutex<Option<Millis>>,
    /// A run that could not be made, which the store does not know of.
    refused: Mutex<Option<(Work, Millis, String)>>,
}

/// What is to be done now.
enum Next {
    /// This work.
    Begin(Work),
    /// Nothing.
    Rest,
    /// Nothing before this time: the last trial failed.
    Failed(Trouble),
}

impl EtcdUpkeep {
    /// Upkeep by the orchestrations of this master.
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

    /// Looks after etcd, without end.
    pub async fn run(&self) {
        sleep(LOOK / 2 + (self.random)(LOOK / 2)).await;
        loop {
            let next = self.step().await.unwrap_or_else(|error| {
                tracing::debug!(%error, "cannot look after etcd; trying again");
                self.jobs.app().clock.now() + LOOK
            });
            let left = next - self.jobs.app().clock.now();
            sleep(left.clamp(SECOND, LOOK)).await;
        }
    }

    /// One look, and the work that follows from it, to its end; answers with the time of the next.
    pub(super) async fn step(&self) -> Result<Millis, Refusal> {
        let app = self.jobs.app();
        let snapshot = self.jobs.declarations().current().await?;
        let members = self.jobs.clusters().etcd().members(&snapshot).await?;
        let alarms = match members.alarms().await {
            Ok(alarms) => alarms,
            // Other checks say so.
            Err(error) => {
                tracing::debug!(
                    error = chain(&error),
                    "etcd does not say which alarms it has"
                );
                return Ok(app.clock.now() + LOOK);
            }
        };
        let is_full = alarms.iter().any(|alarm| alarm.kind == AlarmKind::NoSpace);
        let now = app.clock.now();
        let next = match is_full {
            true => self.room(now).await?,
            false => self.scheduled(&snapshot, now).await?,
        };
        match next {
            Next::Rest => app.upkeep.put_etcd(None),
            Next::Failed(trouble) => app.upkeep.put_etcd(Some(trouble)),
            Next::Begin(work) => {
                self.work(work, &snapshot).await?;
                return Ok(app.clock.now());
            }
        }
        Ok(now + LOOK)
    }

    /// A reached quota: work that does not wait for jobs, because those that write wait for it.
    async fn room(&self, now: Millis) -> Result<Next, Refusal> {
        if let Some(trouble) = self.known(Work::Room, now) {
            return Ok(Next::Failed(trouble));
        }
        let trials = self.trials().await?;
        if trials.is_open() {
            return Ok(Next::Rest);
        }
        let failed = self.refused(Work::Room).or(trials.room(now));
        Ok(unless_failed(Work::Room, failed, now))
    }

    /// The defragmentation, if its time has come.
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
        if let Some(trouble) = self.known(Work::Defragmentation, now) {
            return Ok(Next::Failed(trouble));
        }
        let trials = self.trials().await?;
        if trials.is_open() {
            return Ok(Next::Rest);
        }
        if !trials.is_due(time) {
            *lock(&self.settled) = Some(time);
            return Ok(Next::Rest);
        }
        let failed = self.refused(Work::Defragmentation);
        let failed = failed.or(trials.defragmentation(time));
        let next = unless_failed(Work::Defragmentation, failed, now);
        if matches!(next, Next::Begin(_)) && busy(&self.jobs).await?.is_some() {
            return Ok(Next::Rest);
        }
        Ok(next)
    }

    /// A failure that was found before, until the time of the next trial: the store need not be asked.
    fn known(&self, work: Work, now: Millis) -> Option<Trouble> {
        let known = self.jobs.app().upkeep.etcd()?;
        let failed = (known.work == work).then_some((known.next, known.why));
        match unless_failed(work, failed, now) {
            Next::Failed(trouble) => Some(trouble),
            Next::Begin(_) | Next::Rest => None,
        }
    }

    async fn trials(&self) -> Result<Trials, Refusal> {
        let trials = Trials::read(self.jobs.app()).await?;
        trials.note_outcomes(self.jobs.app()).await?;
        Ok(trials)
    }

    /// The time of the next trial after one that could not be made, and the reason.
    fn refused(&self, work: Work) -> Option<(Millis, String)> {
        let refused = lock(&self.refused);
        let of_it = refused.as_ref().filter(|(own, ..)| *own == work);
        of_it.map(|(_, ended, why)| (ended + etcd_trials::SOON, why.clone()))
    }

    /// Does the work, to its end.
    async fn work(&self, work: Work, snapshot: &Snapshot) -> Result<(), Refusal> {
        let app = self.jobs.app();
        let above = match work {
            Work::Room => ONLY_FULL,
            Work::Defragmentation => snapshot.declaration().cluster.etcd.defrag.above_percent(),
        };
        let request = v1::OrchestrateRequest {
            sls: etcd_trials::SLS.to_owned(),
            pillar_json: json!({"above": above, "timeout": self.limit}).to_string(),
            ..Default::default()
        };
        history::append(app, work.title().to_owned(), history::BEGINS.to_owned()).await?;
        let mut events = match self.orchestrator.start(OPERATOR, request).await {
            Ok(events) => events,
            Err(refusal) => {
                let outcome = format!("refused: {}", refusal.message);
                history::append(app, work.title().to_owned(), outcome).await?;
                *lock(&self.refused) = Some((work, app.clock.now(), refusal.message));
                return Ok(());
            }
        };
        *lock(&self.refused) = None;
        while events.next().await.is_some() {}
        self.trials().await.map(drop)
    }
}

/// The work, unless the time after its last trial has not passed.
fn unless_failed(work: Work, failed: Option<(Millis, String)>, now: Millis) -> Next {
    match failed {
        // One that ended in the future was before the clock was set back.
        Some((next, why)) if next > now && next - now <= etcd_trials::LONGEST => {
            Next::Failed(Trouble { work, why, next })
        }
        _ => Next::Begin(work),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
