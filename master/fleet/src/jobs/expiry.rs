//! Ends expired parts of jobs.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _, stream};
use halite_core::clock::{Steady, rfc3339};
use halite_core::names::MASTER;
use halite_core::refusal::Refusal;
use halite_proto::ids::{JobId, MinionId};
use halite_store::{OpenPart, RowState};

use super::core::{Expiry, comes_first, expired};
use super::open_job::{OpenJob, PartEnd};
use super::{CONCURRENT, Jobs};

/// The error in the return of a job that exceeded its time limit.
const TIME_LIMIT: &str = "the job's time limit has passed";

/// The interval at which open jobs are checked. Without open jobs the store is not read.
const EVERY: Duration = Duration::from_millis(500);

impl Jobs {
    /// Checks open jobs in the background for as long as `Jobs` exists.
    pub(super) fn watch_expiry(self: &Arc<Self>) {
        let jobs: Weak<Self> = Arc::downgrade(self);
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval(EVERY);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let Some(jobs) = jobs.upgrade() else { return };
                match AssertUnwindSafe(jobs.expire_parts()).catch_unwind().await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::error!(%error, "cannot check open jobs"),
                    // The panic itself is on standard error.
                    Err(_) => tracing::error!("the check of open jobs panicked; it continues"),
                }
                jobs.rounds.send_modify(|rounds| *rounds += 1);
            }
        });
    }

    /// Returns once dispatch has inspected the jobs of the target `master` and a round of the check
    /// of open jobs has ended.
    ///
    /// # Errors
    /// The store failed.
    pub async fn probe(self: &Arc<Self>) -> Result<(), Refusal> {
        let mut rounds = self.rounds.subscribe();
        self.dispatch(&MASTER).await?;
        rounds
            .changed()
            .await
            .map_err(|_| Refusal::internal("the master is stopping"))
    }

    /// Ends the expired parts of all open jobs, once, and retries everything that failed with the
    /// store.
    ///
    /// # Errors
    /// The store failed.
    pub async fn expire_parts(self: &Arc<Self>) -> Result<(), Refusal> {
        // If it cannot look, the reason is in the isolation of this master.
        let _ = self.look_if_new().await;
        self.ask_for_held().await;
        let ended = self.end_what_is_over().await;
        let sent = self.dispatch_unsent().await;
        let now = self.app.clock.steady();
        let minions: std::collections::BTreeSet<MinionId> = self
            .open_jobs()
            .values()
            .flat_map(|job| job.pending.iter().filter(|minion| !job.is_blocked(minion)))
            .cloned()
            .collect();
        // In parallel: one minion that does not read must not delay the others.
        let checked: Vec<Result<(), Refusal>> = stream::iter(minions)
            .map(|minion| async move { self.expire_parts_of(&minion, now).await })
            .buffer_unordered(CONCURRENT)
            .collect()
            .await;
        let checked: Result<(), Refusal> = checked.into_iter().collect();
        ended.and(sent).and(checked)
    }

    /// Ends parts that will not start, and jobs without an open part. Usually the end of a part
    /// does this; here it is retried after the store failed.
    async fn end_what_is_over(self: &Arc<Self>) -> Result<(), Refusal> {
        let job_ids: Vec<JobId> = {
            let open = self.open_jobs();
            let is_over = |job: &OpenJob| job.pending.is_empty() || !job.not_started().is_empty();
            let over = open.iter().filter(|(_, job)| is_over(job));
            over.map(|(job_id, _)| job_id.clone()).collect()
        };
        let mut outcome = Ok(());
        for job_id in &job_ids {
            outcome = outcome.and(self.end_not_started(job_id).await);
            outcome = outcome.and(self.finish_if_done(job_id).await);
        }
        outcome
    }

    async fn expire_parts_of(
        self: &Arc<Self>,
        minion: &MinionId,
        now: Steady,
    ) -> Result<(), Refusal> {
        for (row, unsent, why) in self.expired_rows(minion, now).await? {
            if why == Expiry::OverTime {
                self.end_over_time(&row).await;
                continue;
            }
            let text = self.reason(&row, unsent, why).await?;
            if unsent {
                // A part that is being sent at this moment is checked again soon.
                self.end_unsent(&row.job_id, minion, &text, PartEnd::Failed)
                    .await?;
                continue;
            }
            if why == Expiry::Interrupted {
                self.interrupted(&row.job_id, minion, &text).await?;
            } else {
                self.lost(&row.job_id, minion, &text).await?;
            }
        }
        Ok(())
    }

    /// Asks the minion to end a part that exceeded its time limit.
    async fn end_over_time(&self, row: &OpenPart) {
        {
            let lane = self.lane(&row.minion);
            let mut session = lane.lock().await;
            if !self.is_pending(&row.job_id, &row.minion) {
                return;
            }
            session.cancelled.insert(row.job_id.clone());
        }
        tracing::info!(job = %row.job_id, minion = %row.minion, "a part exceeded its time limit: asking the minion to end it");
        self.send_cancel(&row.job_id, &row.minion, TIME_LIMIT, false)
            .await;
    }

    /// The expired parts of a minion, and whether each is unsent.
    async fn expired_rows(
        &self,
        minion: &MinionId,
        now: Steady,
    ) -> Result<Vec<(OpenPart, bool, Expiry)>, Refusal> {
        if !self.might_be_expired(minion, now).await {
            return Ok(Vec::new());
        }
        let store = &self.app.store;
        let rows = store.open_parts(std::slice::from_ref(minion)).await?;
        // Lock after reading the store: a part that is sent in the meantime would count as
        // interrupted. One that ends leaves the session, but is then no longer pending.
        let lane = self.lane(minion);
        let session = lane.lock().await;
        let known = self.known_rows(&rows);
        let open = self.open_jobs();
        let mut found = Vec::new();
        for row in rows {
            let Some(known) = known.iter().find(|known| known.job_id == row.job_id) else {
                continue;
            };
            let Some(job) = open.get(&row.job_id) else {
                continue;
            };
            let since = job.ready_since.get(minion).copied().unwrap_or(now);
            if let Some(why) = expired(known, &session, since, job.deadline, job.limits, now) {
                let unsent = row.state == RowState::Queued && !session.sent.contains(&row.job_id);
                found.push((row, unsent, why));
            }
        }
        Ok(found)
    }

    /// Returns `false` while a connected minion works within its time limit, which saves a query of
    /// the store.
    async fn might_be_expired(&self, minion: &MinionId, now: Steady) -> bool {
        let lane = self.lane(minion);
        let session = lane.lock().await;
        let open = self.open_jobs();
        let mut parts = open.iter().filter(|(_, job)| job.pending.contains(minion));
        parts.any(|(job_id, job)| {
            !session.connected
                || job.deadline.is_some_and(|deadline| now >= deadline)
                || (!session.running.contains(job_id) && !session.sent.contains(job_id))
        })
    }

    /// The reason, for people: the minion, the event and the remedy.
    async fn reason(&self, row: &OpenPart, unsent: bool, why: Expiry) -> Result<String, Refusal> {
        let minion = &row.minion;
        let seen = match self.app.store.facts(minion).await? {
            Some(facts) if !minion.is_master() => {
                format!(" (last seen {})", rfc3339(facts.last_seen))
            }
            _ => String::new(),
        };
        Ok(match why {
            Expiry::NotConnected => format!(
                "{minion} is not connected{seen}: check that the host is up and that halite-minion runs there (`systemctl status halite-minion`)"
            ),
            Expiry::Disconnected => format!(
                "{minion} disconnected during the job{seen} and did not reconnect; its journal has what it did until then"
            ),
            Expiry::OverTime => TIME_LIMIT.to_owned(),
            Expiry::TimedOut if unsent => {
                let store = &self.app.store;
                let parts = store.open_parts(std::slice::from_ref(minion)).await?;
                let late = format!("{minion} has not received the job within its timeout");
                match comes_first(&parts, row) {
                    Some(first) => format!(
                        "{late}: the job {first} comes first there, and one job at a time applies states; `ctl job show {first}` shows \
                         its parts, `ctl job cancel {first}` ends it; then run this one again"
                    ),
                    None => format!("{late}; run it again"),
                }
            }
            Expiry::TimedOut => format!(
                "{minion} has not returned within the job's timeout; it may still be running the job: `ctl job show {job_id}` shows a late return. A package transaction is not cut off: `ctl job cancel {job_id} --force` ends it",
                job_id = row.job_id
            ),
            Expiry::Interrupted => format!(
                "{minion} had started the job and no longer knows it: its journal was lost; run the job again"
            ),
        })
    }
}
