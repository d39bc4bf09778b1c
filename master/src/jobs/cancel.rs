//! Ends jobs early, for the operator and at their time limit.

use std::sync::Arc;

use halite_proto::ids::{JobId, MinionId};
use halite_proto::v1;
use halite_proto::v1::master_message::Body;
use serde_json::{Value, json};

use super::Jobs;
use super::open_job::PartEnd;
use crate::refusal::Refusal;
use crate::store::RowState;

impl Jobs {
    /// Ends a job: parts that were not sent end at once, and the minions of the others are asked to
    /// end theirs; by force, a package transaction, too, which a job that was given up may have
    /// left behind. Answers with the minions of each kind. The parts that were asked end with their
    /// returns.
    ///
    /// # Errors
    /// There is no such job, it has ended and `force` is not given, or the store failed.
    pub async fn cancel(
        self: &Arc<Self>,
        jid: &JobId,
        operator: &str,
        force: bool,
    ) -> Result<Value, Refusal> {
        let reason = format!("cancelled by {operator}");
        let Some(job) = self.app.store.job(jid).await? else {
            return Err(Refusal::not_found(format!(
                "there is no job {jid}; `ctl job list` shows the newest ones"
            )));
        };
        let pending = self.open_jobs().get(jid).map(|open| open.pending.clone());
        let Some(pending) = pending else {
            if !force {
                return Err(Refusal::conflict(format!(
                    "job {jid} has ended; with --force its minions are asked all the same, for one that works on"
                )));
            }
            let mut asked = Vec::new();
            for minion in job.minions.iter().filter(|minion| !minion.is_master()) {
                if self.send_cancel(jid, minion, &reason, true).await {
                    asked.push(minion);
                }
            }
            return Ok(json!({"jid": jid, "asked": asked}));
        };
        let (mut asked, mut ended, mut runs) = (Vec::new(), Vec::new(), Vec::new());
        let rows = self.app.store.rows(jid).await?;
        // Those that wait come first: the end of another part must not release them.
        let (waiting, sent): (Vec<_>, Vec<_>) = rows
            .iter()
            .filter(|row| pending.contains(&row.minion))
            .partition(|row| row.state == RowState::Queued);
        for row in waiting {
            let text = format!("{reason} before it was sent");
            self.end_without_return(jid, &row.minion, &text, PartEnd::NotStarted)
                .await?;
            ended.push(&row.minion);
        }
        for row in sent {
            if row.minion.is_master() {
                runs.push(&row.minion);
            } else if self.send_cancel(jid, &row.minion, &reason, force).await {
                asked.push(&row.minion);
            } else {
                let text = format!(
                    "{reason} while the minion was not connected: if it still works on the job, that ends by itself"
                );
                self.lost(jid, &row.minion, &text).await?;
                ended.push(&row.minion);
            }
        }
        Ok(json!({"jid": jid, "asked": asked, "ended": ended, "runs": runs}))
    }

    /// Asks a minion to end a job; false when it is not connected.
    pub(super) async fn send_cancel(
        &self,
        jid: &JobId,
        minion: &MinionId,
        reason: &str,
        force: bool,
    ) -> bool {
        let message = v1::MasterMessage {
            body: Some(Body::Cancel(v1::Cancel {
                job: jid.to_string(),
                reason: reason.to_owned(),
                force,
            })),
        };
        self.app.connections.send(minion, message).await.is_ok()
    }
}
