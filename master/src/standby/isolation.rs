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
use crate::clock::{Steady, rfc3339};
use crate::refusal::Refusal;
use crate::store::Millis;

/// The time without a standby after which a master counts as isolated: after a power cut of all hosts
/// minions and standbys call it within that.
pub const AFTER: Millis = 60_000;

const ISOLATED: &str = "isolated";
/// Why a master that has just started is isolated.
const BEFORE: &str = "this master was isolated when it stopped, and has not seen yet whether its standbys or half of the \
    minions are back";

/// What a master sees of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Surroundings {
    /// The declared standbys.
    pub standbys: usize,
    /// Since when none of them follows, by the time of day; none while one does.
    pub alone_since: Option<Millis>,
    /// The accepted minions, this host's among them.
    pub accepted: usize,
    /// Those of them that are connected.
    pub connected: usize,
}

impl Surroundings {
    /// No standby follows, and most minions are not connected.
    fn are_lost(&self, is_long: bool) -> bool {
        let is_alone = self.alone_since.is_some() && is_long;
        self.standbys > 0 && is_alone && self.connected * 2 < self.accepted
    }
}

/// Whether this master is isolated, since the last look.
pub struct Isolation {
    directory: PathBuf,
    /// Why it is.
    found: Mutex<Option<String>>,
    /// The time of day from which no standby follows, and the first look since, by the clock that no one sets.
    alone: Mutex<Option<(Millis, Steady)>>,
}

impl Isolation {
    /// The isolation of the master with this directory. One that was isolated when it stopped still is;
    /// another one is in the midst of others until a look.
    #[must_use]
    pub fn new(state_dir: &Path) -> Self {
        Self {
            directory: state_dir.to_owned(),
            found: Mutex::new(is_noted(state_dir).then(|| BEFORE.to_owned())),
            alone: Mutex::default(),
        }
    }

    /// The time since the first look at which no standby followed, without one that did since.
    fn alone_for(&self, now: Steady, since: Option<Millis>) -> Millis {
        let mut held = self.alone.lock().unwrap_or_else(PoisonError::into_inner);
        let same = held.filter(|(began, _)| since == Some(*began));
        *held = since.map(|since| same.unwrap_or((since, now)));
        held.map_or(0, |(_, first)| now - first)
    }

    /// Takes what the master sees now.
    pub fn look(&self, now: Steady, seen: Surroundings) {
        let alone_for = self.alone_for(now, seen.alone_since);
        let acts_alone = self.directory.join(ACTS_ALONE).exists();
        let is_lost = {
            let mut held = self.found.lock().unwrap_or_else(PoisonError::into_inner);
            let is_long = alone_for >= AFTER || held.is_some();
            let found = (seen.are_lost(is_long) && !acts_alone).then(|| reason(&seen));
            if let (None, Some(reason)) = (&*held, &found) {
                tracing::warn!("{reason}");
            }
            *held = found;
            held.is_some()
        };
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
        held.clone()
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
    use crate::clock::{Clock as _, ManualClock};

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
        isolation.look(Steady(5), lost);
        isolation.look(Steady(5 + AFTER - 1), lost);
        isolation.check("a highstate").unwrap();
        isolation.look(Steady(5 + AFTER), lost);
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
        isolation.look(Steady(5 + AFTER), seen(Some(1000), 4, 2));
        isolation.check("a highstate").unwrap();
        assert!(!is_noted(directory.path()));
    }

    #[test]
    fn what_a_dead_half_leaves_may_be_repaired() {
        let directory = tempfile::tempdir().unwrap();
        let isolation = Isolation::new(directory.path());
        let now = Steady(10 * AFTER);
        isolation.look(Steady(0), seen(Some(0), 4, 4));
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
        isolation.look(Steady(0), seen(Some(1), 3, 1));
        isolation.look(now, seen(Some(1), 3, 1));
        assert!(isolation.reason().is_some());
    }

    #[test]
    fn the_operators_word_counts_until_a_standby_follows() {
        let directory = tempfile::tempdir().unwrap();
        let isolation = Isolation::new(directory.path());
        let (now, lost) = (Steady(10 * AFTER), seen(Some(0), 4, 1));
        isolation.look(Steady(0), lost);
        isolation.look(now, lost);
        act_alone(directory.path()).unwrap();
        assert!(!is_noted(directory.path()));
        isolation.look(now, lost);
        isolation.check("a highstate").unwrap();
        // Also after a restart of the master.
        let isolation = Isolation::new(directory.path());
        isolation.look(Steady(0), lost);
        isolation.look(now, lost);
        isolation.check("a highstate").unwrap();
        isolation.look(now, seen(None, 4, 4));
        isolation.look(now, lost);
        isolation.look(now + AFTER, lost);
        isolation.check("a highstate").unwrap_err();
    }

    #[test]
    fn a_master_that_was_isolated_begins_nothing_after_a_restart_until_others_are_back() {
        let directory = tempfile::tempdir().unwrap();
        let isolation = Isolation::new(directory.path());
        let lost = seen(Some(0), 4, 1);
        isolation.look(Steady(0), lost);
        isolation.look(Steady(AFTER), lost);
        isolation.check("a highstate").unwrap_err();
        for back in [seen(Some(9), 4, 2), seen(None, 4, 1)] {
            write(&directory.path().join(ISOLATED), b"", PRIVATE).unwrap();
            let isolation = Isolation::new(directory.path());
            isolation.check("a highstate").unwrap_err();
            isolation.look(Steady(0), seen(Some(9), 4, 1));
            isolation.check("a highstate").unwrap_err();
            isolation.look(Steady(1), back);
            isolation.check("a highstate").unwrap();
            Isolation::new(directory.path())
                .check("a highstate")
                .unwrap();
        }
    }

    #[test]
    fn a_clock_that_is_set_neither_delays_nor_begins_the_isolation() {
        const HOUR: Millis = 3_600_000;
        for step in [HOUR, -HOUR, 24 * HOUR, -24 * HOUR] {
            let directory = tempfile::tempdir().unwrap();
            let clock = ManualClock::at(1_800_000_000_000);
            let isolation = Isolation::new(directory.path());
            let lost = seen(Some(clock.now()), 4, 1);
            isolation.look(clock.steady(), lost);
            clock.step(step);
            isolation.look(clock.steady(), lost);
            assert_eq!(isolation.reason(), None, "{step}");
            clock.advance(AFTER);
            isolation.look(clock.steady(), lost);
            assert!(isolation.reason().is_some(), "{step}");
        }
    }
}
