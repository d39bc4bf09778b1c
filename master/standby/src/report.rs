//! The record of a standby's streams on its disk: the time until which it had everything of the
//! master, and whether the master may have continued without it since.
//!
//! A copy alone shows its content, not what is missing. A promotion and `ctl master list` read
//! this.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use halite_api::{StreamGap, StreamReport, Time};
use halite_core::clock::Clock;
use halite_core::config::Config;
use halite_errors::chain;
use halite_store::Millis;

use super::directory;
use super::disk::{CopyError, read_json, write_json};

/// The interval between two marks that the daemon runs.
const MARK: Duration = Duration::from_secs(10);
/// The age of the last mark after which the daemon counts as stopped; a restart takes less.
const DEAD: Millis = 60_000;

/// The reason why the copy may lack data at this moment.
#[must_use]
pub fn gap(report: &StreamReport, now: Millis) -> Option<StreamGap> {
    report.missed.clone().or_else(|| off(report, now, DEAD))
}

/// The time without a mark, if it is at least this long.
fn off(report: &StreamReport, now: Millis, least: Millis) -> Option<StreamGap> {
    let from = report.alive?;
    let to = Time::from_millis(now);
    (now - from.as_millis() >= least).then_some(StreamGap::Off { from, to })
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
    read_json(&directory(config).join(StreamReport::FILE))
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
            let off = off(report, now, least);
            report.missed = report.missed.take().or(off);
            report.since = report.until();
            report.following = false;
            report.alive = Some(Time::from_millis(now));
        })?;
        Ok(diary)
    }

    fn now(&self) -> Time {
        Time::from_millis(self.clock.now())
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
        write_json(&directory(self.config).join(StreamReport::FILE), report)
    }

    /// Records that a master has answered.
    pub(super) fn answered(&self) -> Result<(), CopyError> {
        let at = self.now();
        self.change(|report| report.missed = Some(StreamGap::Answered { at }))
    }

    /// Records that all data of the master at this address have arrived, and each commit follows.
    pub(super) fn following(&self, master: &str) -> Result<(), CopyError> {
        let now = self.now();
        *self.report() = Some(StreamReport {
            master: master.to_owned(),
            since: now,
            following: true,
            alive: Some(now),
            missed: None,
        });
        self.change(|_| {})
    }

    /// Records that the stream has ended.
    pub(super) fn ended(&self) -> Result<(), CopyError> {
        let now = self.now();
        self.change(|report| {
            report.since = now;
            report.following = false;
            report.alive = Some(now);
        })
    }

    /// Marks periodically that the daemon runs. Never returns.
    pub(super) async fn mark(&self) {
        loop {
            tokio::time::sleep(MARK).await;
            let now = self.now();
            if let Err(error) = self.change(|report| report.alive = Some(now)) {
                tracing::warn!(error = chain(&error), "cannot mark that this standby runs");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use halite_core::clock::ManualClock;
    use halite_golden::check_golden;

    use super::*;
    use crate::tests::MasterHost;

    const MINUTE: Millis = 60_000;
    const NOW: Millis = 1_800_000_000_000;

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
        assert!(gap(&read(&host), clock.now()).is_some(), "no mark");
        diary
            .change(|report| report.alive = Some(Time::from_millis(clock.now())))
            .unwrap();
        assert_eq!(gap(&read(&host), clock.now()), None);
        assert_eq!(read(&host).until(), Time::from_millis(5 * MINUTE));
        clock.advance(MINUTE);
        diary.ended().unwrap();
        // The daemon restarts, as after a refused promotion.
        clock.advance(20_000);
        drop(diary);
        let _diary = Diary::open(&host.config, &clock).unwrap();
        let found = read(&host);
        assert_eq!(gap(&found, clock.now()), None);
        assert_eq!(found.until(), Time::from_millis(6 * MINUTE));
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
        let missed = gap(&read(&host), clock.now()).unwrap();
        assert_eq!(
            missed.to_string(),
            "halite-master did not run on this host from 1970-01-01T00:00:00.000Z to 1970-01-01T00:00:05.000Z"
        );
        assert_eq!(read(&host).until(), Time::from_millis(0));
        diary.answered().unwrap();
        let missed = gap(&read(&host), clock.now()).unwrap();
        assert!(missed.to_string().contains("answered at"), "{missed}");
        diary.following("m").unwrap();
        assert_eq!(gap(&read(&host), clock.now()), None);
        // Off for an hour after the stream had ended.
        diary.ended().unwrap();
        drop(diary);
        clock.advance(60 * MINUTE);
        assert!(
            gap(&read(&host), clock.now()).is_some(),
            "also while it is off"
        );
        let _diary = Diary::open(&host.config, &clock).unwrap();
        let found = read(&host);
        assert!(matches!(
            gap(&found, clock.now()),
            Some(StreamGap::Off { .. })
        ));
        assert_eq!(found.until(), Time::from_millis(5_000));
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
        assert_eq!(gap(&found, i64::MAX / 2), None);
        assert_eq!(found.until().to_string(), "2026-11-23T10:00:00.000Z");
    }

    /// `ctl`'s tests read the stored records.
    #[test]
    fn the_record_is_what_ctl_reads() {
        let (host, clock) = (host(), ManualClock::at(NOW));
        let check = |name: &str| {
            let text = std::fs::read_to_string(directory(&host.config).join(StreamReport::FILE));
            let value: serde_json::Value = serde_json::from_str(&text.unwrap()).unwrap();
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lib/api/contract");
            check_golden(&root.join(name), &format!("{value:#}\n"));
        };
        let diary = Diary::open(&host.config, &clock).unwrap();
        diary.following("10.0.0.11:4550").unwrap();
        check("standby-report-following.json");
        drop(diary);
        clock.advance(MINUTE);
        let diary = Diary::open(&host.config, &clock).unwrap();
        check("standby-report-off.json");
        diary.following("10.0.0.11:4550").unwrap();
        diary.ended().unwrap();
        clock.advance(MINUTE);
        diary.answered().unwrap();
        check("standby-report-answered.json");
    }
}
