//! Sending: what [`super::core::due`] decides, with secrets filled in for the moment.

use std::sync::Arc;
use std::time::Duration;

use halite_proto::v1;
use halite_proto::v1::master_message::Body;
use serde_json::Value;

use super::Jobs;
use super::core::{OpenRow, due};
use super::function::{Function, Place};
use crate::names::MASTER;
use crate::redact::Redactor;
use crate::refusal::Refusal;
use crate::store::{Answer, Job, JobRow};

/// Between two looks at whether the target `master` is done.
const OWN_PART: Duration = Duration::from_millis(50);

impl Jobs {
    /// A minion has said hello: what it does not know is sent, what it runs is noted.
    ///
    /// # Errors
    /// The store failed.
    pub async fn connected(
        self: &Arc<Self>,
        minion: &str,
        running: &[String],
    ) -> Result<(), Refusal> {
        let now = self.app.clock.now();
        {
            let lane = self.lane(minion);
            let mut session = lane.lock().await;
            session.connect(running.iter().cloned(), now);
            for jid in running {
                self.app.store.mark_started(jid, minion, now).await?;
            }
        }
        self.dispatch(minion).await
    }

    /// A stream of a minion ended; nothing happens when a newer one has taken its place.
    pub async fn disconnected(&self, minion: &str) {
        let lane = self.lane(minion);
        let mut session = lane.lock().await;
        if !self.app.connections.is_connected(minion) {
            session.disconnect(self.app.clock.now());
        }
    }

    /// Begins nothing more of the target `master`, which ends with this process, and waits for what
    /// runs of it. What was not begun is found in the store by the next one.
    pub async fn finish_own(&self) {
        let lane = self.lane(MASTER);
        lane.lock().await.connected = false;
        while !lane.lock().await.running.is_empty() {
            tokio::time::sleep(OWN_PART).await;
        }
    }

    /// Sends a minion what is due.
    ///
    /// # Errors
    /// The store failed.
    pub(super) async fn dispatch(self: &Arc<Self>, minion: &str) -> Result<(), Refusal> {
        // The lane is held until all is queued on the stream, so that nothing is sent twice in one
        // session.
        let lane = self.lane(minion);
        let mut session = lane.lock().await;
        if !session.connected {
            return Ok(());
        }
        let rows = self.app.store.open_rows(minion).await?;
        let known = self.known_rows(&rows);
        for jid in due(&known, &session) {
            let Some(row) = rows.iter().find(|row| row.jid == jid) else {
                continue;
            };
            let Some(job) = self.app.store.job(&jid).await? else {
                continue;
            };
            session.sent.insert(jid.clone());
            let message = match self.message(&job, row).await {
                Ok(message) => message,
                Err(refusal) => {
                    // Not sent, and nothing would change by trying again: the row has its answer.
                    let when = self.app.clock.now();
                    let answer = Answer {
                        retcode: 1,
                        return_json: "null".into(),
                        error: refusal.message,
                        when,
                    };
                    let jobs = Arc::clone(self);
                    let minion = minion.to_owned();
                    // Not from here: it takes the lane.
                    tokio::spawn(async move {
                        if let Err(error) = jobs.returned(&jid, &minion, answer).await {
                            tracing::error!(job = %jid, minion, %error, "a part could not be answered");
                        }
                    });
                    continue;
                }
            };
            // A question is sent again when it was not answered; that it was sent is worth no
            // write.
            if !Function::find(&job.function)?.is_question() {
                self.app
                    .store
                    .mark_sent(&jid, minion, self.app.clock.now())
                    .await?;
            }
            tracing::debug!(job = %jid, minion, "sending");
            if minion == MASTER {
                self.run_here(job, message);
            } else {
                let message = v1::MasterMessage {
                    body: Some(Body::Job(message)),
                };
                if self.app.connections.send(minion, message).await.is_err() {
                    session.disconnect(self.app.clock.now());
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The rows of jobs that are known to be open; the others are being made or ended at this
    /// moment.
    pub(super) fn known_rows(&self, rows: &[JobRow]) -> Vec<OpenRow> {
        let open = self.open_jobs();
        let known = |row: &JobRow| {
            let job = open.get(&row.jid)?;
            job.pending.contains(&row.minion).then(|| OpenRow {
                jid: row.jid.clone(),
                exclusive: job.function.place == Place::States,
                state: row.state,
                blocked: job.is_blocked(&row.minion),
            })
        };
        rows.iter().filter_map(known).collect()
    }

    /// What goes over the wire; the only place where a job holds real secrets.
    async fn message(&self, job: &Job, row: &JobRow) -> Result<v1::Job, Refusal> {
        let mut low_json = String::new();
        if let Some(stored) = &row.low_json {
            let mut low: Value = serde_json::from_str(stored).map_err(|error| {
                Refusal::internal(format!("the stored low state is malformed: {error}"))
            })?;
            self.declarations.load()?.fill(&row.minion, &mut low)?;
            low_json = low.to_string();
        }
        let function = if job.function == "state.highstate" {
            "state.apply"
        } else {
            job.function.as_str()
        };
        Ok(v1::Job {
            job: job.jid.clone(),
            function: function.to_owned(),
            args_json: job.args_json.clone(),
            low_json,
            test: job.test,
        })
    }

    /// What removes this minion's secrets from its answers. Without a readable declaration there is
    /// nothing to compare with, and nothing was sent either.
    pub(super) fn redactor(&self, minion: &str) -> Arc<Redactor> {
        match self.declarations.load() {
            Ok(snapshot) => snapshot.redactor(minion),
            Err(_) => Arc::default(),
        }
    }
}
