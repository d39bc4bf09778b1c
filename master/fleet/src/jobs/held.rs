//! Returns that cannot be stored because the secrets in them are unknown: the documents are
//! invalid, and no valid ones were ever known to this master, or it cannot decrypt them. The minion
//! keeps such a return, and its stream stays open; the master asks for the return once the secrets
//! are known.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use halite_core::redact::Redactor;
use halite_core::refusal::Refusal;
use halite_proto::ids::{JobId, MinionId};

use super::Jobs;

/// The minions that keep such returns.
#[derive(Default)]
pub(super) struct Held(Mutex<BTreeSet<MinionId>>);

impl Held {
    fn minions(&self) -> MutexGuard<'_, BTreeSet<MinionId>> {
        // No code panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Jobs {
    /// The redactor for the return of a part.
    ///
    /// # Errors
    /// The secrets of the minion are unknown, and the return may contain some.
    pub(super) async fn redactor(
        &self,
        job_id: &JobId,
        minion: &MinionId,
    ) -> Result<Arc<Redactor>, Refusal> {
        let redactor = self.declarations.redactor(minion).await;
        let is_query = |refusal| match self.open_jobs().get(job_id) {
            // It contains only the host's liveness and grains, which its hello contains as well.
            Some(job) if job.function.is_query() => Ok(Arc::default()),
            _ => Err(refusal),
        };
        redactor.or_else(is_query)
    }

    /// Records that a minion keeps a return.
    pub(super) fn hold(&self, minion: &MinionId, refusal: &Refusal) {
        if self.held.minions().insert(minion.clone()) {
            tracing::error!(%minion, error = %refusal, "the minion keeps a return");
        }
    }

    /// Makes the minions with kept returns reconnect, upon which they send them, once their secrets
    /// are known.
    pub(super) async fn ask_for_held(&self) {
        if self.held.minions().is_empty() || !self.declarations.knows_secrets().await {
            return;
        }
        let minions = std::mem::take(&mut *self.held.minions());
        for minion in minions {
            self.app.connections.disconnect(&minion);
        }
    }
}
