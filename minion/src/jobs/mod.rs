//! Jobs: the functions that a master may have this minion run. Each job starts at most once, and
//! its answer is resent until the master has stored it.
//!
//! Functions that change the host (`state.apply`, `cmd.run`) go through the journal, and
//! `log.read`, which may take long. Functions that only read (`test.ping`, grains) do not: running
//! them twice does no harm, and a disk write would take most of their time.

mod log;
mod progress;
mod shell;
#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "tests look at the files that a job leaves"
)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use halite_errors::chain;
use halite_host_reports::health::FUNCTION as HEALTH;
use halite_host_reports::pod_network::FUNCTION as POD_NETWORK;
use halite_preflight::FUNCTION as PREFLIGHT;
use halite_proto::ids::{JobId, MinionId};
use halite_proto::transport::Channel;
use halite_proto::v1::minion_message::Body;
use halite_proto::v1::{Grains, Job, JobProgress, JobReturn, JobStarted};
use halite_states::engine::RunOptions;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::blobs::Store;
use crate::config::Config;
use crate::exclusive::LockError;
use crate::host::linux::LinuxHost;
use crate::host::{HostError, Stop};
use crate::journal::{Directory, INTERRUPTED, JobAnswer, Journal, JournalError, Progress};
use crate::low_state::LowStateError;
use crate::pending_triggers::PendingTriggers;
use crate::remote::Remote;
use crate::runner::Runner;
use crate::{clock, exclusive, grains, health, low_state, pod_network, preflight};

/// Reason of a job that ends early because the minion stops.
const STOPPING: &str = "the minion is being stopped";

/// A job cannot start.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("cannot take the lock of state runs")]
    Lock(#[source] LockError),
    #[error(transparent)]
    LowState(#[from] LowStateError),
    #[error("cannot read the pending triggers")]
    PendingTriggers(#[source] HostError),
}

/// The jobs of this minion.
pub struct Jobs {
    config: Config,
    id: MinionId,
    journal: Journal<Directory>,
    /// Messages to the master; lost without a link, so answers are journaled.
    outbox: mpsc::UnboundedSender<Body>,
    channel: watch::Receiver<Option<Channel>>,
    active: Mutex<BTreeMap<JobId, Arc<Stop>>>,
    /// Number of active jobs; `drain` waits for 0.
    count: watch::Sender<usize>,
    /// Serialises state runs.
    states: tokio::sync::Mutex<()>,
    grains: Mutex<Value>,
}

impl Jobs {
    /// Opens the journal.
    ///
    /// # Errors
    /// It cannot be read or written.
    pub fn open(
        config: &Config,
        id: MinionId,
        outbox: mpsc::UnboundedSender<Body>,
        channel: watch::Receiver<Option<Channel>>,
    ) -> Result<Arc<Self>, JournalError> {
        Ok(Arc::new(Self {
            config: config.clone(),
            id,
            journal: Journal::open(Directory(config.journal()))?,
            outbox,
            channel,
            active: Mutex::default(),
            count: watch::Sender::new(0),
            states: tokio::sync::Mutex::default(),
            grains: Mutex::new(Value::Null),
        }))
    }

    fn active(&self) -> MutexGuard<'_, BTreeMap<JobId, Arc<Stop>>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, body: Body) {
        // The receiver lives as long as the link's task, and is dropped only when the minion stops.
        let _ = self.outbox.send(body);
    }

    /// Ids of the jobs that were started and have no answer yet.
    pub fn running(&self) -> Vec<JobId> {
        self.active().keys().cloned().collect()
    }

    /// Ids of the answered jobs whose answer the master may not have. Read after [`Jobs::running`],
    /// so that a job that ends in between is in one of both.
    pub fn unstored(&self) -> Vec<JobId> {
        self.journal.returned()
    }

    /// Collects the grains, and remembers them for [`Jobs::refresh_grains`].
    pub async fn grains(&self) -> Value {
        let grains = grains::collect(Some(&self.id), &self.config.reports).await;
        self.grains
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone_from(&grains);
        grains
    }

    /// Collects the grains and sends them to the master if one has changed.
    async fn refresh_grains(&self) -> Value {
        let old = self
            .grains
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let new = self.grains().await;
        if grains::differ(&old, &new) {
            self.send(Body::Grains(Grains {
                grains_json: new.to_string(),
            }));
        }
        new
    }

    /// Sends the grains to the master if scheduled work has left a report that it does not know, or
    /// the data of the etcd member has appeared or disappeared.
    pub async fn check_reports(&self) {
        let known = {
            let grains = self.grains.lock().unwrap_or_else(PoisonError::into_inner);
            grains::is_reported(&grains, &self.config.reports)
        };
        if !known {
            self.refresh_grains().await;
        }
    }

    /// Sends every answer that the master may not have.
    pub fn resend_answers(&self) {
        for job in self.journal.returned() {
            self.resend_answer(&job);
        }
    }

    fn resend_answer(&self, job: &JobId) {
        match self.journal.answer(job) {
            Ok(Some(answer)) => self.send(returned(job, answer)),
            Ok(None) => {}
            Err(error) => tracing::error!(%job, error = chain(&error), "cannot send an answer"),
        }
    }

    /// Records that the master has stored an answer.
    pub fn stored(&self, job: &JobId) {
        if let Err(error) = self.journal.stored(job) {
            tracing::error!(
                %job,
                error = chain(&error),
                "the answer will be sent once more"
            );
        }
    }

    /// Ends a job that the master cancels for this reason; with `force`, a package transaction too.
    pub fn cancel(&self, job: &JobId, reason: &str, force: bool) {
        if let Some(stop) = self.active().get(job) {
            tracing::info!(%job, reason, force, "cancelled by the master");
            if force {
                stop.force(reason);
            } else {
                stop.request(reason);
            }
        }
    }

    /// Requests the end of all jobs and waits for it, at most `time`.
    pub async fn drain(&self, time: Duration) {
        for stop in self.active().values() {
            stop.request(STOPPING);
        }
        let mut count = self.count.subscribe();
        if tokio::time::timeout(time, count.wait_for(|n| *n == 0))
            .await
            .is_err()
        {
            tracing::warn!(jobs = ?self.running(), "jobs did not end in time; they will be answered as interrupted");
        }
    }

    /// Takes a job from the master. A known job is not started again, only answered again.
    pub fn accept(self: &Arc<Self>, job: Job) {
        let id: JobId = match job.job.parse() {
            Ok(id) => id,
            Err(error) => {
                let JobAnswer {
                    retcode,
                    return_json,
                    error,
                } = failed(1, &chain(&error));
                return self.send(Body::Returned(JobReturn {
                    job: job.job,
                    retcode,
                    return_json,
                    error,
                }));
            }
        };
        if self.active().contains_key(&id) {
            return self.send(Body::Started(JobStarted { job: id.into() }));
        }
        match self.journal.progress(&id) {
            None => {}
            Some(Progress::Returned | Progress::Started) => return self.resend_answer(&id),
            Some(Progress::Stored) => {
                return self.send(returned(
                    &id,
                    failed(INTERRUPTED, "done before; the master has stored its answer"),
                ));
            }
        }
        let stop = Arc::new(Stop::default());
        self.active().insert(id.clone(), Arc::clone(&stop));
        self.count.send_modify(|n| *n += 1);
        let jobs = Arc::clone(self);
        let applies = job.function == "state.apply";
        tokio::spawn(async move {
            let worker = Arc::clone(&jobs);
            let name = id.clone();
            // A separate task: a panic in a module ends the job and not the minion.
            let ended = tokio::spawn(async move { worker.run(id, job, &stop).await }).await;
            if let Err(error) = ended {
                tracing::error!(job = %name, %error, "the job panicked");
                jobs.finish(
                    &name,
                    failed(1, "the minion failed internally; its log says where"),
                );
            }
            jobs.active().remove(&name);
            jobs.count.send_modify(|n| *n = n.saturating_sub(1));
            if applies {
                // A low state takes megabytes, and the next one may be hours away.
                halite_heap::give_back();
            }
        });
    }

    async fn run(&self, id: JobId, job: Job, stop: &Arc<Stop>) {
        match job.function.as_str() {
            "test.ping" => self.send(returned(&id, done(&Value::Bool(true)))),
            "grains.items" => {
                let grains = self.refresh_grains().await;
                self.send(returned(&id, done(&grains)));
            }
            "saltutil.refresh_grains" => {
                self.refresh_grains().await;
                self.send(returned(&id, done(&Value::Bool(true))));
            }
            HEALTH => {
                let busy = self.states.try_lock().is_err();
                let report = health::report(Path::new("/"), busy);
                let answer = serde_json::to_value(report).unwrap_or_default();
                self.send(returned(&id, done(&answer)));
            }
            PREFLIGHT => {
                let answered = preflight::answer(&job.args_json, clock::seconds()).await;
                let answer =
                    answered.map_or_else(|error| failed(1, &chain(&error)), |it| done(&it));
                self.send(returned(&id, answer));
            }
            POD_NETWORK => {
                let answered = pod_network::answer(&job.args_json).await;
                let answer =
                    answered.map_or_else(|error| failed(1, &chain(&error)), |it| done(&it));
                self.send(returned(&id, answer));
            }
            "cmd.run" => {
                if self.start(&id) {
                    let answer = shell::run(&job.args_json, stop).await;
                    self.finish(&id, answer);
                }
            }
            log::FUNCTION => {
                if self.start(&id) {
                    let report = |lines: Value| {
                        self.send(Body::Progress(JobProgress {
                            job: id.to_string(),
                            index: 0,
                            total: 0,
                            state_json: lines.to_string(),
                        }));
                    };
                    let answer = log::read(&job.args_json, stop, report).await;
                    self.finish(&id, answer);
                }
            }
            "state.apply" => self.apply(id, job, stop).await,
            other => self.send(returned(
                &id,
                failed(1, &format!("this minion has no function `{other}`")),
            )),
        }
    }

    /// Records the start and reports it; returns `false` if the job must not run.
    fn start(&self, id: &JobId) -> bool {
        match self.journal.start(id) {
            Ok(()) => {
                self.send(Body::Started(JobStarted {
                    job: id.to_string(),
                }));
                true
            }
            Err(error) => {
                let error = chain(&error);
                tracing::error!(job = %id, error, "not run");
                self.send(returned(id, failed(1, &error)));
                false
            }
        }
    }

    fn finish(&self, id: &JobId, answer: JobAnswer) {
        if let Err(error) = self.journal.finish(id, answer.clone()) {
            tracing::error!(job = %id, error = chain(&error), "the answer is not durable");
        }
        self.send(returned(id, answer));
    }

    async fn apply(&self, id: JobId, job: Job, stop: &Arc<Stop>) {
        let turn = async {
            let turn = self.states.lock().await;
            let lock = exclusive::take(|holder| {
                tracing::info!(job = %id, holder, "waiting for another run on this host");
            });
            (turn, lock.await)
        };
        let (_turn, lock) = tokio::select! {
            biased;
            reason = stop.requested() => {
                let text = format!("stopped before it started: {reason}");
                return self.send(returned(&id, failed(INTERRUPTED, &text)));
            }
            turn = turn => turn,
        };
        let prepared = lock.map_err(StartError::Lock).and_then(|lock| {
            let low = low_state::parse(&job.low_json, Some(&self.id))?;
            let pending = PendingTriggers::open(Directory(self.config.pending_triggers()))
                .map_err(StartError::PendingTriggers)?;
            Ok((lock, low, pending))
        });
        let (_lock, low, pending) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return self.send(returned(&id, failed(1, &chain(&error)))),
        };
        if !self.start(&id) {
            return;
        }
        tracing::info!(
            job = %id,
            states = low.chunks.len(),
            test = job.test,
            "applying"
        );
        let remote = Arc::new(Remote::new(
            self.channel.clone(),
            &id,
            Store::new(self.config.blobs()),
        ));
        let host = LinuxHost::new(Arc::clone(&remote) as _, Arc::clone(&remote) as _)
            .stoppable(Arc::clone(stop));
        let runner = Runner::new(&host)
            .stoppable(Arc::clone(stop))
            .with_turns(remote)
            .with_pending(Some(pending));
        let total = u32::try_from(low.chunks.len()).unwrap_or(u32::MAX);
        let mut reports = progress::Reports::default();
        let result =
            halite_states::run::run(&low, &runner, RunOptions { test: job.test }, |state| {
                if !reports.wants(state, Instant::now()) {
                    return;
                }
                self.send(Body::Progress(JobProgress {
                    job: id.to_string(),
                    index: u32::try_from(state.index).unwrap_or(u32::MAX),
                    total,
                    state_json: serde_json::to_string(state).unwrap_or_default(),
                }));
            })
            .await;
        let (retcode, error) = match stop.reason() {
            Some(reason) if reason == STOPPING => (INTERRUPTED, format!("interrupted: {reason}")),
            Some(reason) => (1, reason),
            None => (i32::from(!result.succeeded()), String::new()),
        };
        tracing::info!(
            job = %id,
            retcode,
            changed = result.changed(),
            failed = result.failed(),
            "applied"
        );
        let return_json = serde_json::to_string(&result).unwrap_or_else(|_| "null".to_owned());
        self.finish(
            &id,
            JobAnswer {
                retcode,
                return_json,
                error,
            },
        );
        Store::new(self.config.blobs()).prune();
        if !job.test && (result.changed() > 0 || result.failed() > 0) {
            self.refresh_grains().await;
        }
    }
}

fn returned(job: &JobId, answer: JobAnswer) -> Body {
    let JobAnswer {
        retcode,
        return_json,
        error,
    } = answer;
    Body::Returned(JobReturn {
        job: job.to_string(),
        retcode,
        return_json,
        error,
    })
}

fn done(value: &Value) -> JobAnswer {
    JobAnswer {
        retcode: 0,
        return_json: value.to_string(),
        error: String::new(),
    }
}

fn failed(retcode: i32, reason: &str) -> JobAnswer {
    JobAnswer {
        retcode,
        return_json: "null".to_owned(),
        error: reason.to_owned(),
    }
}
