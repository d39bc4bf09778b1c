//! A finished orchestration, and its printed outcome.

use halite_api::{
    PartReturned, RunEnded, RunOutcome, RunOutcomes, RunStatus, UpgradePlan, to_value,
};
use halite_proto::ids::MinionId;

use crate::FAILED;
use crate::job_watch::{MinionReturn, minion_outcome};
use crate::output::returns::View;
use crate::output::{Paint, Screen, returns, seconds};

/// A finished orchestration.
#[derive(Debug, Clone, Default)]
pub struct FinishedRun {
    /// The return code of the orchestration.
    pub retcode: i32,
    /// The end of the run; `None` if it had ended before.
    pub run: Option<RunEnded>,
    /// All failures, for people: minion, state, comment.
    pub failures: Vec<String>,
    /// Remarks on steps that succeeded, for people.
    pub notes: Vec<String>,
    /// The duration, in seconds.
    pub seconds: f64,
    /// The changes that a test predicts on each host, in the order of the run.
    pub predicted: Vec<(MinionId, MinionReturn)>,
    /// The plan of an upgrade that was tested.
    pub plan: Option<UpgradePlan>,
    /// The options with which its command named the master, for the command that repeats it.
    pub access_options: String,
}

/// The beginning of the remark on a step that left hosts out.
pub(crate) const LEFT_OUT: &str = "not connected, so left out of";

impl FinishedRun {
    /// The operator who cancelled the run; `None` if it was not cancelled.
    pub fn cancelled_by(&self) -> Option<&str> {
        self.run.as_ref()?.cancelled_by.as_deref()
    }

    /// The comment of a step; empty without such a step.
    pub fn comment(&self, step: &str) -> &str {
        let mut steps = self.run.iter().flat_map(|run| &run.steps);
        let step = steps.find(|found| found.name == step);
        let comment = step.and_then(|step| step.detail.comment.as_deref());
        comment.unwrap_or_default()
    }

    /// The outcome as a document.
    fn outcome(&self) -> RunOutcome {
        RunOutcome {
            retcode: self.retcode,
            seconds: Some(self.seconds),
            failures: self.failures.clone(),
            notes: self.notes.clone(),
            run: self.run.clone(),
            minions: (self.predicted.iter())
                .map(|(minion, returned)| (minion.clone(), minion_outcome(returned)))
                .collect(),
            plan: self.plan.clone(),
        }
    }

    /// Records the changes that a job predicts on a host; the last prediction counts.
    pub fn predict(&mut self, part: &PartReturned) {
        self.predicted.retain(|(minion, _)| *minion != part.minion);
        let returned = MinionReturn::from(part.clone());
        self.predicted.push((part.minion.clone(), returned));
    }

    /// The predicted changes, as text for people.
    fn prediction(&self, paint: &Paint) -> String {
        let view = View {
            test: true,
            verbose: false,
        };
        let runs = self.predicted.iter();
        let runs = runs.filter_map(|(minion, returned)| Some((minion, returned.run.as_ref()?)));
        runs.map(|(minion, run)| returns::run(minion, run, view, paint))
            .collect()
    }

    /// The operator who paused the run; `None` if it was not paused.
    fn paused_by(&self) -> Option<&str> {
        let run = self.run.as_ref()?;
        (run.status == RunStatus::Paused).then_some(())?;
        run.paused_by.as_deref()
    }

    /// Removes the remarks on hosts that steps left out, for commands after which the remedy in
    /// them does not apply. Returns whether there were any.
    pub fn forget_left_out(&mut self) -> bool {
        let before = self.notes.len();
        self.notes.retain(|note| !note.starts_with(LEFT_OUT));
        self.notes.len() < before
    }
}

/// The text for the success of an orchestration: `success`, unless it was a test.
pub fn success_of(success: &str, test: bool) -> &str {
    if test { "nothing was changed" } else { success }
}

/// Prints the outcome of an orchestration, and returns the exit code. `success` is the text for a
/// success; `again` is the command that repeats it.
///
/// # Errors
/// The outcome cannot be written.
pub fn print_outcome(
    done: &FinishedRun,
    success: &str,
    again: &str,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    screen.answer(&to_value(&done.outcome()), |paint| {
        let mut text = done.prediction(paint);
        for note in &done.notes {
            text.push_str(&format!("{} {note}\n", paint.notable("!")));
        }
        if let Some(by) = done.paused_by() {
            return format!("{text}paused by {by}; `ctl upgrade resume` continues it.\n");
        }
        if done.retcode == 0 {
            return format!("{text}{success} ({}).\n", seconds(done.seconds));
        }
        for failure in &done.failures {
            text.push_str(&format!(
                "{} {}\n",
                paint.bad("✗"),
                failure.replace('\n', "\n    ")
            ));
        }
        let way = way_on([Some(done)]);
        format!("{text}{way}: {again}{}\n", done.access_options)
    })?;
    Ok(if done.retcode == 0 { 0 } else { FAILED })
}

/// Prints the outcome of several orchestrations, and returns the exit code: a failure of one is a
/// failure. `success` is the text for one that succeeded.
///
/// # Errors
/// The outcome cannot be written.
pub fn print_outcomes(
    done: &[(String, anyhow::Result<FinishedRun>)],
    success: &str,
    again: &str,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    let failed = (done.iter()).any(|(_, run)| run.as_ref().map_or(true, |run| run.retcode != 0));
    let nodes = done.iter();
    let nodes = nodes.map(|(label, run)| (label.clone(), outcome(run)));
    let outcomes = RunOutcomes {
        retcode: i32::from(failed),
        nodes: nodes.collect(),
    };
    screen.answer(&to_value(&outcomes), |paint| {
        let mut text = String::new();
        for (label, run) in done {
            let (notes, failures) = match run {
                Ok(run) => (run.notes.as_slice(), run.failures.clone()),
                Err(error) => (&[][..], vec![format!("{error:#}")]),
            };
            for note in notes {
                text.push_str(&format!("{} {label}: {note}\n", paint.notable("!")));
            }
            match run {
                Ok(run) if run.retcode == 0 => {
                    let mark = paint.good("✓");
                    text.push_str(&format!(
                        "{mark} {label} {success} ({}).\n",
                        seconds(run.seconds)
                    ));
                }
                _ => {
                    for failure in failures {
                        let failure = failure.replace('\n', "\n    ");
                        text.push_str(&format!("{} {label}: {failure}\n", paint.bad("✗")));
                    }
                }
            }
        }
        if failed {
            let way = way_on(done.iter().map(|(_, run)| run.as_ref().ok()));
            let mut runs = done.iter().filter_map(|(_, run)| run.as_ref().ok());
            let options = runs.next().map_or("", |run| &run.access_options);
            text.push_str(&format!("{way}: {again}{options}\n"));
        }
        text
    })?;
    Ok(if failed { FAILED } else { 0 })
}

/// The advice after runs that did not all succeed. If an operator cancelled them, there is no cause
/// to fix.
fn way_on<'a>(runs: impl IntoIterator<Item = Option<&'a FinishedRun>>) -> &'static str {
    let mut failed = runs
        .into_iter()
        .filter(|run| run.is_none_or(|run| run.retcode != 0));
    if failed.all(|run| run.is_some_and(|run| run.cancelled_by().is_some())) {
        return "Finished steps are kept. To continue, run the same command again";
    }
    "Finished steps are kept. Fix the cause, then run the same command again"
}

/// The outcome of one orchestration, as a document.
fn outcome(run: &anyhow::Result<FinishedRun>) -> RunOutcome {
    match run {
        Ok(done) => done.outcome(),
        Err(error) => RunOutcome {
            retcode: i32::from(FAILED),
            failures: vec![format!("{error:#}")],
            ..RunOutcome::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use halite_api::{Step, StepDetail, StepStatus};

    use super::*;
    use crate::output::Format;

    fn ended(by: Option<&str>, steps: Vec<Step>) -> RunEnded {
        RunEnded {
            run: "20261121000000123000".parse().unwrap(),
            status: RunStatus::Failed,
            cancelled_by: by.map(str::to_owned),
            paused_by: None,
            retcode: 1,
            steps,
        }
    }

    #[test]
    fn what_was_cancelled_has_no_cause_to_fix() {
        let run = |retcode: i32, by: Option<&str>| FinishedRun {
            retcode,
            run: Some(ended(by, Vec::new())),
            ..FinishedRun::default()
        };
        let (good, bad) = (run(0, None), run(1, None));
        let cancelled = run(1, Some("alice"));
        assert!(way_on([Some(&cancelled), Some(&good)]).contains("To continue"));
        for other in [Some(&bad), None] {
            assert!(way_on([Some(&cancelled), other]).contains("Fix the cause"));
        }
    }

    #[test]
    fn the_command_to_repeat_names_the_same_cluster() {
        let done = FinishedRun {
            retcode: 1,
            access_options: " --context ship-2".to_owned(),
            ..FinishedRun::default()
        };
        let again = "ctl node add worker-1";
        let printed = |print: &dyn Fn(&mut Screen) -> anyhow::Result<u8>| {
            let out = tempfile::NamedTempFile::new().unwrap();
            let open = || out.reopen().unwrap();
            print(&mut Screen::on(Format::Table, open(), open())).unwrap();
            std::fs::read_to_string(out.path()).unwrap()
        };
        let one = printed(&|screen| print_outcome(&done, "is Ready", again, screen));
        let runs = [("worker-1".to_owned(), Ok(done.clone()))];
        let several = printed(&|screen| print_outcomes(&runs, "is Ready", again, screen));
        for text in [one, several] {
            let says = "run the same command again: ctl node add worker-1 --context ship-2\n";
            assert!(text.ends_with(says), "{text}");
        }
    }

    #[test]
    fn a_step_says_what_it_did() {
        let step = |index: u32, name: &str, comment: &str| Step {
            index,
            name: name.to_owned(),
            status: StepStatus::Succeeded,
            started: None,
            ended: None,
            seconds: None,
            detail: StepDetail {
                comment: Some(comment.to_owned()),
                ..StepDetail::default()
            },
        };
        let steps = vec![
            step(0, "turn", "this run holds it"),
            step(1, "defragmented", "cp-2: 20 MiB → 9 MiB"),
        ];
        let done = FinishedRun {
            run: Some(ended(None, steps)),
            ..FinishedRun::default()
        };
        assert_eq!(done.comment("defragmented"), "cp-2: 20 MiB → 9 MiB");
        assert_eq!(FinishedRun::default().comment("turn"), "");
    }
}
