//! `ctl job`: documents about past and present jobs and runs.

use halite_core::app::App;
use halite_core::clock::rfc3339;
use halite_core::refusal::Refusal;
use halite_proto::ids::JobId;
use halite_store::{Job, JobRow, Millis, Run, RunStatus, Step};
use serde_json::{Value, json};

/// The number of listed orchestrations.
const RUNS: u32 = 20;
/// The beginning of the names of shipped orchestrations.
const SHIPPED: &str = "halite.orchestrate.";

/// The newest jobs, newest first.
///
/// # Errors
/// The store failed.
pub async fn jobs(app: &App, limit: u32) -> Result<Value, Refusal> {
    let jobs = app.store.jobs(limit).await?;
    Ok(Value::Array(jobs.iter().map(summary).collect()))
}

/// The newest orchestrations, newest first, each with the step that it is at until it has ended.
///
/// # Errors
/// The store failed.
pub async fn runs(app: &App) -> Result<Value, Refusal> {
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
        listed.push(json!({
            "run": run.id, "created": rfc3339(run.created), "sls": run.sls, "on": host(&run), "test": run.test,
            "operator": run.operator, "status": run.status.as_str(), "step": step, "cancelledBy": run.cancelled_by,
        }));
    }
    Ok(Value::Array(listed))
}

/// The host that a shipped orchestration is about. Other values of the pillar are not for each reader.
fn host(run: &Run) -> Option<String> {
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
/// There is neither a job nor a run with this id, or the store failed.
pub async fn job(app: &App, id: &JobId) -> Result<Value, Refusal> {
    if let Some(job) = app.store.job(id).await? {
        let mut document = summary(&job);
        let rows = app.store.returns(id, &job.minions).await?;
        document["returns"] = Value::Array(rows.iter().map(row).collect());
        return Ok(document);
    }
    if let Some(run) = app.store.run(id).await? {
        let steps = app.store.steps(id).await?;
        return Ok(orchestration(&run, &steps));
    }
    Err(Refusal::not_found(format!(
        "there is no job {id}; `ctl job list` shows the newest"
    )))
}

fn summary(job: &Job) -> Value {
    json!({
        "jid": job.jid, "function": job.function, "args": parsed(&job.args_json), "test": job.test,
        "operator": job.operator, "target": job.target, "minions": job.minions, "order": job.order, "created": rfc3339(job.created),
        "status": job.status.as_str(), "retcode": job.retcode, "finished": when(job.finished), "bundle": job.bundle,
    })
}

fn row(row: &JobRow) -> Value {
    json!({
        "minion": row.minion, "state": row.state.as_str(), "retcode": row.retcode, "error": row.error,
        "return": row.return_json.as_deref().map(parsed), "sent": when(row.sent), "started": when(row.started),
        "ended": when(row.ended),
    })
}

fn orchestration(run: &Run, steps: &[Step]) -> Value {
    let step = |step: &Step| {
        json!({"index": step.index, "id": step.name, "status": step.status.as_str(), "detail": parsed(&step.detail_json),
            "started": when(step.started), "ended": when(step.ended)})
    };
    json!({
        "run": run.id, "sls": run.sls, "pillar": parsed(&run.pillar_json), "test": run.test, "operator": run.operator,
        "status": run.status.as_str(), "cancelledBy": run.cancelled_by, "created": rfc3339(run.created),
        "changed": rfc3339(run.changed),
        "steps": steps.iter().map(step).collect::<Vec<_>>(),
    })
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

fn when(time: Option<Millis>) -> Option<String> {
    time.map(rfc3339)
}
