//! The stored runs in which the master has defragmented etcd, and their consequences.

use halite_core::app::App;
use halite_core::refusal::Refusal;
use halite_states::shipped::DEFRAG_ETCD;
use halite_store::{Audit, Millis, Run, RunStatus, StepStatus};
use serde_json::Value;

use super::history::{self, BEGINS, DEFRAGMENTATION, MEMORY, OPERATOR};

/// The time after a failed trial until the next one.
pub(super) const AGAIN: Millis = 6 * 60 * 60 * 1000;

/// The relevant part of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Trial {
    id: String,
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
    /// The time of the oldest run or job of any kind: the time before it is unknown.
    known_from: Option<Millis>,
}

impl Trials {
    /// Reads them from the store.
    pub(super) async fn read(app: &App) -> Result<Self, Refusal> {
        let since = app.clock.now() - MEMORY;
        let known_from = app.store.oldest().await?;
        let mut own = Vec::new();
        for run in app.store.runs_of(DEFRAG_ETCD, since).await? {
            if run.operator == OPERATOR && is_scheduled(&run) {
                own.push(trial(app, run).await?);
            }
        }
        Ok(Self { own, known_from })
    }

    /// Returns whether the defragmentation of a declared time is not done. Times before the first
    /// record do not count: the cluster did not exist, or the records are gone.
    pub(super) fn is_due(&self, time: Millis) -> bool {
        let done = |trial: &Trial| trial.created >= time && trial.status == RunStatus::Succeeded;
        self.known_from.is_some_and(|known| known < time) && !self.own.iter().any(done)
    }

    /// The time of the next trial for a declared time, and the failure of the last one.
    pub(super) fn failure(&self, time: Millis) -> Option<(Millis, String)> {
        let last = self.own.first().filter(|trial| trial.created >= time)?;
        let failed = last.status != RunStatus::Running && last.status != RunStatus::Succeeded;
        failed.then(|| (last.ended + AGAIN, last.why.clone()))
    }

    /// Records the outcome of ended trials in the audit log, each once.
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
            let what = format!("{DEFRAGMENTATION}, run {}", trial.id);
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

/// Returns whether a run belongs to a declared time; a run that clears a reached quota names no
/// percentage.
fn is_scheduled(run: &Run) -> bool {
    let pillar: Value = serde_json::from_str(&run.pillar_json).unwrap_or_default();
    pillar["above"].is_u64()
}

async fn trial(app: &App, run: Run) -> Result<Trial, Refusal> {
    let why = match run.status {
        RunStatus::Running | RunStatus::Succeeded => String::new(),
        _ => reason(app, &run).await?,
    };
    Ok(Trial {
        id: run.id.to_string(),
        status: run.status,
        created: run.created,
        ended: run.changed,
        why,
    })
}

/// The operator who ended it, or the error of the step that failed.
async fn reason(app: &App, run: &Run) -> Result<String, Refusal> {
    if let Some(by) = run
        .cancelled_by
        .as_ref()
        .filter(|_| run.status == RunStatus::Cancelled)
    {
        return Ok(format!("cancelled by {by}"));
    }
    let steps = app.store.steps(&run.id).await?;
    let failed = steps.iter().find(|step| step.status == StepStatus::Failed);
    let error = failed.and_then(|step| {
        let detail: Value = serde_json::from_str(&step.detail_json).ok()?;
        Some(detail["error"].as_str()?.trim().to_owned())
    });
    Ok(error.unwrap_or_else(|| format!("the run {} failed; `ctl etcd defrag` shows why", run.id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Millis = 1_800_000_000_000;
    const MINUTE: Millis = 60 * 1000;

    fn ended(status: RunStatus, ago: Millis) -> Trial {
        Trial {
            id: String::new(),
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
    fn a_declared_time_is_due_until_a_run_after_it_succeeded() {
        let due = |own: Vec<Trial>| trials(own).is_due(NOW - 5 * MINUTE);
        assert!(due(Vec::new()));
        assert!(due(vec![ended(RunStatus::Failed, 0)]));
        assert!(due(vec![ended(RunStatus::Succeeded, 6 * MINUTE)]));
        assert!(!due(vec![ended(RunStatus::Succeeded, 5 * MINUTE)]));
        // A cluster that is newer than its time.
        assert!(!trials(Vec::new()).is_due(NOW - 2000 * MINUTE));
        assert!(!Trials::default().is_due(NOW));
    }

    #[test]
    fn after_a_failure_there_is_a_pause() {
        let failed = trials(vec![ended(RunStatus::Failed, MINUTE)]);
        let (next, why) = failed.failure(NOW - 5 * MINUTE).unwrap();
        assert_eq!((next, why.as_str()), (NOW - MINUTE + AGAIN, "no room"));
        // A trial for an earlier time does not count for this one.
        assert_eq!(failed.failure(NOW), None);
        let runs = trials(vec![ended(RunStatus::Running, MINUTE)]);
        assert_eq!(runs.failure(NOW - 5 * MINUTE), None);
    }
}
