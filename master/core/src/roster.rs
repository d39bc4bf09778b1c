//! The standbys from the master's point of view: their state and lag, and the time since which the
//! master is alone.

pub mod budget;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use halite_store::Millis;
use tokio::task::AbortHandle;

use self::budget::Budget;

/// The state of a standby.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FollowState {
    /// It is copying a base, or the changes that it missed: no commit waits for it yet.
    Copying,
    /// Each commit is on its disk before it is answered.
    Following,
    /// It is not connected.
    Gone,
}

impl FollowState {
    /// The word for this state in output.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Copying => "copying",
            Self::Following => "following",
            Self::Gone => "gone",
        }
    }
}

/// A standby as the master sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenStandby {
    /// The state.
    pub state: FollowState,
    /// The time of the last change of the state.
    pub since: Millis,
    /// Bytes that were sent but are not yet known to be on its disk.
    pub lag: u64,
    /// The reason why it is gone; otherwise empty.
    pub reason: String,
}

struct Entry {
    seen: SeenStandby,
    lag: Arc<AtomicU64>,
    number: u64,
    task: Option<AbortHandle>,
    /// The reason why it cannot take the master, although it follows.
    obstacle: Option<String>,
}

#[derive(Default)]
struct Inner {
    entries: BTreeMap<String, Entry>,
    /// The budgets of standbys, which outlive their streams.
    budgets: BTreeMap<String, Arc<Mutex<Budget>>>,
    numbers: u64,
    /// The time since which no standby follows; `None` while one does.
    alone_since: Option<Millis>,
}

/// The standbys that have connected since the master started.
pub struct Roster {
    inner: Mutex<Inner>,
    started: Millis,
}

impl Roster {
    /// A roster without standbys.
    #[must_use]
    pub fn new(now: Millis) -> Self {
        Self {
            inner: Mutex::new(Inner {
                alone_since: Some(now),
                ..Inner::default()
            }),
            started: now,
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // No code panics while it holds the lock.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The standbys by name.
    #[must_use]
    pub fn seen(&self) -> BTreeMap<String, SeenStandby> {
        let inner = self.inner();
        let entries = inner.entries.iter();
        entries
            .map(|(name, entry)| {
                let lag = entry.lag.load(Ordering::Relaxed);
                (
                    name.clone(),
                    SeenStandby {
                        lag,
                        ..entry.seen.clone()
                    },
                )
            })
            .collect()
    }

    /// The time of the master's start.
    #[must_use]
    pub fn started(&self) -> Millis {
        self.started
    }

    /// The time since which no standby follows; `None` while one does.
    #[must_use]
    pub fn alone_since(&self) -> Option<Millis> {
        self.inner().alone_since
    }

    /// The budget of time for which a standby may delay commits.
    pub fn budget(&self, name: &str) -> Arc<Mutex<Budget>> {
        let mut inner = self.inner();
        Arc::clone(inner.budgets.entry(name.to_owned()).or_default())
    }

    /// Adds a stream of a standby, which counts its lag; returns its number. An older stream of the
    /// same standby ends.
    pub fn enter(&self, name: &str, lag: Arc<AtomicU64>, now: Millis) -> u64 {
        let mut inner = self.inner();
        inner.numbers += 1;
        let number = inner.numbers;
        let seen = SeenStandby {
            state: FollowState::Copying,
            since: now,
            lag: 0,
            reason: String::new(),
        };
        let entry = Entry {
            seen,
            lag,
            number,
            task: None,
            obstacle: None,
        };
        let before = inner.entries.insert(name.to_owned(), entry);
        if let Some(task) = before.and_then(|before| before.task) {
            task.abort();
        }
        inner.note_alone(now);
        number
    }

    /// Records the task of a stream, which ends when a newer stream of the standby enters.
    pub fn set_task(&self, name: &str, number: u64, task: AbortHandle) {
        self.change(name, number, |entry| entry.task = Some(task));
    }

    /// Records the reason why a standby cannot take the master, although it follows.
    pub fn set_obstacle(&self, name: &str, number: u64, obstacle: Option<String>) {
        self.change(name, number, |entry| entry.obstacle = obstacle);
    }

    /// The reason why a standby cannot take the master, although it follows; `None` if it can.
    #[must_use]
    pub fn obstacle(&self, name: &str) -> Option<String> {
        self.inner().entries.get(name)?.obstacle.clone()
    }

    /// Ends all streams because this master hands over: each standby connects again.
    pub fn end_streams(&self) {
        for entry in self.inner().entries.values_mut() {
            if let Some(task) = entry.task.take() {
                task.abort();
            }
        }
    }

    /// Records the state of a stream, unless a newer stream has replaced it.
    pub fn set(&self, name: &str, number: u64, state: FollowState, reason: &str, now: Millis) {
        self.change(name, number, |entry| {
            entry.seen = SeenStandby {
                state,
                since: now,
                lag: 0,
                reason: reason.to_owned(),
            };
        });
        self.inner().note_alone(now);
    }

    fn change(&self, name: &str, number: u64, how: impl FnOnce(&mut Entry)) {
        let mut inner = self.inner();
        let entry = inner.entries.get_mut(name);
        if let Some(entry) = entry.filter(|entry| entry.number == number) {
            how(entry);
        }
    }
}

impl Inner {
    fn note_alone(&mut self, now: Millis) {
        let followed = self
            .entries
            .values()
            .any(|entry| entry.seen.state == FollowState::Following);
        self.alone_since = match (followed, self.alone_since) {
            (true, _) => None,
            (false, since) => since.or(Some(now)),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_master_is_alone_from_the_end_of_the_last_stream() {
        let roster = Roster::new(1);
        assert_eq!(roster.alone_since(), Some(1));
        let first = roster.enter("cp-2", Arc::default(), 2);
        assert_eq!(
            roster.alone_since(),
            Some(1),
            "it does not have everything yet"
        );
        roster.set("cp-2", first, FollowState::Following, "", 3);
        assert_eq!(roster.alone_since(), None);
        let other = roster.enter("cp-3", Arc::default(), 4);
        roster.set("cp-3", other, FollowState::Following, "", 5);
        roster.set("cp-2", first, FollowState::Gone, "cut off", 6);
        assert_eq!(roster.alone_since(), None);
        roster.set("cp-3", other, FollowState::Gone, "", 7);
        assert_eq!(roster.alone_since(), Some(7));
        assert_eq!(roster.seen()["cp-2"].reason, "cut off");
    }

    #[test]
    fn an_obstacle_lasts_until_the_standby_connects_again() {
        let roster = Roster::new(1);
        let first = roster.enter("cp-2", Arc::default(), 2);
        roster.set_obstacle("cp-2", first, Some("an earlier program".to_owned()));
        roster.set("cp-2", first, FollowState::Following, "", 3);
        let obstacle = roster.obstacle("cp-2");
        assert_eq!(obstacle.as_deref(), Some("an earlier program"));
        roster.enter("cp-2", Arc::default(), 4);
        assert_eq!(roster.obstacle("cp-2"), None);
    }

    #[test]
    fn the_end_of_an_older_stream_changes_nothing() {
        let roster = Roster::new(1);
        let old = roster.enter("cp-2", Arc::default(), 2);
        let new = roster.enter("cp-2", Arc::default(), 3);
        roster.set("cp-2", new, FollowState::Following, "", 4);
        roster.set("cp-2", old, FollowState::Gone, "", 5);
        assert_eq!(roster.seen()["cp-2"].state, FollowState::Following);
        assert_eq!(roster.alone_since(), None);
    }
}
