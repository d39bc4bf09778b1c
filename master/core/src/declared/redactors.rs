//! The redactors of minions' returns, which outlive the declarations from which they were made.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use halite_proto::ids::MinionId;

use super::Snapshot;
use crate::redact::Redactor;

/// One minion's redactor.
struct Known {
    /// The newest snapshot whose secrets it contains.
    newest: Weak<Snapshot>,
    secrets: BTreeSet<String>,
    redactor: Arc<Redactor>,
}

/// Redactors by minion, for all secrets that each minion could have had since the master's start.
#[derive(Default)]
pub(super) struct Redactors(Mutex<BTreeMap<MinionId, Known>>);

impl Redactors {
    /// The redactor of a minion, with the secrets of this snapshot and of earlier ones.
    pub(super) fn get(&self, minion: &MinionId, snapshot: &Arc<Snapshot>) -> Arc<Redactor> {
        // No code panics while it holds the lock.
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.entry(minion.clone()).or_insert_with(|| Known {
            newest: Weak::new(),
            secrets: BTreeSet::new(),
            redactor: Arc::default(),
        });
        let newest = Arc::downgrade(snapshot);
        if !known.newest.ptr_eq(&newest) {
            let before = known.secrets.len();
            known.secrets.extend(snapshot.secrets(minion));
            if known.secrets.len() > before {
                known.redactor = Arc::new(Redactor::new(&known.secrets));
            }
            known.newest = newest;
        }
        Arc::clone(&known.redactor)
    }
}
