//! The runs in the store with which the master has worked on etcd, and what follows from them.

use serde_json::Value;

use super::history::{self, BEGINS, OPERATOR};
use super::report::Work;
use crate::app::App;
use crate::refusal::Refusal;
use crate::store::{Audit, Millis, Run, RunStatus, StepStatus};

/// The orchestration.
pub(super) const SLS: &str = "halite.orchestrate.defrag_etcd";
/// The newest runs, among which the trials are.
const RUNS: u32 = 50;

const MINUTE: Millis = 60 * 1000;
/// The time after a trial for room until the next one: after each that failed it doubles.
pub(super) const SOON: Millis = 10 * MINUTE;
/// The longest of these times: what is in use leaves no room, and an operator has to act.
const ROOM: Millis = 60 * MINUTE;
/// The least time between two that succeeded: a writer fills the room again.
const PAUSE: Millis = MINUTE;
/// The time after a defragmentation that failed until the next one.
pub(super) const AGAIN: Millis = 6 * 60 * MINUTE;
/// The longest time of all.
pub(super) const LONGEST: Millis = AGAIN;

/// The part of a run that matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Trial {
    id: String,
    work: Work,
    status: RunStatus,
    created: Millis,
    ended: Millis,
    /// The reason of the failure.
    why: String,
}

/// The trials, newest first.
#[derive(Debug, Default)]
pub(super) struct Trials {
    own: Vec<Trial>,
    /// The time of the oldest run of all kinds: nothing is known of the time before it.
    known_from: Option<Millis>,
}

impl Trials {
    /// Reads them from the store.
    pub(super) async fn read(app: &App) -> Result<Self, Refusal> {
        let runs = app.store.runs(RUNS).await?;
        let known_from = runs.iter().map(|run| run.created).min();
        let mut own = Vec::new();
        for run in runs {
            if run.operator == OPERATOR && run.sls == SLS {
                own.push(trial(app, run).await?);
            }
        }
        Ok(Self { own, known_from })
    }

    /// True while one has not ended.
    pub(super) fn is_open(&self) -> bool {
        let mut own = self.own.iter();
        own.any(|trial| trial.status == RunStatus::Running)
    }

    /// True when the defragmentation of a declared time is not done. Times before the first run do
    /// not count: the cluster did not exist, or nothing is known of them any more.
    pub(super) fn is_due(&self, time: Millis) -> bool {
        let done = |trial: &Trial| trial.created >= time && trial.status == RunStatus::Succeeded;
        let of_work = |trial: &&Trial| trial.work == Work::Defragmentation;
        self.known_from.is_some_and(|known| known < time)
            && !self.own.iter().filter(of_work).any(done)
    }

    /// The time of the next trial for a declared time, and the failure of the last one.
    pub(super) fn defragmentation(&self, time: Millis) -> Option<(Millis, String)> {
        let mut own = self.own.iter();
        let last =
            own.find(|trial| trial.work == Work::Defragmentation && trial.created >= time)?;
        Some((last.ended + AGAIN, last.why.clone()))
    }

    /// The time of the next trial for room, and the failure of the last one.
    pub(super) fn room(&self, now: Millis) -> Option<(Millis, String)> {
        let of_work = |trial: &&Trial| trial.work == Work::Room;
        let last = self.own.iter().find(of_work)?;
        let is_failed = |trial: &&Trial| trial.status != RunStatus::Succeeded;
        let recent = |trial: &&Trial| now - trial.ended < 24 * 60 * MINUTE;
        let rooms = self.own.iter().filter(of_work);
        let failed = rooms.take_while(is_failed).filter(recent).count();
        let Some(doubled) = failed.checked_sub(1) else {
            return Some((last.ended + PAUSE, AGAIN_FULL.to_owned()));
        };
        let doubled = u32::try_from(doubled).unwrap_or(u32::MAX).min(8);
        let pause = (SOON << doubled).min(ROOM);
        Some((last.ended + pause, last.why.clone()))
    }

    /// Records the outcome of those that have ended in the audit log, each once.
    pub(super) async fn note_outcomes(&self, app: &App) -> Result<(), Refusal> {
        let ended = || {
            let own = self.own.iter().rev();
            own.filter(|trial| trial.status != RunStatus::Running)
        };
        if ended().next().is_none() {
            return Ok(());
        }
        let lines = history::lines(app).await?;
        for trial in ended() {
            let what = format!("{}, run {}", trial.work.title(), trial.id);
            let is_outcome = |line: &Audit| line.what == what && line.outcome != BEGINS;
            if lines.iter().any(is_outcome) {
                continue;
            }
            let outcome = match trial.status {
                RunStatus::Succeeded => "ok".to_owned(),
                _ => trial.why.clone(),
            };
            history::append(app, what, outcome).await?;
        }
        Ok(())
    }
}

const AGAIN_FULL: &str =
    "the room that was made is used again; a larger `quota-backend-bytes` goes into etcd.extraArgs";

async fn trial(app: &App, run: Run) -> Result<Trial, Refusal> {
    let pillar: Value = serde_json::from_str(&run.pillar_json).unwrap_or_default();
    let work = match pillar["above"].as_u64() {
        Some(100) => Work::Room,
        _ => Work::Defragmentation,
    };
    let why = match run.status {
        RunStatus::Running | RunStatus::Succeeded => String::new(),
        _ => reason(app, &run).await?,
    };
    Ok(Trial {
        id: run.id.to_string(),
        work,
        status: run.status,
        created: run.created,
        ended: run.changed,
        why,
    })
}

/// The comment of the step that failed.
async fn reason(app: &App, run: &Run) -> Result<String, Refusal> {
    let steps = app.store.steps(&run.id).await?;
    let failed = steps.iter().find(|step| step.status == StepStatus::Failed);
    let comment = failed.and_then(|step| {
        let detail: Value = serde_json::from_str(&step.detail_json).ok()?;
        Some(detail["comment"].as_str()?.trim().to_owned())
    });
    Ok(comment
        .unwrap_or_else(|| format!("the run {} failed; `ctl job show` has its steps", run.id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Millis = 1_800_000_000_000;

    fn ended(work: Work, status: RunStatus, ago: Millis) -> Trial {
        Trial {
            id: String::new(),
            work,
            status,
            created: NOW - ago,
            ended: NOW - ago,
            why: "no room".to_owned(),
        }
    }

    fn trials(own: Vec<Trial>) -> Trials {
        Trials {
            own,
            known_from: Some(NOW - 1000 * MINUTE),
        }
    }

    #[test]
    fn each_trial_for_room_that_failed_doubles_the_pause() {
        let failed = |ago| ended(Work::Room, RunStatus::Failed, ago);
        let pause = |own: Vec<Trial>| trials(own).room(NOW).map(|(next, _)| (next - NOW) / MINUTE);
        assert_eq!(pause(Vec::new()), None);
        assert_eq!(pause(vec![failed(0)]), Some(10));
        assert_eq!(pause(vec![failed(0), failed(MINUTE)]), Some(20));
        let many = (0..30).map(|place| failed(place * MINUTE)).collect();
        assert_eq!(pause(many), Some(60));
        // A success, or a day, ends the series.
        let done = ended(Work::Room, RunStatus::Succeeded, 0);
        assert_eq!(pause(vec![done.clone(), failed(1)]), Some(1));
        assert_eq!(pause(vec![failed(0), done, failed(1)]), Some(10));
    }

    #[test]
    fn a_declared_time_is_due_until_a_run_after_it_succeeded() {
        let of_time = Work::Defragmentation;
        let due = |own: Vec<Trial>| trials(own).is_due(NOW - 5 * MINUTE);
        assert!(due(Vec::new()));
        assert!(due(vec![ended(of_time, RunStatus::Failed, 0)]));
        assert!(due(vec![ended(Work::Room, RunStatus::Succeeded, 0)]));
        assert!(due(vec![ended(of_time, RunStatus::Succeeded, 6 * MINUTE)]));
        assert!(!due(vec![ended(of_time, RunStatus::Succeeded, 5 * MINUTE)]));
        // A cluster that is newer than its time.
        assert!(!trials(Vec::new()).is_due(NOW - 2000 * MINUTE));
        assert!(!Trials::default().is_due(NOW));
        let failed = trials(vec![ended(of_time, RunStatus::Failed, MINUTE)]);
        let (next, why) = failed.defragmentation(NOW - 5 * MINUTE).unwrap();
        assert_eq!((next, why.as_str()), (NOW - MINUTE + AGAIN, "no room"));
        assert_eq!(failed.defragmentation(NOW), None);
    }
}
