//! The store's log as standbys follow it: its end, its pieces, and the followers that a commit
//! waits for.
//!
//! Each follower reads the log by itself, in rounds. A commit asks each follower for a round that
//! starts after it, so commits that wait together share one. Only the store itself checkpoints the
//! log, while no transaction is open and each follower has all of it: only then may SQLite start
//! the next log over it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, watch};

use super::wal;
use super::wal::{End, Piece, Position, WalError};

/// The log of a store.
#[derive(Debug)]
pub struct Log {
    store: PathBuf,
    followers: Mutex<Vec<Arc<Rounds>>>,
    /// The end of the log that was checkpointed last: the next log follows it. `None` while a
    /// checkpoint is under way, and while the result of the last one is unknown.
    complete: Mutex<Option<Position>>,
    /// Held while the store's file must not change.
    still: Arc<AsyncMutex<()>>,
}

/// The rounds of one follower.
#[derive(Debug)]
struct Rounds {
    asked: watch::Sender<u64>,
    done: watch::Sender<u64>,
}

impl Log {
    /// The log of the store in this file.
    #[must_use]
    pub fn new(store: &Path) -> Self {
        Self {
            store: store.to_owned(),
            followers: Mutex::default(),
            complete: Mutex::default(),
            still: Arc::default(),
        }
    }

    /// The store's file.
    #[must_use]
    pub fn store(&self) -> &Path {
        &self.store
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.store.as_os_str().to_owned();
        name.push(suffix);
        name.into()
    }

    /// The end of the log, that is, the last commit; `None` while the log has no frames.
    ///
    /// # Errors
    /// The index of the log cannot be read.
    pub fn end(&self) -> Result<Option<End>, WalError> {
        wal::end(&self.beside("-shm"))
    }

    /// The next piece of the log after `behind` frames.
    ///
    /// # Errors
    /// The log cannot be read, or another log has replaced it.
    pub fn piece(&self, behind: u32, end: &End, most: usize) -> Result<Option<Piece>, WalError> {
        wal::piece(&self.beside("-wal"), behind, end, most)
    }

    /// The number of this log's frames that a copy with this end already has: all up to that end,
    /// or 0 if the log follows the copy. `None` if the copy cannot be continued.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn known(&self, copy: &Position, end: &End) -> Result<Option<u32>, WalError> {
        if *self.complete() == Some(*copy) && copy.salt != end.position.salt {
            return Ok(Some(0));
        }
        let known = wal::has(&self.beside("-wal"), end, copy)?;
        Ok(known.then_some(copy.frames))
    }

    fn complete(&self) -> std::sync::MutexGuard<'_, Option<Position>> {
        self.complete.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the end of a running checkpoint, and prevents new ones while the guard is held.
    pub async fn hold(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.still).lock_owned().await
    }

    /// Like [`Log::hold`]; `None` if it is already held.
    pub(super) fn try_hold(&self) -> Option<OwnedMutexGuard<()>> {
        Arc::clone(&self.still).try_lock_owned().ok()
    }

    /// Records the end of the log that was last written to the store's file; `None` if it is
    /// unknown. Returns the previous record.
    pub(super) fn note_complete(&self, end: Option<Position>) -> Option<Position> {
        std::mem::replace(&mut *self.complete(), end)
    }

    /// Adds a follower: from now on each commit waits for one of its rounds.
    #[must_use]
    pub fn join(self: &Arc<Self>) -> Follower {
        let rounds = Arc::new(Rounds {
            asked: watch::Sender::new(0),
            done: watch::Sender::new(0),
        });
        self.followers().push(Arc::clone(&rounds));
        Follower {
            asked: rounds.asked.subscribe(),
            rounds,
            log: Arc::clone(self),
        }
    }

    fn followers(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Rounds>>> {
        self.followers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until each follower has the current commit. A follower that takes too long is removed.
    pub async fn reach_followers(&self) {
        let followers = self.followers().clone();
        let asked: Vec<(Arc<Rounds>, u64)> = followers
            .into_iter()
            .map(|rounds| {
                let mut number = 0;
                rounds.asked.send_modify(|asked| {
                    *asked += 1;
                    number = *asked;
                });
                (rounds, number)
            })
            .collect();
        for (rounds, number) in asked {
            // The sender is in `rounds`, so it still exists.
            let _ = rounds
                .done
                .subscribe()
                .wait_for(|done| *done >= number)
                .await;
        }
    }
}

/// A follower of the log, until it is dropped.
#[derive(Debug)]
pub struct Follower {
    rounds: Arc<Rounds>,
    asked: watch::Receiver<u64>,
    log: Arc<Log>,
}

impl Follower {
    /// Waits until a commit asks for a round; returns its number.
    pub async fn asked(&mut self) -> u64 {
        // The sender is in `rounds`, so it still exists.
        let _ = self.asked.changed().await;
        *self.asked.borrow_and_update()
    }

    /// Records the end of a round: the follower has everything that was committed before its
    /// request.
    pub fn done(&self, round: u64) {
        self.rounds.done.send_replace(round);
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let own = &self.rounds;
        self.log
            .followers()
            .retain(|rounds| !Arc::ptr_eq(rounds, own));
        // The commits that wait for it continue.
        own.done.send_replace(u64::MAX);
    }
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
