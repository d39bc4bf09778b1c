//! Giving up: the clock's part of the job engine.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Jobs;
use super::core::{Expiry, expired};
use crate::clock::rfc3339;
use crate::names::MASTER;
use crate::refusal::Refusal;
use crate::store::{Answer, JobRow, Millis};

/// How often open jobs are looked at. Nothing is read while there are none.
const EVERY: Duration = Duration::from_millis(500);

impl Jobs {
    /// Looks after open jobs for as long as the engine lives.
    pub(super) fn watch_expiry(self: &Arc<Self>) {
        let jobs: Weak<Self> = Arc::downgrade(self);
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval(EVERY);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let Some(jobs) = jobs.upgrade() else { return };
                if let Err(error) = jobs.expire_parts().await {
                    tracing::error!(%error, "open jobs could not be looked after");
                }
            }
        });
    }

    /// Gives up what is over, once.
    ///
    /// # Errors
    /// The store failed.
    pub async fn expire_parts(self: &Arc<Self>) -> Result<(), Refusal> {
        let now = self.app.clock.now();
        let minions: std::collections::BTreeSet<String> = self
            .open_jobs()
            .values()
            .flat_map(|job| job.ready_since.keys().cloned())
            .collect();
        for minion in minions {
            for (row, why) in self.over(&minion, now).await? {
                let text = self.reason(&row, why).await?;
                if why == Expiry::Interrupted {
                    let answer = Answer {
                        retcode: 2,
                        return_json: "null".into(),
                        error: text,
                        when: now,
                    };
                    self.returned(&row.jid, &minion, answer).await?;
                } else {
                    self.lost(&row.jid, &minion, &text).await?;
                }
            }
        }
        Ok(())
    }

    async fn over(&self, minion: &str, now: Millis) -> Result<Vec<(JobRow, Expiry)>, Refusal> {
        if !self.might_be_over(minion, now).await {
            return Ok(Vec::new());
        }
        let lane = self.lane(minion);
        let session = lane.lock().await.clone();
        let rows = self.app.store.open_rows(minion).await?;
        let known = self.known_rows(&rows);
        let open = self.open_jobs();
        let mut over = Vec::new();
        for row in rows {
            let Some(known) = known.iter().find(|known| known.jid == row.jid) else {
                continue;
            };
            let Some(job) = open.get(&row.jid) else {
                continue;
            };
            let since = job.ready_since.get(minion).copied().unwrap_or(now);
            if let Some(why) = expired(known, &session, since, job.deadline, job.limits, now) {
                over.push((row, why));
            }
        }
        Ok(over)
    }

    /// Spares the store the question while a connected minion works within its time.
    async fn might_be_over(&self, minion: &str, now: Millis) -> bool {
        let lane = self.lane(minion);
        let session = lane.lock().await.clone();
        let open = self.open_jobs();
        let mut parts = open.iter().filter(|(_, job)| job.pending.contains(minion));
        parts.any(|(jid, job)| {
            !session.connected
                || job.deadline.is_some_and(|deadline| now >= deadline)
                || (!session.running.contains(jid) && !session.sent.contains(jid))
        })
    }

    /// Why, for people: which minion, what happened, what to do.
    async fn reason(&self, row: &JobRow, why: Expiry) -> Result<String, Refusal> {
        let minion = &row.minion;
        let seen = match self.app.store.facts(minion).await? {
            Some(facts) if minion != MASTER => {
                format!(" (last heard of {})", rfc3339(facts.last_seen))
            }
            _ => String::new(),
        };
        Ok(match why {
            Expiry::NotConnected => format!(
                "{minion} is not connected{seen}: is the host up, and does halite-minion run there? (`systemctl status halite-minion`)"
            ),
            Expiry::Disconnected => format!(
                "{minion} went away in the middle of the job{seen} and did not come back; what it did so far is in its journal"
            ),
            Expiry::TimedOut => format!(
                "{minion} has not answered within the job's time; it may still be at it: `ctl job show {}` shows a late answer",
                row.jid
            ),
            Expiry::Interrupted => format!(
                "{minion} had begun the job and knows nothing of it any more: its journal was lost; run the job again"
            ),
        })
    }
}
