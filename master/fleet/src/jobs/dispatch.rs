//! Sends jobs: [`super::core::due`] selects them; only the message contains secrets.

use std::collections::BTreeSet;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use halite_core::names::MASTER;
use halite_core::refusal::Refusal;
use halite_proto::PROTOCOL;
use halite_proto::ids::{JobId, MinionId};
use halite_proto::v1;
use halite_proto::v1::master_message::Body;
use halite_store::{Job, JobRow, OpenPart, RowState, StoredAnswer};
use serde_json::{Value, json};

use super::Jobs;
use super::core::{OpenRow, Session, due};
use super::function::{Function, FunctionSite, MINION_SLS, RENEW};

/// The interval between two checks whether the target `master` has finished.
const OWN_PART: Duration = Duration::from_millis(50);

/// Returns whether a job only installs a host's minion.
fn is_update_of_minion(job: &Job) -> bool {
    let args: Value = serde_json::from_str(&job.args_json).unwrap_or_default();
    job.function == "state.apply" && args["sls"] == json!([MINION_SLS])
}

impl Jobs {
    /// Handles the hello of a minion: records its running jobs and its announced returns, and sends
    /// the due jobs.
    ///
    /// # Errors
    /// The store failed.
    pub async fn connected(
        self: &Arc<Self>,
        minion: &MinionId,
        running: &[JobId],
        unstored: Option<&[JobId]>,
    ) -> Result<(), Refusal> {
        let now = self.app.clock.now();
        {
            let lane = self.lane(minion);
            let mut session = lane.lock().await;
            // The minion may name any number of jobs: those that are not open cost nothing.
            let running = self.open_of(minion, running);
            let unstored = unstored.map(|named| self.open_of(minion, named));
            session.connect(running.iter().cloned(), unstored, self.app.clock.steady());
            for job_id in running {
                self.app.store.mark_started(&job_id, minion, now).await?;
                self.presume_out(minion, &job_id);
            }
        }
        self.dispatch(minion).await
    }

    /// Selects the jobs in which a part of this minion is open, each once.
    fn open_of(&self, minion: &MinionId, named: &[JobId]) -> BTreeSet<JobId> {
        let open = self.open_jobs();
        named
            .iter()
            .filter(|job_id| {
                open.get(*job_id)
                    .is_some_and(|job| job.pending.contains(minion))
            })
            .cloned()
            .collect()
    }

    /// Records that a stream of a minion ended, unless a newer one has replaced it.
    pub async fn disconnected(&self, minion: &MinionId) {
        let lane = self.lane(minion);
        let mut session = lane.lock().await;
        if !self.app.connections.is_connected(minion) {
            session.disconnect(self.app.clock.steady());
        }
    }

    /// Starts no more parts of the target `master`, whose work ends with this process, and waits
    /// for the running ones. The next process finds the others in the store.
    pub async fn finish_own(&self) {
        let lane = self.lane(&MASTER);
        lane.lock().await.connected = false;
        while !lane.lock().await.running.is_empty() {
            tokio::time::sleep(OWN_PART).await;
        }
    }

    /// Sends a minion its due jobs.
    ///
    /// # Errors
    /// The store failed. The check of open jobs retries.
    pub async fn dispatch(self: &Arc<Self>, minion: &MinionId) -> Result<(), Refusal> {
        let sent = self.send_due(minion).await;
        if sent.is_err() {
            self.unsent().insert(minion.clone());
        }
        sent
    }

    /// Sends the parts that could not be sent before because the store failed.
    ///
    /// # Errors
    /// The store failed again.
    pub(super) async fn dispatch_unsent(self: &Arc<Self>) -> Result<(), Refusal> {
        let minions = std::mem::take(&mut *self.unsent());
        let mut outcome = Ok(());
        for minion in &minions {
            outcome = outcome.and(self.dispatch(minion).await);
        }
        outcome
    }

    fn unsent(&self) -> MutexGuard<'_, BTreeSet<MinionId>> {
        // No code panics while it holds the lock; a poisoned lock still holds a valid set.
        self.unsent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn send_due(self: &Arc<Self>, minion: &MinionId) -> Result<(), Refusal> {
        // The lane is held until all parts are queued on the stream, so that nothing is sent twice
        // in one session.
        let lane = self.lane(minion);
        let mut session = lane.lock().await;
        // Most returns leave nothing to send: avoid a query to the store.
        if !session.connected || !self.has_open_part(minion) {
            return Ok(());
        }
        let store = &self.app.store;
        let parts = store.open_parts(std::slice::from_ref(minion)).await?;
        let mut known = self.known_rows(&parts);
        for row in &mut known {
            if row.state == RowState::Queued && self.is_withheld(&row.job_id) {
                // It must not block a test run. The check of open jobs retries.
                row.blocked = true;
                self.unsent().insert(minion.clone());
            }
        }
        for job_id in due(&known, &session) {
            // Only now: most parts wait, and low states are large.
            let Some(row) = store.row(&job_id, minion).await? else {
                continue;
            };
            if !self.send_part(&mut session, &row).await? {
                break;
            }
        }
        Ok(())
    }

    /// Returns whether unsent parts of a job wait because this master is isolated. Sent parts may
    /// have started, and are sent again as usual.
    fn is_withheld(&self, job_id: &JobId) -> bool {
        let open = self.open_jobs();
        let changes = open
            .get(job_id)
            .is_some_and(|open| open.function.changes() && !open.job.test);
        changes && self.app.isolation.reason().is_some()
    }

    /// Sends a minion its part of a query that was just created. All of it is known in memory: a
    /// query waits for no other job, and its row contains only its name. So the store is not read,
    /// which would happen once for each minion.
    ///
    /// # Errors
    /// The store failed.
    pub(super) async fn dispatch_query(
        self: &Arc<Self>,
        job_id: &JobId,
        minion: &MinionId,
    ) -> Result<(), Refusal> {
        let lane = self.lane(minion);
        let mut session = lane.lock().await;
        let is_ready = self
            .open_jobs()
            .get(job_id)
            .is_some_and(|job| job.pending.contains(minion) && !job.is_blocked(minion));
        let is_sent = session.sent.contains(job_id) || session.running.contains(job_id);
        if session.connected && is_ready && !is_sent {
            let row = JobRow::queued(job_id, minion, None);
            self.send_part(&mut session, &row).await?;
        }
        Ok(())
    }

    /// Queues a part on the stream of its minion; returns `false` if the minion is no longer
    /// connected.
    async fn send_part(
        self: &Arc<Self>,
        session: &mut Session,
        row: &JobRow,
    ) -> Result<bool, Refusal> {
        let (job_id, minion) = (&row.job_id, &row.minion);
        let job = self
            .open_jobs()
            .get(job_id)
            .map(|open| Arc::clone(&open.job));
        let Some(job) = job else { return Ok(true) };
        let message = match self.message(&job, row).await {
            Ok(message) => message,
            Err(refusal) => {
                session.sent.insert(job_id.clone());
                // The part cannot be sent, and a retry would change nothing: the refusal becomes
                // the return.
                let when = self.app.clock.now();
                let answer = StoredAnswer {
                    retcode: 1,
                    return_json: "null".into(),
                    error: refusal.message,
                    when,
                };
                let jobs = Arc::clone(self);
                let (job_id, minion) = (job_id.clone(), minion.clone());
                // A separate task, because it takes the lane.
                tokio::spawn(async move { jobs.store_answer(&job_id, &minion, answer).await });
                return Ok(true);
            }
        };
        // A query is sent again while it has no return, so the store need not record that it was
        // sent.
        if !Function::find(&job.function)?.is_query() {
            self.app
                .store
                .mark_sent(job_id, minion, self.app.clock.now())
                .await?;
        }
        // Only now: a part that the store could not record is sent later.
        session.sent.insert(job_id.clone());
        tracing::debug!(job = %job_id, %minion, "sending");
        if minion.is_master() {
            self.run_here(job_id.clone(), message);
            return Ok(true);
        }
        let message = v1::MasterMessage {
            body: Some(Body::Job(message)),
        };
        if self.app.connections.send(minion, message).await.is_err() {
            session.disconnect(self.app.clock.steady());
            return Ok(false);
        }
        Ok(true)
    }

    /// Refuses a change by a minion of an earlier protocol, except its own update: it knows an
    /// epoch as a mere number, so it would obey two masters with the same one. A step of an upgrade
    /// that moves its host to another bundle counts as that update, because no other bundle has the
    /// new minion.
    async fn check_protocol(&self, job: &Job, row: &JobRow) -> Result<(), Refusal> {
        let minion = &row.minion;
        let protocol = self.app.connections.protocol(minion).unwrap_or(PROTOCOL);
        let changes = Function::find(&job.function)?.changes() && !job.test;
        if protocol >= PROTOCOL || !changes || is_update_of_minion(job) {
            return Ok(());
        }
        let snapshot = self.declarations.in_force().await?;
        let has = snapshot.bundle_for(minion).ok();
        let from = row.bundle.as_ref().or(job.bundle.as_ref());
        if from.is_some_and(|from| has.is_some_and(|has| *from != has.version)) {
            return Ok(());
        }
        Err(Refusal::conflict(format!(
            "cannot run {} on {minion}: its minion speaks the protocol {protocol} of an earlier version and must be updated first; \
             `ctl highstate {minion}` updates it, or says why it cannot",
            job.function
        )))
    }

    /// Returns whether a minion's part of a job has not ended. While a lane is held, a part that is
    /// pending is still to be forgotten by its session.
    pub(super) fn is_pending(&self, job_id: &JobId, minion: &MinionId) -> bool {
        let open = self.open_jobs();
        open.get(job_id)
            .is_some_and(|job| job.pending.contains(minion))
    }

    fn has_open_part(&self, minion: &MinionId) -> bool {
        let open = self.open_jobs();
        open.values().any(|job| job.pending.contains(minion))
    }

    /// The rows of jobs that are open in memory; other jobs are being created or ended right now.
    pub(super) fn known_rows(&self, parts: &[OpenPart]) -> Vec<OpenRow> {
        let open = self.open_jobs();
        let known = |row: &OpenPart| {
            let job = open.get(&row.job_id)?;
            job.pending.contains(&row.minion).then(|| OpenRow {
                job_id: row.job_id.clone(),
                exclusive: job.function.place == FunctionSite::States,
                state: row.state,
                stoppable: !row.minion.is_master() && !job.function.is_query(),
                blocked: job.is_blocked(&row.minion),
            })
        };
        parts.iter().filter_map(known).collect()
    }

    /// The message to a minion, which is the only form of a job that contains secrets.
    async fn message(&self, job: &Job, row: &JobRow) -> Result<v1::Job, Refusal> {
        self.check_protocol(job, row).await?;
        let mut low_json = String::new();
        if let Some(stored) = &row.low_json {
            let mut low: Value = serde_json::from_str(stored).map_err(|error| {
                Refusal::internal(format!("cannot read the stored low state: {error}"))
            })?;
            self.declarations.fill(&row.minion, &mut low).await?;
            low_json = low.to_string();
        }
        // A minion applies a low state, whatever its source.
        let function = match job.function.as_str() {
            "state.highstate" | RENEW => "state.apply",
            other => other,
        };
        Ok(v1::Job {
            job: job.job_id.to_string(),
            function: function.to_owned(),
            args_json: job.args_json.clone(),
            low_json,
            test: job.test,
        })
    }
}
