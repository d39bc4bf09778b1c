//! The job engine: one function, sent to a set of minions, and their answers.
//!
//! A job and its rows (one a minion) are on disk before anything is sent; what was decided when,
//! and what is sent again, is decided in [`core`] without any I/O; this module carries it out over
//! the store and the hub. Low states are stored with references to secrets, which are filled in for
//! the moment of sending.

pub mod core;
mod create;
mod dispatch;
mod expiry;
pub mod function;
pub mod jid;
mod job_watch;
mod local;
mod returns;
#[cfg(test)]
mod simulation;
pub mod target;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::core::{Limits, Session};
use self::function::Function;
use self::jid::Jids;
use crate::app::App;
use crate::declared::Declarations;
use crate::kubernetes::access::Clusters;
use crate::names::MASTER;
use crate::refusal::Refusal;
use crate::store::{Answer, Job, JobRow, Millis, RowState};

pub use create::NewJob;

/// A job that has not ended, as far as it is kept in memory. Everything here can be made again from
/// the store.
struct OpenJob {
    function: &'static Function,
    deadline: Option<Millis>,
    limits: Limits,
    /// Minions whose part has not ended.
    pending: BTreeSet<String>,
    /// Groups, of which each waits for the one before; empty: all at once.
    order: Vec<Vec<String>>,
    /// Since when a minion's part may be sent.
    ready_since: BTreeMap<String, Millis>,
}

impl OpenJob {
    fn new(function: &'static Function, job: &Job, rows: &[JobRow], now: Millis) -> Self {
        let pending: BTreeSet<String> = rows
            .iter()
            .filter(|row| !ended(row.state))
            .map(|row| row.minion.clone())
            .collect();
        let mut open = Self {
            function,
            deadline: job.deadline,
            limits: function.limits(),
            pending,
            order: create::order_of(&job.args_json),
            ready_since: BTreeMap::new(),
        };
        open.make_ready(now);
        open
    }

    /// Whether a minion's part waits for another group.
    fn is_blocked(&self, minion: &str) -> bool {
        !self.ready_since.contains_key(minion)
    }

    /// Lets go the groups whose predecessors have ended; the minions that may be sent to now for
    /// the first time.
    fn make_ready(&mut self, now: Millis) -> Vec<String> {
        let mut ready: Vec<String> = Vec::new();
        if self.order.is_empty() {
            ready.extend(self.pending.iter().cloned());
        }
        for group in &self.order {
            let waiting: Vec<&String> = group
                .iter()
                .filter(|minion| self.pending.contains(*minion))
                .collect();
            if !waiting.is_empty() {
                ready.extend(waiting.into_iter().cloned());
                break;
            }
        }
        ready.retain(|minion| !self.ready_since.contains_key(minion));
        for minion in &ready {
            self.ready_since.insert(minion.clone(), now);
        }
        ready
    }
}

/// Whether a row has ended.
fn ended(state: RowState) -> bool {
    matches!(state, RowState::Returned | RowState::Lost)
}

/// The engine.
pub struct Jobs {
    app: Arc<App>,
    declarations: Arc<Declarations>,
    clusters: Arc<Clusters>,
    jids: Jids,
    open: Mutex<BTreeMap<String, OpenJob>>,
    lanes: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<Session>>>>,
    /// Changes whenever a part of a job ends.
    ends: tokio::sync::watch::Sender<u64>,
}

impl Jobs {
    /// An engine that knows what the store knows. [`Jobs::resume`] sends what waits.
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
            jids: Jids::after(newest.first().map(|job| job.jid.as_str())),
            app,
            declarations,
            clusters,
            open: Mutex::default(),
            lanes: Mutex::default(),
            ends: tokio::sync::watch::Sender::new(0),
        });
        let now = jobs.app.clock.now();
        jobs.lane(MASTER).lock().await.connect([], now);
        for job in jobs.app.store.open_jobs().await? {
            let rows = jobs.app.store.rows(&job.jid).await?;
            match Function::find(&job.function) {
                Ok(function) => {
                    let open = OpenJob::new(function, &job, &rows, now);
                    jobs.open_jobs().insert(job.jid.clone(), open);
                }
                // Written by a newer master: nothing here can finish it.
                Err(_) => jobs.app.store.finish_job(&job.jid, 1, now).await?,
            }
        }
        Ok(jobs)
    }

    /// After a restart: what ran here is interrupted, what had all its answers is finished, what
    /// waits for the target `master` is begun. Minions say themselves, when they connect, what they
    /// are at.
    ///
    /// # Errors
    /// The store failed.
    pub async fn resume(self: &Arc<Self>) -> Result<(), Refusal> {
        for row in self.app.store.open_rows(MASTER).await? {
            if row.state == RowState::Started {
                let answer = Answer {
                    retcode: 2,
                    return_json: "null".into(),
                    error: "the master was restarted while it ran this; run it again".into(),
                    when: self.app.clock.now(),
                };
                self.returned(&row.jid, MASTER, answer).await?;
            }
        }
        let jids: Vec<String> = self.open_jobs().keys().cloned().collect();
        for jid in jids {
            self.finish_if_done(&jid).await?;
        }
        self.watch_expiry();
        self.dispatch(MASTER).await
    }

    fn open_jobs(&self) -> MutexGuard<'_, BTreeMap<String, OpenJob>> {
        // Nothing panics while holding the lock; a poisoned one still holds a sound map.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lane(&self, minion: &str) -> Arc<tokio::sync::Mutex<Session>> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(lanes.entry(minion.to_owned()).or_default())
    }

    /// Waits until the job has ended; answers with it and its rows.
    ///
    /// # Errors
    /// There is no such job, or the store failed.
    pub async fn wait(&self, jid: &str) -> Result<(Job, Vec<JobRow>), Refusal> {
        let mut ends = self.ends.subscribe();
        loop {
            ends.borrow_and_update();
            let open = self.open_jobs().contains_key(jid);
            if !open {
                let job = self.app.store.job(jid).await?;
                let job =
                    job.ok_or_else(|| Refusal::not_found(format!("there is no job {jid}")))?;
                return Ok((job, self.app.store.rows(jid).await?));
            }
            if ends.changed().await.is_err() {
                return Err(Refusal::internal("the master is stopping"));
            }
        }
    }

    /// What the parts of the engine share.
    #[must_use]
    pub fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// What is declared.
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
