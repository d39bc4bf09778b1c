//! A limited set of connections, in which a new one takes the place of the oldest.
//!
//! A new connection is never refused: every minion is a caller without an identity until its
//! handshake ends, and the pods of a node have the node's address.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// The set: at most `total` connections, and at most `each` of one owner.
#[derive(Debug)]
pub(super) struct OldestFirst {
    total: usize,
    each: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// The connections by age, with their owner and the sender that closes each.
    places: BTreeMap<u64, (String, oneshot::Sender<()>)>,
    owners: BTreeMap<String, BTreeSet<u64>>,
}

impl State {
    fn remove(&mut self, number: u64) {
        let Some((owner, _close)) = self.places.remove(&number) else {
            return;
        };
        if let Some(numbers) = self.owners.get_mut(&owner) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.owners.remove(&owner);
            }
        }
    }
}

/// The place of one connection in the set, until it is dropped.
#[derive(Debug)]
pub(super) struct ConnectionPlace {
    set: Arc<OldestFirst>,
    number: u64,
    close: oneshot::Receiver<()>,
}

impl ConnectionPlace {
    /// Waits until a newer connection takes this place.
    pub(super) async fn taken(&mut self) {
        // The sender is dropped with the place; it never sends.
        let _ = (&mut self.close).await;
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.set.state().remove(self.number);
    }
}

impl OldestFirst {
    /// An empty set with its limits.
    pub(super) fn new(total: usize, each: usize) -> Arc<Self> {
        Arc::new(Self {
            total,
            each,
            state: Mutex::default(),
        })
    }

    /// Adds a connection of `owner`. At a limit the oldest connection loses its place: the owner's
    /// oldest first, then the oldest of the set.
    pub(super) fn enter(self: &Arc<Self>, owner: &str) -> ConnectionPlace {
        let (sender, close) = oneshot::channel();
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.places.insert(number, (owner.to_owned(), sender));
        let own = state.owners.entry(owner.to_owned()).or_default();
        own.insert(number);
        let oldest = if own.len() > self.each {
            own.first().copied()
        } else {
            None
        };
        if let Some(oldest) = oldest {
            state.remove(oldest);
        }
        if state.places.len() > self.total
            && let Some(oldest) = state.places.keys().next().copied()
        {
            state.remove(oldest);
        }
        drop(state);
        ConnectionPlace {
            set: Arc::clone(self),
            number,
            close,
        }
    }

    /// Closes the oldest connection, unless it is the only one; returns `true` if one was closed.
    pub(super) fn close_oldest(&self) -> bool {
        let mut state = self.state();
        if state.places.len() < 2 {
            return false;
        }
        let oldest = state.places.keys().next().copied();
        if let Some(oldest) = oldest {
            state.remove(oldest);
        }
        oldest.is_some()
    }

    /// The number of connections.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.state().places.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while holding the lock; a poisoned one still holds a valid state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_taken(place: &mut ConnectionPlace) -> bool {
        matches!(
            place.close.try_recv(),
            Err(oneshot::error::TryRecvError::Closed)
        )
    }

    #[test]
    fn at_the_limit_of_an_owner_its_oldest_connection_is_closed() {
        let set = OldestFirst::new(10, 2);
        let mut other = set.enter("b");
        let mut first = set.enter("a");
        let mut second = set.enter("a");
        assert!(!is_taken(&mut first));
        let mut third = set.enter("a");
        assert!(is_taken(&mut first));
        for place in [&mut other, &mut second, &mut third] {
            assert!(!is_taken(place));
        }
        assert_eq!(set.len(), 3);
    }

    #[test]
    fn at_the_limit_of_all_the_oldest_of_all_is_closed() {
        let set = OldestFirst::new(2, 2);
        let mut first = set.enter("a");
        let mut second = set.enter("b");
        let mut third = set.enter("c");
        assert!(is_taken(&mut first));
        assert!(!is_taken(&mut second));
        assert!(!is_taken(&mut third));
    }

    #[test]
    fn a_connection_that_ends_leaves_its_place() {
        let set = OldestFirst::new(2, 1);
        let mut first = set.enter("a");
        drop(set.enter("b"));
        let _second = set.enter("c");
        assert!(!is_taken(&mut first));
        assert_eq!(set.len(), 2);
        drop(first);
        assert_eq!(set.len(), 1);
        assert!(set.state().owners.keys().eq(["c"]));
    }

    #[test]
    fn the_only_connection_is_not_closed_for_want_of_room() {
        let set = OldestFirst::new(9, 9);
        let mut only = set.enter("a");
        assert!(!set.close_oldest());
        let mut newest = set.enter("a");
        assert!(set.close_oldest());
        assert!(is_taken(&mut only));
        assert!(!is_taken(&mut newest));
    }
}
