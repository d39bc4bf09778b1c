//! The budget of hosts out. A minion asks for a turn before its job restarts a service. While as
//! many hosts as the budget allows have one, it waits. A turn ends with the minion's part of the
//! job, and is kept until the end of the job if that part fails. The budget is for hosts without
//! the master, etcd and a control plane: those change one after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use halite_api::{EventData, StepWait};
use halite_core::clock::{Steady, rfc3339};
use halite_core::due::NextReport;
use halite_core::names::some_of;
use halite_core::refusal::Refusal;
use halite_pillar::upgrade::DeclaredBatch;
use halite_proto::ids::{JobId, MinionId};
use halite_store::{Job, Millis, RowState, StoredPart};
use serde_json::Value;

use super::Jobs;
use super::batch::Batch;
use super::function::{Function, FunctionSite};
use super::open_job::PartEnd;

/// The start of the operator of a job that a step of an orchestration has made. Such a step has
/// batches of its own.
const STEP: &str = "run:";

/// The answer to a minion that asks for a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnAnswer {
    /// It may restart services until its part of the job ends.
    Taken,
    /// It asks again, for this reason.
    Waits(String),
    /// It may not restart a service in this job, for this reason.
    Refused(String),
}

/// The reason why a host counts as out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutReason {
    /// It has a turn.
    Restarts,
    /// This master does not know whether a previous master gave it a turn.
    MayRestart,
    /// Its part failed after it had taken a turn.
    Failed,
}

/// A host that counts as out.
#[derive(Debug)]
struct HostOut {
    since: Millis,
    reason: OutReason,
}

/// The hosts of a job that wait for a turn.
#[derive(Debug)]
struct WaitingHosts {
    since: Steady,
    hosts: BTreeMap<MinionId, Steady>,
    due: NextReport,
}

/// A minion's question for a turn, with the facts that decide.
struct Question<'a> {
    host: &'a MinionId,
    job: &'a JobId,
    /// The hosts that the budget is for.
    group: &'a BTreeSet<String>,
    /// The number of hosts that may be out; `None` for a step of an orchestration.
    budget: Option<usize>,
}

/// The hosts that are out, and those that wait.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// By host and job: a host may have failed in one job while another repairs it.
    out: BTreeMap<(MinionId, JobId), HostOut>,
    waiting: BTreeMap<JobId, WaitingHosts>,
}

impl Turns {
    /// Records that a host may have a turn of a previous master.
    fn presume(&mut self, host: &MinionId, job: &JobId, now: Millis) {
        let out = self.out.entry((host.clone(), job.clone()));
        out.or_insert(HostOut {
            since: now,
            reason: OutReason::MayRestart,
        });
    }

    /// Records the end of a host's part of a job.
    pub(super) fn end(&mut self, host: &MinionId, job: &JobId, end: PartEnd) {
        let key = (host.clone(), job.clone());
        match (end, self.out.get_mut(&key)) {
            (PartEnd::Failed, Some(out)) => out.reason = OutReason::Failed,
            (PartEnd::Failed, None) => {}
            (PartEnd::Succeeded | PartEnd::NotStarted, _) => drop(self.out.remove(&key)),
        }
        self.waits_no_more(host, job);
    }

    fn waits_no_more(&mut self, host: &MinionId, job: &JobId) {
        if let Some(waiting) = self.waiting.get_mut(job) {
            waiting.hosts.remove(host);
        }
    }

    /// Forgets the hosts of jobs that have ended.
    fn retain_open(&mut self, is_open: impl Fn(&JobId) -> bool) {
        self.out.retain(|(_, job), _| is_open(job));
        self.waiting.retain(|job, _| is_open(job));
    }

    /// Answers a host whose part of the job is open.
    fn ask(&mut self, question: &Question<'_>, now: Millis, steady: Steady) -> TurnAnswer {
        let Question { host, job, .. } = *question;
        let own = (host.clone(), job.clone());
        let is_out = self.out.get(&own);
        if is_out.is_some_and(|out| out.reason == OutReason::Restarts) {
            return TurnAnswer::Taken;
        }
        // Each host once; its failure in this job decides. A host that failed in another job does
        // not count: that job may wait for a host of this one.
        let mut others: BTreeMap<&MinionId, &HostOut> = BTreeMap::new();
        for ((name, of), out) in &self.out {
            let has_failed = out.reason == OutReason::Failed;
            let counts = name != host
                && question.group.contains(name.as_str())
                && (!has_failed || of == job);
            if counts && (has_failed || !others.contains_key(name)) {
                others.insert(name, out);
            }
        }
        let others: Vec<(&MinionId, &HostOut)> = others.into_iter().collect();
        if let Some(budget) = question.budget
            && others.len() >= budget
        {
            let answer = without_turn(&others, budget);
            // A host that asks has no turn.
            self.out.remove(&own);
            if matches!(answer, TurnAnswer::Waits(_)) {
                let waiting = self.waiting.entry(job.clone());
                let waiting = waiting.or_insert_with(|| WaitingHosts {
                    since: steady,
                    hosts: BTreeMap::new(),
                    due: NextReport::default(),
                });
                waiting.hosts.entry(host.clone()).or_insert(steady);
            } else {
                self.waits_no_more(host, job);
            }
            return answer;
        }
        let out = HostOut {
            since: now,
            reason: OutReason::Restarts,
        };
        self.out.insert(own, out);
        self.waits_no_more(host, job);
        TurnAnswer::Taken
    }

    /// The hosts of a job that wait, and the time for which the first of them has waited, if that
    /// is due for a report.
    fn report(&self, job: &JobId, now: Steady) -> Option<(Vec<MinionId>, Duration)> {
        let waiting = self.waiting.get(job)?;
        let first = *waiting.hosts.values().min()?;
        let span =
            |since: Steady| Duration::from_millis(u64::try_from(now - since).unwrap_or_default());
        let is_due = waiting.due.take(span(waiting.since));
        is_due.then(|| (waiting.hosts.keys().cloned().collect(), span(first)))
    }
}

/// The answer to a host while the budget is used up by these.
fn without_turn(out: &[(&MinionId, &HostOut)], budget: usize) -> TurnAnswer {
    let failed: Vec<MinionId> = out
        .iter()
        .filter(|(_, out)| out.reason == OutReason::Failed)
        .map(|(host, _)| (*host).clone())
        .collect();
    if failed.len() >= budget {
        return TurnAnswer::Refused(format!(
            "not restarted: {} failed after a restart, and at most {budget} may be out at a time; repair that first, then run the command \
             again",
            some_of(&failed)
        ));
    }
    let listed: Vec<String> = out
        .iter()
        .map(|(host, out)| {
            let remark = match out.reason {
                OutReason::Restarts => "",
                OutReason::MayRestart => ", which may restart services,",
                OutReason::Failed => ", which failed,",
            };
            format!("{host}{remark} since {}", rfc3339(out.since))
        })
        .collect();
    let (count, listed) = (out.len(), some_of(&listed));
    TurnAnswer::Waits(format!("{count} of {budget} hosts out: {listed}"))
}

/// Returns whether a job may restart services of hosts.
fn may_restart(job: &Job) -> bool {
    let function = Function::find(&job.function);
    !job.test && function.is_ok_and(|function| function.place == FunctionSite::States)
}

/// The budget that a job gives, or the declared one; `None` for a step of an orchestration.
fn budget(job: &Job, hosts: usize, declared: &DeclaredBatch) -> Option<usize> {
    if job.operator.starts_with(STEP) {
        return None;
    }
    let args: Value = serde_json::from_str(&job.args_json).unwrap_or_default();
    // Jobs and documents with another value were refused.
    let given = Batch::of_args(&args).ok().flatten();
    let batch = given.or_else(|| declared.to_string().parse().ok());
    Some(batch.unwrap_or(Batch::Number(1)).size(hosts))
}

impl Jobs {
    /// Answers a minion that asks whether it may restart a service in this job.
    ///
    /// # Errors
    /// The minion has no open part of the job, or the declaration cannot be read.
    pub async fn take_turn(
        &self,
        minion: &MinionId,
        job_id: &JobId,
        unit: &str,
    ) -> Result<TurnAnswer, Refusal> {
        let job = {
            let open = self.open_jobs();
            let part = open
                .get(job_id)
                .filter(|open| open.pending.contains(minion));
            part.map(|open| open.job.clone())
        };
        let none = || Refusal::denied(format!("{minion} has no open part of the job {job_id}"));
        let job = job.ok_or_else(none)?;
        let snapshot = self.declarations.in_force().await?;
        let group = snapshot.hosts_in_batches();
        if !may_restart(&job) || !group.contains(minion.as_str()) {
            return Ok(TurnAnswer::Taken);
        }
        let question = Question {
            host: minion,
            job: job_id,
            group: &group,
            budget: budget(
                &job,
                group.len(),
                &snapshot.declaration().cluster.upgrade.batch,
            ),
        };
        let (now, steady) = (self.app.clock.now(), self.app.clock.steady());
        let (answer, report) = {
            // In this order everywhere.
            let mut turns = self.turns();
            let open = self.open_jobs();
            let ours = open.get(job_id);
            if !ours.is_some_and(|open| open.pending.contains(minion)) {
                return Err(none());
            }
            turns.retain_open(|job| open.contains_key(job));
            let answer = turns.ask(&question, now, steady);
            (answer, turns.report(job_id, steady))
        };
        tracing::debug!(job = %job_id, %minion, unit, ?answer, "asked for a turn");
        if let (TurnAnswer::Waits(because), Some((hosts, since))) = (&answer, report) {
            tracing::info!(job = %job_id, ?hosts, because, "hosts wait for their turn");
            let wait = EventData::Wait(waiting(job_id, &hosts, because, since));
            self.app.events.announce(&wait, None);
        }
        Ok(answer)
    }

    /// Records that a minion runs this job, and may have a turn of a previous master. The turns of
    /// this one are known, also after its link broke.
    pub(super) fn presume_out(&self, minion: &MinionId, job_id: &JobId) {
        let now = self.app.clock.now();
        // In this order everywhere.
        let mut turns = self.turns();
        let is_unknown = self.open_jobs().get(job_id).is_some_and(|open| {
            open.is_inherited && open.pending.contains(minion) && may_restart(&open.job)
        });
        if is_unknown {
            turns.presume(minion, job_id, now);
        }
    }

    /// The same for the minions that have started a job before this master started.
    pub(super) fn presume_started(&self, job_id: &JobId, parts: &[StoredPart]) {
        let started = parts
            .iter()
            .filter(|part| part.state == RowState::Started && !part.minion.is_master());
        for part in started {
            self.presume_out(&part.minion, job_id);
        }
    }
}

/// The wait of these hosts, for the watchers of the job, in the form of a waiting step.
fn waiting(job_id: &JobId, hosts: &[MinionId], because: &str, since: Duration) -> StepWait {
    StepWait {
        job: Some(job_id.clone()),
        step: some_of(hosts),
        until: "fewer hosts are out".to_owned(),
        because: because.to_owned(),
        seconds: since.as_secs(),
        remedy: format!(
            "each restarts services in its turn; `--batch`, or `upgrade.batch` of the cluster document, sets how many may be out, and `ctl job cancel {job_id}` ends the job"
        ),
        ..StepWait::default()
    }
}

#[cfg(test)]
#[path = "turns_tests.rs"]
mod tests;
