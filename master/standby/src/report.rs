//! The record of a standby's streams on its disk: the time until which it had everything of the
//! master, and whether the master may have continued without it since.
//!
//! A copy alone shows its content, not what is missing. A promotion and `ctl master list` read
//! this.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use halite_core::clock::{Clock, millis, rfc3339};
use halite_core::config::Config;
use halite_errors::chain;
use halite_store::Millis;
use serde::{Deserialize, Serialize};

use super::directory;
use super::disk::{CopyError, read_json, write_json};

/// The interval between two marks that the daemon runs.
const MARK: Duration = Duration::from_secs(10);
/// The age of the last mark after which the daemon counts as stopped; a restart takes less.
const DEAD: Millis = 60_000;

/// The state of a standby's stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamReport {
    /// The address of the master.
    pub master: String,
    /// The time at which the stream started or ended.
    pub since: String,
    /// `true` if the master's commits wait for this standby.
    pub following: bool,
    /// The last mark that the daemon runs; `None` from an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alive: Option<String>,
    /// The reason why the master may have answered requests since that this host lacks; `None`
    /// while it follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<Missed>,
}

/// The reason why a copy may lack data that the master has answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missed {
    /// The daemon did not run on this host.
    Off {
        /// Its last mark.
        from: String,
        /// Its start, or now.
        to: String,
    },
    /// A master has answered, but not all of its data arrived.
    Answered {
        /// The time of its answer.
        at: String,
    },
}

impl fmt::Display for Missed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off { from, to } => {
                write!(
                    f,
                    "halite-master did not run on this host from {from} to {to}"
                )
            }
            Self::Answered { at } => {
                write!(
                    f,
                    "the master answered at {at}, and this host has not taken all of it"
                )
            }
        }
    }
}

impl StreamReport {
    /// The time until which this standby is known to have everything.
    #[must_use]
    pub fn until(&self) -> &str {
        match &self.alive {
            Some(alive) if self.following => alive,
            _ => &self.since,
        }
    }

    /// The reason why the copy may lack data at this moment.
    #[must_use]
    pub fn missed(&self, now: Millis) -> Option<Missed> {
        self.missed.clone().or_else(|| self.off(now, DEAD))
    }

    /// The time without a mark, if it is at least this long.
    fn off(&self, now: Millis, least: Millis) -> Option<Missed> {
        let alive = self.alive.as_ref()?;
        let is_long = millis(alive).is_none_or(|alive| now - alive >= least);
        is_long.then(|| Missed::Off {
            from: alive.clone(),
            to: rfc3339(now),
        })
    }
}

/// Formats a duration in its two largest units: `2 h 5 min`.
#[must_use]
pub fn age(millis: Millis) -> String {
    let seconds = millis.max(0) / 1000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, _, _) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

/// The last state of the stream; `None` before the first one.
///
/// # Errors
/// The record cannot be read.
pub fn report(config: &Config) -> Result<Option<StreamReport>, CopyError> {
    read_json(&directory(config).join("report.json"))
}

/// The daemon's side of the record.
pub(super) struct Diary<'a> {
    config: &'a Config,
    clock: &'a dyn Clock,
    report: Mutex<Option<StreamReport>>,
}

impl<'a> Diary<'a> {
    /// Starts from the record that the previous daemon has left.
    pub(super) fn open(config: &'a Config, clock: &'a dyn Clock) -> Result<Self, CopyError> {
        let diary = Self {
            config,
            clock,
            report: Mutex::new(report(config)?),
        };
        let now = clock.now();
        diary.change(|report| {
            // Changes of the master after it had ended the stream were already missed.
            let least = if report.following { 0 } else { DEAD };
            let off = report.off(now, least);
            report.missed = report.missed.take().or(off);
            report.since = report.until().to_owned();
            report.following = false;
            report.alive = Some(rfc3339(now));
        })?;
        Ok(diary)
    }

    fn report(&self) -> MutexGuard<'_, Option<StreamReport>> {
        // No code panics while it holds the lock.
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the record, if there is one; it is on disk when this returns.
    fn change(&self, how: impl FnOnce(&mut StreamReport)) -> Result<(), CopyError> {
        let mut report = self.report();
        let Some(report) = report.as_mut() else {
            return Ok(());
        };
        how(report);
        write_json(&directory(self.config).join("report.json"), report)
    }

    /// Records that a master has answered.
    pub(super) fn answered(&self) -> Result<(), CopyError> {
        let at = rfc3339(self.clock.now());
        self.change(|report| report.missed = Some(Missed::Answered { at }))
    }

    /// Records that all data of the master at this address have arrived, and each commit follows.
    pub(super) fn following(&self, master: &str) -> Result<(), CopyError> {
        let now = rfc3339(self.clock.now());
        *self.report() = Some(StreamReport {
            master: master.to_owned(),
            since: now.clone(),
            following: true,
            alive: Some(now),
            missed: None,
        });
        self.change(|_| {})
    }

    /// Records that the stream has ended.
    pub(super) fn ended(&self) -> Result<(), CopyError> {
        let now = rfc3339(self.clock.now());
        self.change(|report| {
            report.since.clone_from(&now);
            report.following = false;
            report.alive = Some(now);
        })
    }

    /// Marks periodically that the daemon runs. Never returns.
    pub(super) async fn mark(&self) {
        loop {
            tokio::time::sleep(MARK).await;
            let now = rfc3339(self.clock.now());
            if let Err(error) = self.change(|report| report.alive = Some(now)) {
                tracing::warn!(error = chain(&error), "cannot mark that this standby runs");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use halite_core::clock::ManualClock;

    use super::*;
    use crate::tests::MasterHost;

    const MINUTE: Millis = 60_000;

    fn host() -> MasterHost {
        let host = MasterHost::new();
        std::fs::create_dir(directory(&host.config)).unwrap();
        host
    }

    fn read(host: &MasterHost) -> StreamReport {
        report(&host.config).unwrap().unwrap()
    }

    #[test]
    fn a_standby_that_ran_until_the_master_fell_silent_has_missed_nothing() {
        let (host, clock) = (host(), ManualClock::at(0));
        let diary = Diary::open(&host.config, &clock).unwrap();
        assert_eq!(report(&host.config).unwrap(), None);
        diary.answered().unwrap();
        diary.following("m").unwrap();
        clock.advance(5 * MINUTE);
        assert!(read(&host).missed(clock.now()).is_some(), "no mark");
        diary
            .change(|report| report.alive = Some(rfc3339(clock.now())))
            .unwrap();
        assert_eq!(read(&host).missed(clock.now()), None);
        assert_eq!(read(&host).until(), rfc3339(5 * MINUTE));
        clock.advance(MINUTE);
        diary.ended().unwrap();
        // The daemon restarts, as after a refused promotion.
        clock.advance(20_000);
        drop(diary);
        let _diary = Diary::open(&host.config, &clock).unwrap();
        let found = read(&host);
        assert_eq!(found.missed(clock.now()), None);
        assert_eq!(found.until(), rfc3339(6 * MINUTE));
    }

    #[test]
    fn a_standby_that_was_off_or_heard_of_the_master_again_may_have_missed_something() {
        let (host, clock) = (host(), ManualClock::at(0));
        let diary = Diary::open(&host.config, &clock).unwrap();
        diary.following("m").unwrap();
        drop(diary);
        // It was killed while it followed: the master continued without it, if only for a moment.
        clock.advance(5_000);
        let diary = Diary::open(&host.config, &clock).unwrap();
        let missed = read(&host).missed(clock.now()).unwrap();
        assert_eq!(
            missed.to_string(),
            "halite-master did not run on this host from 1970-01-01T00:00:00.000Z to 1970-01-01T00:00:05.000Z"
        );
        assert_eq!(read(&host).until(), rfc3339(0));
        diary.answered().unwrap();
        let missed = read(&host).missed(clock.now()).unwrap();
        assert!(missed.to_string().contains("answered at"), "{missed}");
        diary.following("m").unwrap();
        assert_eq!(read(&host).missed(clock.now()), None);
        // Off for an hour after the stream had ended.
        diary.ended().unwrap();
        drop(diary);
        clock.advance(60 * MINUTE);
        assert!(
            read(&host).missed(clock.now()).is_some(),
            "also while it is off"
        );
        let _diary = Diary::open(&host.config, &clock).unwrap();
        let found = read(&host);
        assert!(matches!(
            found.missed(clock.now()),
            Some(Missed::Off { .. })
        ));
        assert_eq!(found.until(), rfc3339(5_000));
    }

    #[test]
    fn ages_have_their_two_largest_units() {
        let found = [-5, 59_999, 61_000, 7_500_000, 90_000_000].map(age);
        assert_eq!(found, ["0 s", "59 s", "1 min 1 s", "2 h 5 min", "1 d 1 h"]);
    }

    #[test]
    fn the_record_of_an_earlier_version_says_nothing_of_what_is_missed() {
        let text = r#"{"master": "m", "since": "2026-11-23T10:00:00.000Z", "following": false}"#;
        let found: StreamReport = serde_json::from_str(text).unwrap();
        assert_eq!(found.missed(i64::MAX / 2), None);
        assert_eq!(found.until(), "2026-11-23T10:00:00.000Z");
    }
}
