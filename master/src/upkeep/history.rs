//! The trials in the store: their starts and outcomes, whichever process started them.

use std::collections::BTreeMap;

use halite_core::app::App;
use halite_core::refusal::Refusal;
use halite_fleet::jobs::NewJob;
use halite_fleet::jobs::failure::{failure, succeeded};
use halite_fleet::jobs::function::RENEW;
use halite_proto::ids::{JobId, MinionId};
use halite_store::{Audit, AuditFilter, Job, JobStatus, Millis, RowState};

use super::schedule::Tried;

/// The operator in the records of jobs. The name of a human operator has no colon.
pub(super) const OPERATOR: &str = "master:upkeep";
/// The caller and the action in the audit log.
const WHO: &str = "halite-master";
const ACTION: &str = "upkeep";
/// The space that is freed in etcd, in the audit log.
const ROOM: &str = "room in etcd";
/// The defragmentation of etcd at the declared time, in the audit log.
pub(super) const DEFRAGMENTATION: &str = "defragmentation of etcd";
/// The outcome of a trial that starts.
pub(super) const BEGINS: &str = "begins";
/// The newest jobs, which include the trials.
const JOBS: u32 = 200;
/// The newest lines of the audit log about trials.
const LINES: u32 = 1000;
/// The time for which trials count: the audit log retains them longer.
pub(super) const MEMORY: Millis = 30 * 24 * 60 * 60 * 1000;
/// The longest outcome in the audit log, in characters.
const LONGEST: usize = 600;

/// The last trial on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Last {
    pub tried: Tried,
    /// The reason of the failure; `None` if the states succeeded.
    pub why: Option<String>,
}

/// The trials that have ended, newest first.
pub(super) async fn ended(app: &App) -> Result<Vec<Job>, Refusal> {
    let now = app.clock.now();
    let jobs = app.store.jobs(JOBS).await?.into_iter();
    let own = jobs.filter(|job| job.function == RENEW && job.operator == OPERATOR);
    let ended = own.filter(|job| job.status == JobStatus::Finished);
    Ok(ended
        .filter(|job| job.finished.is_some_and(|at| now - at < MEMORY))
        .collect())
}

/// The last of these trials on each of the hosts.
pub(super) async fn last(
    app: &App,
    trials: &[Job],
    hosts: &[MinionId],
) -> Result<BTreeMap<MinionId, Last>, Refusal> {
    let mut found = BTreeMap::new();
    for job in trials {
        let of_it = |host: &&MinionId| job.minions.contains(host) && !found.contains_key(*host);
        let asked: Vec<MinionId> = hosts.iter().filter(of_it).cloned().collect();
        if asked.is_empty() {
            continue;
        }
        for row in app.store.returns(&job.job_id, &asked).await? {
            let why = (!succeeded(&row)).then(|| failure(&row));
            let tried = Tried {
                ended: row.ended.or(job.finished).unwrap_or(job.created),
                // If it was never sent, another host or etcd is the reason.
                failed: why.is_some() && (row.state == RowState::Returned || row.sent.is_some()),
            };
            found.insert(row.minion, Last { tried, why });
        }
    }
    Ok(found)
}

/// Records in the audit log that a trial starts.
pub(super) async fn begins(app: &App, job_id: &JobId, hosts: &[MinionId]) -> Result<(), Refusal> {
    append(app, what(job_id, hosts), BEGINS.to_owned()).await
}

/// Records in the audit log that a trial could not start.
pub(super) async fn refused(
    app: &App,
    job_id: &JobId,
    hosts: &[MinionId],
    why: &str,
) -> Result<(), Refusal> {
    append(app, what(job_id, hosts), format!("refused: {why}")).await
}

/// Records the outcome of trials in the audit log, each once.
pub(super) async fn note_outcomes(app: &App, trials: &[Job]) -> Result<(), Refusal> {
    if trials.is_empty() {
        return Ok(());
    }
    let lines = lines(app).await?;
    for job in trials.iter().rev() {
        let what = what(&job.job_id, &job.minions);
        let is_outcome = |line: &Audit| line.what == what && line.outcome != BEGINS;
        if lines.iter().any(is_outcome) {
            continue;
        }
        let rows = app.store.returns(&job.job_id, &job.minions).await?;
        let bad: Vec<String> = rows
            .iter()
            .filter(|row| !succeeded(row))
            .map(failure)
            .collect();
        let outcome = match bad.is_empty() {
            true => "ok".to_owned(),
            false => bad.join("; "),
        };
        append(app, what, outcome).await?;
    }
    Ok(())
}

/// The newest lines of the audit log about trials.
pub(super) async fn lines(app: &App) -> Result<Vec<Audit>, Refusal> {
    let filter = AuditFilter {
        method: Some(ACTION.to_owned()),
        ..AuditFilter::newest(LINES)
    };
    Ok(app.store.audit(&filter).await?)
}

/// Records in the audit log that the master starts to free space in etcd.
pub(super) async fn room_begins(app: &App) -> Result<(), Refusal> {
    append(app, ROOM.to_owned(), BEGINS.to_owned()).await
}

/// Records the outcome of that in the audit log.
pub(super) async fn room_ends(app: &App, outcome: String) -> Result<(), Refusal> {
    append(app, ROOM.to_owned(), outcome).await
}

fn what(job_id: &JobId, hosts: &[MinionId]) -> String {
    format!("certificates of {}, job {job_id}", hosts.join(", "))
}

/// Appends a line to the audit log, and to the log.
pub(super) async fn append(app: &App, what: String, outcome: String) -> Result<(), Refusal> {
    tracing::info!(what, outcome, "upkeep");
    let line = Audit {
        time: app.clock.now(),
        who: WHO.to_owned(),
        method: ACTION.to_owned(),
        what,
        outcome: outcome.chars().take(LONGEST).collect(),
    };
    Ok(app.store.append_audit(&line).await?)
}

/// The job that makes a trial.
pub(super) fn job(job_id: JobId, hosts: Vec<MinionId>, order: Vec<Vec<MinionId>>) -> NewJob {
    NewJob {
        function: RENEW.to_owned(),
        operator: OPERATOR.to_owned(),
        target: hosts.join(","),
        minions: hosts,
        order,
        job_id: Some(job_id),
        ..NewJob::default()
    }
}
