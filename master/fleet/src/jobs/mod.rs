//! Jobs, that is, one function that is sent to a set of minions, and their returns.
//!
//! A job and its rows (one for each minion) are on disk before anything is sent. [`core`] decides,
//! without any I/O, which parts to send, to send again or to expire; this module carries the
//! decisions out over the store and the connections. Low states are stored with references to
//! secrets, which are replaced only in the message that is sent.

pub mod batch;
pub mod cancel;
pub mod core;
mod create;
mod dispatch;
mod expiry;
pub mod failure;
pub mod function;
mod gate;
mod held;
mod host_health;
pub mod job_id;
mod job_watch;
mod local;
mod open_job;
mod questions;
mod returns;
#[cfg(test)]
mod simulation;
mod surroundings;
pub mod target;
mod turns;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use halite_cluster::kubernetes::access::Clusters;
use halite_core::app::App;
use halite_core::clock::Steady;
use halite_core::declared::Declarations;
use halite_core::names::MASTER;
use halite_core::refusal::Refusal;
use halite_proto::ids::{JobId, MinionId};
use halite_store::{Job, JobRow, RowState, StoredAnswer};

use self::core::Session;
use self::function::Function;
use self::held::Held;
use self::job_id::JobIds;
use self::open_job::OpenJob;
use self::questions::Questions;
use self::turns::Turns;

pub use create::NewJob;
pub use questions::Unanswered;
pub use turns::TurnAnswer;

/// The number of minions to which the master sends, or whose parts it checks, concurrently.
const CONCURRENT: usize = 64;

/// The jobs of this master.
pub struct Jobs {
    app: Arc<App>,
    declarations: Arc<Declarations>,
    clusters: Arc<Clusters>,
    job_ids: JobIds,
    open: Mutex<BTreeMap<JobId, OpenJob>>,
    lanes: Mutex<BTreeMap<MinionId, Arc<tokio::sync::Mutex<Session>>>>,
    /// Held by the part of the target `master` that applies states.
    applying: tokio::sync::Mutex<()>,
    /// Held while a highstate updates minions ahead of it.
    minion_updates: tokio::sync::Mutex<()>,
    /// The rounds of the check of open jobs.
    rounds: tokio::sync::watch::Sender<u64>,
    /// Changes whenever a job ends.
    ends: tokio::sync::watch::Sender<u64>,
    questions: Questions,
    held: Held,
    /// Minions to which parts were not sent because the store failed.
    unsent: Mutex<BTreeSet<MinionId>>,
    turns: Mutex<Turns>,
}

impl Jobs {
    /// Reads the open jobs from the store. [`Jobs::resume`] sends the waiting parts.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn open(
        app: Arc<App>,
        declarations: Arc<Declarations>,
        clusters: Arc<Clusters>,
    ) -> Result<Arc<Self>, Refusal> {
        let newest = app.store.jobs(1).await?;
        let jobs = Arc::new(Self {
            job_ids: JobIds::after(newest.first().map(|job| &job.job_id)),
            app,
            declarations,
            clusters,
            open: Mutex::default(),
            lanes: Mutex::default(),
            applying: tokio::sync::Mutex::default(),
            minion_updates: tokio::sync::Mutex::default(),
            rounds: tokio::sync::watch::Sender::new(0),
            ends: tokio::sync::watch::Sender::new(0),
            questions: Questions::default(),
            held: Held::default(),
            unsent: Mutex::default(),
            turns: Mutex::default(),
        });
        let now = jobs.app.clock.now();
        let lane = jobs.lane(&MASTER);
        lane.lock().await.connect([], None, jobs.app.clock.steady());
        for job in jobs.app.store.open_jobs().await? {
            let parts = jobs.app.store.parts(&job.job_id).await?;
            match Function::find(&job.function) {
                Ok(function) => {
                    let job = Arc::new(job);
                    let gates = jobs.gates(&job).await;
                    let mut open =
                        OpenJob::new(function, &job, &parts, gates, jobs.app.clock.as_ref());
                    open.is_inherited = true;
                    jobs.open_jobs().insert(job.job_id.clone(), open);
                    jobs.presume_started(&job.job_id, &parts);
                }
                // A newer master has created this job; this one cannot finish it.
                Err(_) => jobs.app.store.finish_job(&job.job_id, 1, now).await?,
            }
        }
        Ok(jobs)
    }

    /// Resumes work after a restart: running parts of the target `master` are interrupted, jobs
    /// with all their returns are finished, and waiting parts of the target `master` are started.
    /// Minions report their running jobs when they connect.
    ///
    /// # Errors
    /// The store failed.
    pub async fn resume(self: &Arc<Self>) -> Result<(), Refusal> {
        let own: &MinionId = &MASTER;
        let parts = self.app.store.open_parts(std::slice::from_ref(own));
        for row in parts.await? {
            if row.state == RowState::Started {
                let answer = StoredAnswer {
                    retcode: 2,
                    return_json: "null".into(),
                    error: "the master was restarted during the job; run it again".into(),
                    when: self.app.clock.now(),
                };
                self.returned(&row.job_id, &MASTER, answer).await?;
            }
        }
        let job_ids: Vec<JobId> = self.open_jobs().keys().cloned().collect();
        for job_id in job_ids {
            self.end_not_started(&job_id).await?;
            self.finish_if_done(&job_id).await?;
            self.guard(&job_id);
        }
        self.watch_expiry();
        self.dispatch(&MASTER).await
    }

    fn open_jobs(&self) -> MutexGuard<'_, BTreeMap<JobId, OpenJob>> {
        // No code panics while it holds the lock; a poisoned lock still holds a valid map.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The hosts that are out. A caller that needs the open jobs, too, locks those afterwards.
    fn turns(&self) -> MutexGuard<'_, Turns> {
        // No code panics while it holds the lock; a poisoned lock still holds a valid value.
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session of a minion, whose lock serialises the messages to and from it.
    pub fn lane(&self, minion: &MinionId) -> Arc<tokio::sync::Mutex<Session>> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(lanes.entry(minion.clone()).or_default())
    }

    /// Waits until the job has ended; returns the job and its rows.
    ///
    /// # Errors
    /// The job does not exist, or the store failed.
    pub async fn wait(&self, job_id: &JobId) -> Result<(Job, Vec<JobRow>), Refusal> {
        let mut ends = self.ends.subscribe();
        loop {
            ends.borrow_and_update();
            let open = self.open_jobs().contains_key(job_id);
            if !open {
                let job = self.app.store.job(job_id).await?;
                let job =
                    job.ok_or_else(|| Refusal::not_found(format!("there is no job {job_id}")))?;
                let rows = self.app.store.returns(job_id, &job.minions).await?;
                return Ok((job, rows));
            }
            if ends.changed().await.is_err() {
                return Err(Refusal::internal("the master is stopping"));
            }
        }
    }

    /// The minions that have not returned yet.
    #[must_use]
    pub fn pending(&self, job_id: &JobId) -> Vec<MinionId> {
        let open = self.open_jobs();
        let pending = open.get(job_id).map(|job| job.pending.iter().cloned());
        pending.into_iter().flatten().collect()
    }

    /// The minions for which the job waits now, each with the start of that wait: those that have
    /// not returned, except those whose turn has not come.
    #[must_use]
    pub fn waited_for(&self, job_id: &JobId) -> Vec<(MinionId, Steady)> {
        let open = self.open_jobs();
        let Some(job) = open.get(job_id) else {
            return Vec::new();
        };
        let ready = job.ready_since.iter();
        let ready = ready.filter(|(minion, _)| job.pending.contains(*minion));
        ready
            .map(|(minion, since)| (minion.clone(), *since))
            .collect()
    }

    /// The shared parts of the master.
    #[must_use]
    pub fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// The lock of a highstate that updates minions ahead of it.
    pub fn minion_updates(&self) -> &tokio::sync::Mutex<()> {
        &self.minion_updates
    }

    /// The declared state.
    #[must_use]
    pub fn declarations(&self) -> &Arc<Declarations> {
        &self.declarations
    }

    /// The Kubernetes API.
    #[must_use]
    pub fn clusters(&self) -> &Arc<Clusters> {
        &self.clusters
    }
}
