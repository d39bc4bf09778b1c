//! The documents of `ctl job`, as text for people.

use halite_api::{Job, JobCancellation, JobList, JobOrRun, JobPart, MinionAnswer, Run, Step};
use serde_json::Value;

use crate::output::returns::View;
use crate::output::{Paint, list as listed, or_dash, returns, table, yes_no};

/// Formats jobs as a table.
pub fn list(jobs: &JobList) -> String {
    let heading = [
        "job", "created", "function", "target", "test", "operator", "status", "retcode",
    ];
    let row = |job: &Job| {
        vec![
            job.job.to_string(),
            job.created.to_string(),
            job.function.clone(),
            job.target.clone(),
            yes_no(job.test),
            job.operator.clone(),
            job.status.to_string(),
            or_dash(job.retcode),
        ]
    };
    table::rows(&heading, jobs.jobs.iter().map(row))
}

/// Names the minions that were asked to end a job, and those whose part ended immediately.
pub fn cancelled(answer: &JobCancellation) -> String {
    let job = &answer.job;
    let groups = [
        (&answer.ended, "ended immediately on"),
        (&answer.asked, "asked to end it"),
        (&answer.runs, "cannot be cancelled, and runs to its end on"),
    ];
    let groups = groups
        .into_iter()
        .filter(|(minions, _)| !minions.is_empty());
    let mut lines: Vec<String> = groups
        .map(|(minions, text)| format!("{text}: {}", minions.join(", ")))
        .collect();
    if lines.is_empty() {
        lines.push(format!("no minion of job {job} is connected"));
    } else {
        lines.push(format!("`ctl job show {job}` shows the returns"));
    }
    lines.join("\n") + "\n"
}

/// Formats the fields of a job with its returns, or of a run with its steps.
pub fn one(shown: &JobOrRun, paint: &Paint) -> String {
    match shown {
        JobOrRun::Job(job) => of_job(job, paint),
        JobOrRun::Run(run) => of_run(run),
    }
}

fn json(value: Option<&Value>) -> String {
    or_dash(value.map(table::cell))
}

fn of_job(job: &Job, paint: &Paint) -> String {
    let order: Vec<String> = job.order.iter().map(|group| listed(group)).collect();
    let mut text = table::fields(&[
        ("job", job.job.to_string()),
        ("function", job.function.clone()),
        ("args", json(job.args.as_ref())),
        ("test", yes_no(job.test)),
        ("operator", job.operator.clone()),
        ("target", job.target.clone()),
        ("minions", listed(&job.minions)),
        ("order", or_dash(Some(order.join(" → ")))),
        ("created", job.created.to_string()),
        ("status", job.status.to_string()),
        ("retcode", or_dash(job.retcode)),
        ("finished", or_dash(job.finished)),
        ("bundle", or_dash(job.bundle.as_ref())),
        ("withheld", or_dash(job.withheld.as_ref())),
    ]);
    let view = View {
        test: job.test,
        verbose: false,
    };
    for part in job.returns.iter().flatten() {
        text.push('\n');
        text.push_str(&returned(part, view, paint));
    }
    text
}

/// Formats a minion's return: a state run with its states, other values unchanged.
fn returned(part: &JobPart, view: View, paint: &Paint) -> String {
    let run = part.answer.as_ref().and_then(MinionAnswer::states);
    let mut text = match run {
        Some(run) => returns::run(&part.minion, &run, view, paint),
        None => format!(
            "{}: {} {}\n",
            part.minion,
            part.state,
            json(part.answer.as_ref().map(|answer| &answer.0))
        ),
    };
    if let Some(error) = &part.error {
        text.push_str(&format!("  {} {error}\n", paint.bad("✗")));
    }
    text
}

fn of_run(run: &Run) -> String {
    let mut text = table::fields(&[
        ("run", run.run.to_string()),
        ("sls", run.sls.clone()),
        ("pillar", json(run.pillar_without_digests().as_ref())),
        ("test", yes_no(run.test)),
        ("operator", run.operator.clone()),
        ("status", run.status.to_string()),
        ("cancelled by", or_dash(run.cancelled_by.as_ref())),
        ("paused by", or_dash(run.paused_by.as_ref())),
        ("created", run.created.to_string()),
        ("changed", run.changed.to_string()),
        ("withheld", or_dash(run.withheld.as_ref())),
    ]);
    let row = |step: &Step| {
        let detail = &step.detail;
        let said = detail.error.as_ref().or(detail.comment.as_ref());
        vec![
            step.index.to_string(),
            step.name.clone(),
            step.status.to_string(),
            or_dash(step.started),
            or_dash(step.ended),
            listed(&detail.jobs),
            or_dash(said.or(detail.waits.as_ref())),
        ]
    };
    let heading = [
        "index", "step", "status", "started", "ended", "jobs", "detail",
    ];
    text.push('\n');
    text.push_str(&table::rows(&heading, run.steps.iter().map(row)));
    text
}
