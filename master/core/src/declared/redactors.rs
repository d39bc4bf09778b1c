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
    secrets: Arc<BTreeSet<String>>,
    redactor: Arc<Redactor>,
}

/// The redactors in use, by their secrets. All hosts with the same roles have the same secrets, and
/// a redactor takes about a hundred bytes for each byte of them.
#[derive(Default)]
struct Shared(BTreeMap<Arc<BTreeSet<String>>, Weak<Redactor>>);

impl Shared {
    /// The redactor of these secrets, and the shared form of the set.
    fn get(&mut self, secrets: BTreeSet<String>) -> (Arc<BTreeSet<String>>, Arc<Redactor>) {
        if let Some((known, redactor)) = self.0.get_key_value(&secrets)
            && let Some(redactor) = redactor.upgrade()
        {
            return (Arc::clone(known), redactor);
        }
        // The sets of earlier declarations, which no minion has any more.
        self.0.retain(|_, redactor| redactor.strong_count() > 0);
        let redactor = Arc::new(Redactor::new(&secrets));
        let secrets = Arc::new(secrets);
        let weak = Arc::downgrade(&redactor);
        self.0.insert(Arc::clone(&secrets), weak);
        (secrets, redactor)
    }
}

#[derive(Default)]
struct ByMinion {
    known: BTreeMap<MinionId, Known>,
    shared: Shared,
}

/// Redactors by minion, for all secrets that each minion could have had since the master's start.
#[derive(Default)]
pub(super) struct Redactors(Mutex<ByMinion>);

impl Redactors {
    /// The redactor of a minion, with the secrets of this snapshot and of earlier ones.
    pub(super) fn get(&self, minion: &MinionId, snapshot: &Arc<Snapshot>) -> Arc<Redactor> {
        // No code panics while it holds the lock.
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ByMinion { known, shared } = &mut *all;
        let known = known.entry(minion.clone()).or_insert_with(|| Known {
            newest: Weak::new(),
            secrets: Arc::default(),
            redactor: Arc::default(),
        });
        let newest = Arc::downgrade(snapshot);
        if !known.newest.ptr_eq(&newest) {
            let mut secrets: BTreeSet<String> = snapshot.secrets(minion).collect();
            if !secrets.is_subset(&known.secrets) {
                secrets.extend(known.secrets.iter().cloned());
                (known.secrets, known.redactor) = shared.get(secrets);
            }
            known.newest = newest;
        }
        Arc::clone(&known.redactor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(secrets: &[&str]) -> BTreeSet<String> {
        secrets.iter().map(|secret| (*secret).to_owned()).collect()
    }

    #[test]
    fn minions_with_equal_secrets_share_a_redactor_while_one_has_it() {
        let mut shared = Shared::default();
        let (names, one) = shared.get(set(&["a secret", "another"]));
        let (same_names, two) = shared.get(set(&["another", "a secret"]));
        assert!(Arc::ptr_eq(&one, &two) && Arc::ptr_eq(&names, &same_names));
        let (_, other) = shared.get(set(&["a secret"]));
        assert!(!Arc::ptr_eq(&one, &other));
        assert_eq!(shared.0.len(), 2);
        // Nothing remains of sets that no minion has any more.
        drop((one, two, other));
        let (_, last) = shared.get(set(&["a third"]));
        assert_eq!(shared.0.len(), 1);
        assert_eq!(last.text("a third"), "(secret)");
    }
}
