//! A master that has lost its standbys and most of its minions: another host may have taken its place, and
//! would command the hosts that this one does not reach. It begins nothing until one of them is back, or
//! an operator says that there is no other master (`ctl master promote`).
//!
//! Two files in the master's directory go with it. `isolated` is there while the master is in this state,
//! for a promotion of the same host, which asks no running master. `acts-alone` is the operator's word:
//! a promotion and a restore write it, and it goes when a standby follows.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use halite_errors::chain;
use halite_pillar::masters::ACTS_ALONE;

use super::disk::{CopyError, PRIVATE, remove, write};
use crate::clock::rfc3339;
use crate::refusal::Refusal;
use crate::store::Millis;

/// The time without a standby after which a master counts as isolated: after a power cut of all hosts
/// minions and standbys call it within that.
pub const AFTER: Millis = 60_000;

const ISOLATED: &str = "isolated";

/// What a master sees of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Surroundings {
    /// The declared standbys.
    pub standbys: usize,
    /// Since when none of them follows; none while one does.
    pub alone_since: Option<Millis>,
    /// The accepted minions, this host's among them.
    pub accepted: usize,
    /// Those of them that are connected.
    pub connected: usize,
}

impl Surroundings {
    /// No standby follows, and most minions are not connected.
    fn are_lost(&self, now: Millis) -> bool {
        let is_alone = self.alone_since.is_some_and(|since| now - since >= AFTER);
        self.standbys > 0 && is_alone && self.connected * 2 < self.accepted
    }
}

/// Whether this master is isolated, since the last look.
pub struct Isolation {
    directory: PathBuf,
    found: Mutex<Option<Surroundings>>,
}

impl Isolation {
    /// The isolation of the master with this directory, which is in the midst of others until a look.
    #[must_use]
    pub fn new(state_dir: &Path) -> Self {
        Self {
            directory: state_dir.to_owned(),
            found: Mutex::default(),
        }
    }

    /// Takes what the master sees now.
    pub fn look(&self, now: Millis, seen: Surroundings) {
        let is_lost = seen.are_lost(now) && !self.directory.join(ACTS_ALONE).exists();
        let found = is_lost.then_some(seen);
        let before = {
            let mut held = self.found.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *held, found)
        };
        if let (None, Some(seen)) = (before, found) {
            tracing::warn!("{}", reason(&seen));
        }
        if let Err(error) = self.note(is_lost, seen.alone_since.is_none()) {
            tracing::error!(
                error = chain(&error),
                "cannot note whether this master is isolated"
            );
        }
    }

    fn note(&self, is_lost: bool, is_followed: bool) -> Result<(), CopyError> {
        let (mark, word) = (
            self.directory.join(ISOLATED),
            self.directory.join(ACTS_ALONE),
        );
        match is_lost {
            true if !mark.exists() => write(&mark, b"", PRIVATE)?,
            true => {}
            false => remove(&mark)?,
        }
        match is_followed {
            true => remove(&word),
            false => Ok(()),
        }
    }

    /// Why this master begins nothing; none while it may.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        let held = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        held.as_ref().map(reason)
    }

    /// Refuses to begin something that changes a host or the cluster.
    ///
    /// # Errors
    /// This master is isolated.
    pub fn check(&self, what: &str) -> Result<(), Refusal> {
        match self.reason() {
            None => Ok(()),
            Some(reason) => Err(Refusal::conflict(format!("cannot begin {what}: {reason}"))),
        }
    }
}

fn reason(seen: &Surroundings) -> String {
    let since = seen.alone_since.map_or_else(String::new, rfc3339);
    format!(
        "this master has no standby since {since}, and {} of {} minions are connected, so another host may have taken its \
         place: `ctl master list` on the other control planes shows it. If none has, switch the hosts on, or have this \
         master act alone: `ctl master promote --force --cluster NAME` on this host",
        seen.connected, seen.accepted
    )
}

/// True while the master of this directory is isolated, as far as it has noted.
#[must_use]
pub fn is_noted(state_dir: &Path) -> bool {
    state_dir.join(ISOLATED).exists()
}

/// Notes the operator's word that there is no other master, which counts until a standby follows.
///
/// # Errors
/// The file system's reason.
pub fn act_alone(state_dir: &Path) -> Result<(), CopyError> {
    write(&state_dir.join(ACTS_ALONE), b"", PRIVATE)?;
    remove(&state_dir.join(ISOLATED))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(alone_since: Option<Millis>, accepted: usize, connected: usize) -> Surroundings {
        Surroundings {
            standbys: 2,
            alone_since,
            accepted,
            connected,
        }
    }

    #[test]
    fn a_master_without_standbys_and_most_minions_begins_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let isolation = Isolation::new(directory.path());
        let lost = seen(Some(1000), 4, 1);
        isolation.look(1000 + AFTER - 1, lost);
        isolation.check("a highstate").unwrap();
        isolation.look(1000 + AFTER, lost);
        let refused = isolation.check("a highstate").unwrap_err().message;
        for part in [
            "cannot begin a highstate",
            "1 of 4 minions",
            "ctl master promote",
        ] {
            assert!(refused.contains(part), "{refused}");
        }
        assert!(is_noted(directory.path()));
        // One comes back.
        isolation.look(1000 + AFTER, seen(Some(1000), 4, 2));
        isolation.check("a highstate").unwrap();
        assert!(!is_noted(directory.path()));
    }

    #[test]
    fn what_a_dead_half_leaves_may_be_repaired() {
        let directory = tempfile::tempdir().unwrap();
        let isolation = Isolation::new(directory.path());
        let now = 10 * AFTER;
        let none_declared = Surroundings {
            standbys: 0,
            ..seen(Some(0), 4, 1)
        };
        // Half of the minions; a standby; a cluster without standbys; the first host of one that is made.
        for seen in [
            seen(Some(0), 4, 2),
            seen(None, 4, 1),
            none_declared,
            seen(Some(0), 1, 1),
        ] {
            isolation.look(now, seen);
            assert_eq!(isolation.reason(), None, "{seen:?}");
        }
        isolation.look(now, seen(Some(0), 3, 1));
        assert!(isolation.reason().is_some());
    }

    #[test]
    fn the_operators_word_counts_until_a_standby_follows() {
        let directory = tempfile::tempdir().unwrap();
        let isolation = Isolation::new(directory.path());
        let (now, lost) = (10 * AFTER, seen(Some(0), 4, 1));
        isolation.look(now, lost);
        act_alone(directory.path()).unwrap();
        assert!(!is_noted(directory.path()));
        isolation.look(now, lost);
        isolation.check("a highstate").unwrap();
        // Also after a restart of the master.
        let isolation = Isolation::new(directory.path());
        isolation.look(now, lost);
        isolation.check("a highstate").unwrap();
        isolation.look(now, seen(None, 4, 4));
        isolation.look(now, lost);
        isolation.check("a highstate").unwrap_err();
    }
}
