//! Sends jobs: [`super::core::due`] decides which; secrets are in the message only.

use std::collections::BTreeSet;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use halite_core::names::MASTER;
use halite_core::refusal::Refusal;
use halite_proto::PROTOCOL;
use halite_proto::ids::{JobId, MinionId};
use halite_proto::v1;
use halite_proto::v1::master_message::Body;
use halite_store::{Answer, Job, JobRow, RowState};
use serde_json::{Value, json};

use super::Jobs;
use super::core::{OpenRow, Session, due};
use super::function::{Function, MINION_SLS, Place, RENEW};

/// The pause between two checks whether the target `master` has finished.
const OWN_PART: Duration = Duration::from_millis(50);

/// Returns whether a job only brings a host its minion.
fn is_update_of_minion(job: &Job) -> bool {
    let args: Value = serde_json::from_str(&job.args_json).unwrap_or_default();
    job.function == "state.apply" && args["sls"] == json!([MINION_SLS])
}

impl Jobs {
    /// Takes the hello of a minion: notes what it runs and which returns it will hand in, and sends
    /// what is due.
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
            for jid in running {
                self.app.store.mark_started(&jid, minion, now).await?;
            }
        }
        self.dispatch(minion).await
    }

    /// Those of the jobs in which a part of this minion is open, each once.
    fn open_of(&self, minion: &MinionId, named: &[JobId]) -> BTreeSet<JobId> {
        let open = self.open_jobs();
        named
            .iter()
            .filter(|jid| {
                open.get(*jid)
                    .is_some_and(|job| job.pending.contains(minion))
            })
            .cloned()
            .collect()
    }

    /// Notes that a stream of a minion ended, unless a newer one has replaced it.
    pub async fn disconnected(&self, minion: &MinionId) {
        let lane = self.lane(minion);
        let mut session = lane.lock().await;
        if !self.app.connections.is_connected(minion) {
            session.disconnect(self.app.clock.steady());
        }
    }

    /// Starts no more parts of the target `master`, which ends with this process, and waits for the
    /// running ones. The next process finds the others in the store.
    pub async fn finish_own(&self) {
        let lane = self.lane(&MASTER);
        lane.lock().await.connected = false;
        while !lane.lock().await.running.is_empty() {
            tokio::time::sleep(OWN_PART).await;
        }
    }

    /// Sends a minion the jobs that are due.
    ///
    /// # Errors
    /// The store failed. The check of open jobs tries again.
    pub async fn dispatch(self: &Arc<Self>, minion: &MinionId) -> Result<(), Refusal> {
        let sent = self.send_due(minion).await;
        if sent.is_err() {
            self.unsent().insert(minion.clone());
        }
        sent
    }

    /// Sends again what the store has kept from being sent.
    ///
    /// # Errors
    /// The store failed once more.
    pub(super) async fn dispatch_unsent(self: &Arc<Self>) -> Result<(), Refusal> {
        let minions = std::mem::take(&mut *self.unsent());
        let mut outcome = Ok(());
        for minion in &minions {
            outcome = outcome.and(self.dispatch(minion).await);
        }
        outcome
    }

    fn unsent(&self) -> MutexGuard<'_, BTreeSet<MinionId>> {
        // Nothing panics while holding the lock; a poisoned one still holds a valid set.
        self.unsent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn send_due(self: &Arc<Self>, minion: &MinionId) -> Result<(), Refusal> {
        // The lane is held until all is queued on the stream, so that nothing is sent twice in one
        // session.
        let lane = self.lane(minion);
        let mut session = lane.lock().await;
        // Most returns leave nothing to send: the store need not be asked for that.
        if !session.connected || !self.has_open_part(minion) {
            return Ok(());
        }
        let rows = self.app.store.open_rows(minion).await?;
        let mut known = self.known_rows(&rows);
        for row in &mut known {
            if row.state == RowState::Queued && self.is_withheld(&row.jid) {
                // It keeps no place from a prediction. The check of open jobs tries again.
                row.blocked = true;
                self.unsent().insert(minion.clone());
            }
        }
        for jid in due(&known, &session) {
            let Some(row) = rows.iter().find(|row| row.jid == jid) else {
                continue;
            };
            if !self.send_part(&mut session, row).await? {
                break;
            }
        }
        Ok(())
    }

    /// Returns whether parts of a job that were never sent wait, because this master is isolated. What was sent may have
    /// begun, and is sent again as ever.
    fn is_withheld(&self, jid: &JobId) -> bool {
        let open = self.open_jobs();
        let changes = open
            .get(jid)
            .is_some_and(|open| open.function.changes() && !open.job.test);
        changes && self.app.isolation.reason().is_some()
    }

    /// Sends a minion its part of a query that was made just now. Memory knows all of it: a query
    /// waits for no other job, and its row has nothing but its name. So the store is not asked,
    /// which would be once for each minion.
    ///
    /// # Errors
    /// The store failed.
    pub(super) async fn dispatch_query(
        self: &Arc<Self>,
        jid: &JobId,
        minion: &MinionId,
    ) -> Result<(), Refusal> {
        let lane = self.lane(minion);
        let mut session = lane.lock().await;
        let is_ready = self
            .open_jobs()
            .get(jid)
            .is_some_and(|job| job.pending.contains(minion) && !job.is_blocked(minion));
        let is_sent = session.sent.contains(jid) || session.running.contains(jid);
        if session.connected && is_ready && !is_sent {
            let row = JobRow::queued(jid, minion, None);
            self.send_part(&mut session, &row).await?;
        }
        Ok(())
    }

    /// Queues a part on the stream of its minion; false if the minion is not connected any more.
    async fn send_part(
        self: &Arc<Self>,
        session: &mut Session,
        row: &JobRow,
    ) -> Result<bool, Refusal> {
        let (jid, minion) = (&row.jid, &row.minion);
        let job = self.open_jobs().get(jid).map(|open| Arc::clone(&open.job));
        let Some(job) = job else { return Ok(true) };
        let message = match self.message(&job, row).await {
            Ok(message) => message,
            Err(refusal) => {
                session.sent.insert(jid.clone());
                // Not sent, and trying again would change nothing: the refusal is the return.
                let when = self.app.clock.now();
                let answer = Answer {
                    retcode: 1,
                    return_json: "null".into(),
                    error: refusal.message,
                    when,
                };
                let jobs = Arc::clone(self);
                let (jid, minion) = (jid.clone(), minion.clone());
                // In a task of its own, because it takes the lane.
                tokio::spawn(async move { jobs.store_answer(&jid, &minion, answer).await });
                return Ok(true);
            }
        };
        // A query is sent again when it has no return, so the store need not know that it was
        // sent.
        if !Function::find(&job.function)?.is_query() {
            self.app
                .store
                .mark_sent(jid, minion, self.app.clock.now())
                .await?;
        }
        // Only now: what the store could not note is sent later.
        session.sent.insert(jid.clone());
        tracing::debug!(job = %jid, %minion, "sending");
        if minion.is_master() {
            self.run_here(jid.clone(), message);
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

    /// Refuses a change by a minion of an earlier protocol, other than its own update: it knows an epoch as a number alone, so
    /// it would obey two masters that have the same one. A step of an upgrade that takes its host to another bundle is that
    /// update, too: no other bundle has the new minion.
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

    fn has_open_part(&self, minion: &MinionId) -> bool {
        let open = self.open_jobs();
        open.values().any(|job| job.pending.contains(minion))
    }

    /// The rows of jobs that are open in memory; the others are being made or ended right now.
    pub(super) fn known_rows(&self, rows: &[JobRow]) -> Vec<OpenRow> {
        let open = self.open_jobs();
        let known = |row: &JobRow| {
            let job = open.get(&row.jid)?;
            job.pending.contains(&row.minion).then(|| OpenRow {
                jid: row.jid.clone(),
                exclusive: job.function.place == Place::States,
                state: row.state,
                stoppable: !row.minion.is_master() && !job.function.is_query(),
                blocked: job.is_blocked(&row.minion),
            })
        };
        rows.iter().filter_map(known).collect()
    }

    /// The message to a minion; the only form of a job that contains secrets.
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
        // A minion applies a low state, whatever it was compiled from.
        let function = match job.function.as_str() {
            "state.highstate" | RENEW => "state.apply",
            other => other,
        };
        Ok(v1::Job {
            job: job.jid.to_string(),
            function: function.to_owned(),
            args_json: job.args_json.clone(),
            low_json,
            test: job.test,
        })
    }
}
