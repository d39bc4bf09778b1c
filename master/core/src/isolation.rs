//! The isolation of a master that does not know whether it is the only acting one: another host may
//! have taken its place, and would command the hosts that this one does not reach. An isolated
//! master starts nothing.
//!
//! A master with declared standbys is isolated after its start, and again once it has lost its
//! standbys and most hosts. The isolation ends when a standby follows, when half of the hosts are
//! connected, when every other host that may run a master answers that it is a standby, or when an
//! operator confirms that it acts alone (`ctl master promote`).
//!
//! Two files in the master's directory belong to it. `isolated` exists while the master is
//! isolated, for a promotion of the same host, which does not contact a running master.
//! `acts-alone` is the operator's confirmation: a promotion and a restore write it, and it is
//! removed when a standby follows.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use halite_durable::files;
use halite_errors::chain;
use halite_pillar::masters::ACTS_ALONE;
use halite_store::Millis;
use tokio::time::Instant;

use crate::clock::{Steady, rfc3339};
use crate::refusal::Refusal;

/// The time without a standby after which a master counts as isolated: after a power cut of all
/// hosts, minions and standbys reconnect within that time.
pub const AFTER: Millis = 60_000;
/// The time since the start within which minions and standbys usually connect. Until then an order
/// waits instead of being refused.
const CALLS: Duration = Duration::from_secs(20);

const ISOLATED: &str = "isolated";
/// The mode of both files: for root only.
const PRIVATE: u32 = 0o600;
/// The reason of a master that has just started and has not checked yet.
const STARTED: &str =
    "this master has just started and does not know yet whether another host has taken its place";

/// The master's view of standbys and minions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Surroundings {
    /// The declared standbys.
    pub standbys: usize,
    /// The time of day since which no standby follows; `None` while one does.
    pub alone_since: Option<Millis>,
    /// The accepted minions of declared hosts, including this host's.
    pub accepted: usize,
    /// The connected minions among them.
    pub connected: usize,
}

impl Surroundings {
    /// Returns whether no standby follows and most minions are not connected.
    fn are_lost(&self, is_long: bool) -> bool {
        let is_alone = self.alone_since.is_some() && is_long;
        self.standbys > 0 && is_alone && self.connected * 2 < self.accepted
    }
}

/// The findings of the checks.
struct Found {
    /// The reason why the master starts nothing.
    reason: Option<String>,
    /// `true` until a check since the start finds that the master may act.
    is_new: bool,
}

/// The isolation of this master, as of the last check.
pub struct Isolation {
    directory: PathBuf,
    found: Mutex<Found>,
    /// The time of day since which no standby follows, and the first check since, by the steady
    /// clock.
    alone: Mutex<Option<(Millis, Steady)>>,
    /// `true` if every other host that may run a master answers that it is a standby.
    have_answered: AtomicBool,
    /// Other hosts are declared that can have the master, or the declaration is unknown.
    has_others: AtomicBool,
    /// The time since which minions and standbys can connect.
    serves: Mutex<Instant>,
}

impl Isolation {
    /// The isolation of the master with this directory: isolated until a check, unless an operator
    /// has confirmed that it acts alone.
    #[must_use]
    pub fn new(state_dir: &Path) -> Self {
        let is_new = !state_dir.join(ACTS_ALONE).exists();
        Self {
            directory: state_dir.to_owned(),
            found: Mutex::new(Found {
                reason: is_new.then(|| STARTED.to_owned()),
                is_new,
            }),
            alone: Mutex::default(),
            have_answered: AtomicBool::new(false),
            has_others: AtomicBool::new(true),
            serves: Mutex::new(Instant::now()),
        }
    }

    fn found(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time since the first check at which no standby followed, if none has followed since.
    fn alone_for(&self, now: Steady, since: Option<Millis>) -> Millis {
        let mut held = self.alone.lock().unwrap_or_else(PoisonError::into_inner);
        let same = held.filter(|(began, _)| since == Some(*began));
        *held = since.map(|since| same.unwrap_or((since, now)));
        held.map_or(0, |(_, first)| now - first)
    }

    /// Records whether every other host that may run a master answered the last query that none
    /// acts there.
    pub fn all_have_answered(&self, have: bool) {
        self.have_answered.store(have, Ordering::Relaxed);
    }

    /// Records the number of hosts that can have the master, this one included.
    pub fn declared(&self, masters: usize) {
        self.has_others.store(masters > 1, Ordering::Relaxed);
    }

    /// Returns whether another host may have taken this master's place.
    pub fn has_others(&self) -> bool {
        self.has_others.load(Ordering::Relaxed)
    }

    /// Records that declarations and connections cannot be determined. A master that has just
    /// started starts nothing; for any other master the last check counts.
    pub fn unknown(&self, cause: &str) {
        let mut found = self.found();
        if found.is_new {
            found.reason = Some(format!("{STARTED}: {cause}"));
        }
    }

    /// Checks the master's current surroundings.
    pub fn look(&self, now: Steady, seen: Surroundings) {
        let alone_for = self.alone_for(now, seen.alone_since);
        let acts_alone = self.directory.join(ACTS_ALONE).exists();
        let may_act = acts_alone || self.have_answered.load(Ordering::Relaxed);
        let is_lost = {
            let mut held = self.found();
            let is_long = alone_for >= AFTER || held.reason.is_some();
            let is_lost = seen.are_lost(is_long) && !may_act;
            let reason = is_lost.then(|| reason(&seen, held.is_new));
            if let (None, Some(reason)) = (&held.reason, &reason) {
                tracing::warn!("{reason}");
            }
            held.is_new &= is_lost;
            held.reason = reason;
            is_lost
        };
        if let Err(error) = self.note(is_lost, seen.alone_since.is_none()) {
            tracing::error!(
                error = chain(&error),
                "cannot record whether this master is isolated"
            );
        }
    }

    fn note(&self, is_lost: bool, is_followed: bool) -> Result<(), halite_durable::Error> {
        let (mark, word) = (
            self.directory.join(ISOLATED),
            self.directory.join(ACTS_ALONE),
        );
        match is_lost {
            true if !mark.exists() => files::replace(&mark, PRIVATE, b"")?,
            true => {}
            false => files::remove(&mark)?,
        }
        match is_followed {
            true => files::remove(&word),
            false => Ok(()),
        }
    }

    /// The reason why this master starts nothing; `None` while it may act.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        self.found().reason.clone()
    }

    /// Returns whether no check since the start has found that this master may act.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.found().is_new
    }

    /// Returns whether the time within which minions and standbys usually connect has passed.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.settles_in().is_zero()
    }

    /// The rest of the time within which minions and standbys usually connect.
    #[must_use]
    pub fn settles_in(&self) -> Duration {
        let serves = self.serves.lock().unwrap_or_else(PoisonError::into_inner);
        CALLS.saturating_sub(serves.elapsed())
    }

    /// Records that minions and standbys can connect from now on.
    pub fn serves(&self) {
        *self.serves.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Treats the time within which minions and standbys usually connect as over.
    #[cfg(any(test, feature = "testing"))]
    pub fn settle(&self) {
        let mut serves = self.serves.lock().unwrap_or_else(PoisonError::into_inner);
        *serves = serves.checked_sub(CALLS).unwrap_or(*serves);
    }

    /// Refuses to start something that changes a host or the cluster.
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

fn reason(seen: &Surroundings, is_new: bool) -> String {
    let since = seen.alone_since.map_or_else(String::new, rfc3339);
    let has_none = match is_new {
        true => format!("this master started at {since}, no standby follows it yet"),
        false => format!("this master has had no standby since {since}"),
    };
    format!(
        "{has_none}, and {} of {} minions are connected, so another host may have taken its \
         place: `ctl master list` on the other control planes shows it. If none has, switch the hosts on, or have this \
         master act alone: `ctl master promote --force --cluster NAME` on this host",
        seen.connected, seen.accepted
    )
}

/// Returns whether the master of this directory has recorded that it is isolated.
#[must_use]
pub fn is_noted(state_dir: &Path) -> bool {
    state_dir.join(ISOLATED).exists()
}

/// Records the operator's confirmation that there is no other master, which counts until a standby
/// follows.
///
/// # Errors
/// The file system's reason.
pub fn act_alone(state_dir: &Path) -> Result<(), halite_durable::Error> {
    files::replace(&state_dir.join(ACTS_ALONE), PRIVATE, b"")?;
    files::remove(&state_dir.join(ISOLATED))
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

    /// The isolation of a master that has seen a standby.
    fn acting(state_dir: &Path) -> Isolation {
        let isolation = Isolation::new(state_dir);
        isolation.look(Steady(0), seen(None, 4, 1));
        isolation.check("a highstate").unwrap();
        isolation
    }

    #[test]
    fn a_master_without_standbys_and_most_minions_begins_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let isolation = acting(directory.path());
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
        // One minion reconnects.
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
        // Half of the minions; a standby; a cluster without standbys; the first host of a new
        // cluster.
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
        // The same after a restart of the master.
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
    fn a_master_that_starts_begins_nothing_until_it_knows_that_it_is_alone_in_acting() {
        let directory = tempfile::tempdir().unwrap();
        let lost = seen(Some(9), 4, 1);
        let new = || {
            let isolation = Isolation::new(directory.path());
            isolation.check("a highstate").unwrap_err();
            isolation.look(Steady(0), lost);
            let refused = isolation.check("a highstate").unwrap_err().message;
            assert!(refused.contains("no standby follows it yet"), "{refused}");
            assert!(is_noted(directory.path()), "for a promotion of this host");
            isolation
        };
        let none_declared = Surroundings {
            standbys: 0,
            ..lost
        };
        // Half of the minions; a standby; a cluster without standbys.
        for back in [seen(Some(9), 4, 2), seen(None, 4, 1), none_declared] {
            let isolation = new();
            isolation.look(Steady(1), back);
            isolation.check("a highstate").unwrap();
            assert!(!is_noted(directory.path()) && !isolation.is_new());
            // The finding stays valid for a minute.
            isolation.look(Steady(2), lost);
            isolation.check("a highstate").unwrap();
        }
        // Every other host that may run a master answers that it is a standby.
        let isolation = new();
        isolation.all_have_answered(true);
        isolation.look(Steady(1), lost);
        isolation.check("a highstate").unwrap();
        // One of them is silent now.
        isolation.all_have_answered(false);
        isolation.look(Steady(1 + AFTER), lost);
        isolation.check("a highstate").unwrap_err();
        // The operator's confirmation.
        new();
        act_alone(directory.path()).unwrap();
        let isolation = Isolation::new(directory.path());
        isolation.check("a highstate").unwrap();
        isolation.look(Steady(0), lost);
        isolation.check("a highstate").unwrap();
    }

    #[test]
    fn a_master_that_starts_and_cannot_see_what_is_declared_says_why_it_begins_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let isolation = Isolation::new(directory.path());
        isolation.unknown("cluster.yaml:3: no such field");
        let refused = isolation.check("a highstate").unwrap_err().message;
        assert!(refused.contains("cluster.yaml:3"), "{refused}");
        isolation.look(Steady(0), seen(None, 4, 1));
        isolation.unknown("the disk hangs");
        isolation.check("a highstate").unwrap();
    }

    #[test]
    fn a_clock_that_is_set_neither_delays_nor_begins_the_isolation() {
        const HOUR: Millis = 3_600_000;
        for step in [HOUR, -HOUR, 24 * HOUR, -24 * HOUR] {
            let directory = tempfile::tempdir().unwrap();
            let clock = ManualClock::at(1_800_000_000_000);
            let isolation = acting(directory.path());
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
