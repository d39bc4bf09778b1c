//! Ends jobs early, for an operator and at their time limit.

use std::sync::Arc;

use halite_api::JobCancellation;
use halite_core::refusal::Refusal;
use halite_proto::ids::{JobId, MinionId};
use halite_proto::v1;
use halite_proto::v1::master_message::Body;
use halite_store::{JobRow, RowState, StoredPart};

use super::Jobs;
use super::failure::succeeded;
use super::open_job::PartEnd;

/// The start of the reason with which parts of a cancelled job end.
const CANCELLED: &str = "cancelled by";

/// Returns whether a part failed because an operator cancelled its job.
#[must_use]
pub fn was_cancelled(row: &JobRow) -> bool {
    !succeeded(row) && row.error.contains(CANCELLED)
}

impl Jobs {
    /// Cancels a job: unsent parts end immediately, and the minions of the others are asked to end
    /// theirs; with `force`, also a package transaction, which an expired job may have left behind.
    /// Returns the minions of each kind. The requested parts end with their returns.
    ///
    /// # Errors
    /// The job does not exist, has ended and `force` is not given, or the store failed.
    pub async fn cancel(
        self: &Arc<Self>,
        job_id: &JobId,
        operator: &str,
        force: bool,
    ) -> Result<JobCancellation, Refusal> {
        let reason = format!("{CANCELLED} {operator}");
        let Some(job) = self.app.store.job(job_id).await? else {
            if self.app.store.run(job_id).await?.is_some() {
                return Err(Refusal::invalid(format!(
                    "{job_id} is an orchestration, not a job; `ctl orchestrate cancel {job_id}` ends it"
                )));
            }
            return Err(Refusal::not_found(format!(
                "there is no job {job_id}; `ctl job list` shows the newest jobs"
            )));
        };
        let pending = self
            .open_jobs()
            .get(job_id)
            .map(|open| open.pending.clone());
        // Without an open part the job has ended, even if that is not recorded yet.
        let Some(pending) = pending.filter(|pending| !pending.is_empty()) else {
            if !force {
                return Err(Refusal::conflict(format!(
                    "job {job_id} has ended; --force asks its minions nevertheless, in case one is still working on it"
                )));
            }
            let mut asked = Vec::new();
            for minion in job.minions.iter().filter(|minion| !minion.is_master()) {
                if self.send_cancel(job_id, minion, &reason, true).await {
                    asked.push(minion.clone());
                }
            }
            return Ok(JobCancellation {
                job: job_id.clone(),
                asked,
                ended: Vec::new(),
                runs: Vec::new(),
            });
        };
        let (mut asked, mut ended, mut runs) = (Vec::new(), Vec::new(), Vec::new());
        let parts = self.app.store.parts(job_id).await?;
        let open = parts.iter().filter(|part| pending.contains(&part.minion));
        let (mut waiting, mut sent): (Vec<_>, Vec<_>) =
            open.partition(|part| part.state == RowState::Queued);
        // Parts that wait for another part come first: its end must not release them.
        let blocked = |part: &&StoredPart| {
            let open = self.open_jobs();
            open.get(job_id)
                .is_some_and(|job| job.is_blocked(&part.minion))
        };
        waiting.sort_by_key(|part| !blocked(part));
        for part in waiting {
            let text = format!("{reason} before it was sent");
            if self
                .end_unsent(job_id, &part.minion, &text, PartEnd::NotStarted)
                .await?
            {
                ended.push(part.minion.clone());
            } else {
                sent.push(part);
            }
        }
        for part in sent {
            if part.minion.is_master() {
                runs.push(part.minion.clone());
            } else if self.send_cancel(job_id, &part.minion, &reason, force).await {
                asked.push(part.minion.clone());
            } else {
                let text = format!(
                    "{reason} while the minion was not connected: if it is still working on the job, that ends by itself"
                );
                self.lost(job_id, &part.minion, &text).await?;
                ended.push(part.minion.clone());
            }
        }
        Ok(JobCancellation {
            job: job_id.clone(),
            asked,
            ended,
            runs,
        })
    }

    /// Ends the parts that wait for a minion whose key has been deleted or replaced. They were made
    /// for the old host, with the secrets that it may know.
    ///
    /// # Errors
    /// The store failed.
    pub async fn end_parts_of(self: &Arc<Self>, minion: &MinionId) -> Result<(), Refusal> {
        let store = &self.app.store;
        for part in store.open_parts(std::slice::from_ref(minion)).await? {
            let text = format!("the key of {minion} was deleted or replaced before its return");
            self.lost(&part.job_id, minion, &text).await?;
        }
        Ok(())
    }

    /// Ends an unsent part; returns `false` if it has been sent or has ended. The lane is held from
    /// the check to the record, so that dispatch cannot send the part in between.
    ///
    /// # Errors
    /// The store failed.
    pub(super) async fn end_unsent(
        self: &Arc<Self>,
        job_id: &JobId,
        minion: &MinionId,
        why: &str,
        end: PartEnd,
    ) -> Result<bool, Refusal> {
        {
            let lane = self.lane(minion);
            let session = lane.lock().await;
            let sent = session.sent.contains(job_id) || session.running.contains(job_id);
            let part = self.app.store.part(job_id, minion).await?;
            if sent || part.is_none_or(|part| part.state != RowState::Queued) {
                return Ok(false);
            }
            let now = self.app.clock.now();
            if !self.app.store.mark_lost(job_id, minion, why, now).await? {
                return Ok(false);
            }
        }
        self.after_loss(job_id, minion, why, end).await?;
        Ok(true)
    }

    /// Asks a minion to end a job; returns `false` if the minion is not connected.
    pub(super) async fn send_cancel(
        &self,
        job_id: &JobId,
        minion: &MinionId,
        reason: &str,
        force: bool,
    ) -> bool {
        let message = v1::MasterMessage {
            body: Some(Body::Cancel(v1::Cancel {
                job: job_id.to_string(),
                reason: reason.to_owned(),
                force,
            })),
        };
        self.app.connections.send(minion, message).await.is_ok()
    }
}
