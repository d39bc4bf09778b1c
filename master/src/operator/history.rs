//! `ctl job`: documents about past and present jobs and runs.

use halite_api::{Job, JobList, JobOrRun, JobPart, MinionAnswer, Run, RunList, RunSummary, Time};
use halite_core::app::App;
use halite_core::refusal::Refusal;
use halite_orchestrate::step;
use halite_proto::ids::JobId;
use halite_proto::v1::CancelRunRequest;
use halite_store::{JobRow, RunStatus, Step};
use serde_json::Value;

/// The number of listed orchestrations.
const RUNS: u32 = 20;
/// The prefix of shipped orchestrations' names.
const SHIPPED: &str = "halite.orchestrate.";

/// The newest jobs, newest first.
///
/// # Errors
/// The store failed.
pub async fn jobs(app: &App, limit: u32) -> Result<JobList, Refusal> {
    let jobs = app.store.jobs(limit).await?;
    Ok(JobList {
        jobs: jobs.iter().map(without_returns).collect(),
    })
}

/// The newest orchestrations, newest first, each open one with its current step.
///
/// # Errors
/// The store failed.
pub async fn runs(app: &App) -> Result<RunList, Refusal> {
    let mut listed = Vec::new();
    for run in app.store.runs(RUNS).await? {
        let step = match run.status {
            RunStatus::Running => {
                let steps = app.store.steps(&run.id).await?;
                let at = usize::try_from(run.current).ok();
                at.and_then(|at| steps.get(at))
                    .map(|step| step.name.clone())
            }
            _ => None,
        };
        listed.push(RunSummary {
            on: host(&run),
            run: run.id,
            created: Time::from_millis(run.created),
            sls: run.sls,
            test: run.test,
            operator: run.operator,
            status: run.status.as_str().into(),
            step,
            cancelled_by: run.cancelled_by,
            paused_by: run.paused_by,
        });
    }
    Ok(RunList { runs: listed })
}

/// The end of a run that is requested, for the audit log.
#[must_use]
pub fn words(request: &CancelRunRequest) -> String {
    let pause = if request.pause { " (pause)" } else { "" };
    format!("{}{pause}", request.run)
}

/// The host that a shipped orchestration is about. Other values of the pillar are not for every
/// reader.
fn host(run: &halite_store::Run) -> Option<String> {
    let pillar = parsed(&run.pillar_json);
    let host = pillar["node"]
        .as_str()
        .filter(|_| run.sls.starts_with(SHIPPED));
    host.map(str::to_owned)
}

/// One job with its returns, or one run with its steps. Both kinds of ids look alike and never
/// collide.
///
/// # Errors
/// Neither a job nor a run has this id, or the store failed.
pub async fn job(app: &App, id: &JobId) -> Result<JobOrRun, Refusal> {
    if let Some(job) = app.store.job(id).await? {
        let rows = app.store.returns(id, &job.minions).await?;
        return Ok(JobOrRun::Job(Box::new(Job {
            returns: Some(rows.into_iter().map(part).collect()),
            ..without_returns(&job)
        })));
    }
    if let Some(run) = app.store.run(id).await? {
        let steps = app.store.steps(id).await?;
        return Ok(JobOrRun::Run(Box::new(orchestration(run, &steps))));
    }
    Err(Refusal::not_found(format!(
        "there is no job {id}; `ctl job list` shows the newest"
    )))
}

fn without_returns(job: &halite_store::Job) -> Job {
    Job {
        job: job.job_id.clone(),
        function: job.function.clone(),
        args: Some(parsed(&job.args_json)),
        test: job.test,
        operator: job.operator.clone(),
        target: job.target.clone(),
        minions: job.minions.clone(),
        order: job.order.clone(),
        created: Time::from_millis(job.created),
        status: job.status.as_str().into(),
        retcode: job.retcode,
        finished: job.finished.map(Time::from_millis),
        bundle: job.bundle.clone(),
        withheld: None,
        returns: None,
    }
}

fn part(row: JobRow) -> JobPart {
    JobPart {
        minion: row.minion,
        state: row.state.as_str().into(),
        retcode: row.retcode,
        error: Some(row.error).filter(|error| !error.is_empty()),
        answer: row.return_json.as_deref().and_then(MinionAnswer::from_json),
        sent: row.sent.map(Time::from_millis),
        started: row.started.map(Time::from_millis),
        ended: row.ended.map(Time::from_millis),
    }
}

fn orchestration(run: halite_store::Run, steps: &[Step]) -> Run {
    Run {
        run: run.id,
        sls: run.sls,
        pillar: Some(parsed(&run.pillar_json)),
        test: run.test,
        operator: run.operator,
        status: run.status.as_str().into(),
        cancelled_by: run.cancelled_by,
        paused_by: run.paused_by,
        created: Time::from_millis(run.created),
        changed: Time::from_millis(run.changed),
        withheld: None,
        steps: steps.iter().map(step).collect(),
    }
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}
