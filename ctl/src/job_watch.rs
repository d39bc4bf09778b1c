//! Follows a job from its start to the last return.

use std::collections::BTreeMap;

use halite_api::{
    EventData, EventTag, JobOutcome, MinionAnswer, MinionOutcome, MinionUpdate, ParallelRepair,
    PartReturned, StateProgress, StepWait,
};
use halite_proto::ids::{JobId, MinionId};
use halite_proto::v1;
use halite_states::low::{RunReturn, StateReturn};

use crate::cli::Global;
use crate::client::Operator;
use crate::event_stream::{CallNews, follow};
use crate::output::Screen;

/// One minion's return of a job.
#[derive(Debug, Clone, Default)]
pub struct MinionReturn {
    /// `true` if the function succeeded.
    pub success: bool,
    /// The returned value, unless it is a run of states.
    pub answer: Option<MinionAnswer>,
    /// The returned states.
    pub run: Option<RunReturn>,
    /// The reason for a failure, if it is known.
    pub error: Option<String>,
}

impl From<PartReturned> for MinionReturn {
    fn from(part: PartReturned) -> Self {
        let run = part.answer.as_ref().and_then(MinionAnswer::states);
        Self {
            success: part.success,
            answer: part.answer.filter(|_| run.is_none()),
            run,
            error: part.error,
        }
    }
}

/// A finished job.
#[derive(Debug, Clone, Default)]
pub struct FinishedJob {
    /// The job, if the master has named one.
    pub job: Option<JobId>,
    /// The return code of the job.
    pub retcode: i32,
    /// The hosts that were repaired in parallel because etcd had no quorum, with the reason.
    pub parallel_repair: Option<ParallelRepair>,
    /// The updates of minions before a highstate, each with its reason and what follows.
    pub minion_updates: Vec<MinionUpdate>,
    /// The returns, by minion.
    pub returns: BTreeMap<MinionId, MinionReturn>,
}

/// Starts a job and waits for its end, and shows its progress.
///
/// # Errors
/// The master refuses the job, or no longer answers.
pub async fn run_job(
    global: &Global,
    request: v1::RunRequest,
    screen: &mut Screen,
) -> anyhow::Result<FinishedJob> {
    run_job_with(global, request, screen, |_, _, _| {}).await
}

/// As [`run_job`]; passes each return to `returned` with the minion's id as it arrives.
///
/// # Errors
/// The master refuses the job, or no longer answers.
pub async fn run_job_with(
    global: &Global,
    request: v1::RunRequest,
    screen: &mut Screen,
    mut returned: impl FnMut(&MinionId, &MinionReturn, &mut Screen),
) -> anyhow::Result<FinishedJob> {
    let request = v1::RunRequest {
        request_id: uuid::Uuid::now_v7().to_string(),
        ..request
    };
    let mut watch = JobWatch::default();
    let start = async |mut operator: Operator| {
        operator
            .run(request.clone())
            .await
            .map(|answer| Some(answer.into_inner()))
    };
    let followed = follow(global, start, |heard| match heard {
        CallNews::Event(event) => watch.take(event, screen, &mut returned),
        CallNews::Silence(line) => {
            let mark = screen.paint().notable("!");
            screen.note(format!("{mark} {line}"));
            false
        }
    });
    followed.await?;
    screen.clear();
    Ok(watch.done)
}

/// The state of a job, collected from its events. A job that updates minions may precede a
/// highstate.
#[derive(Default)]
pub struct JobWatch {
    /// The job, whole after its last event.
    pub done: FinishedJob,
    /// The returns of each job, by its id; later jobs have higher ones.
    returns: BTreeMap<JobId, BTreeMap<MinionId, MinionReturn>>,
    /// The reason of the last printed wait, by host or by step.
    waits: BTreeMap<String, String>,
}

impl JobWatch {
    /// Takes an event. Returns true for the last one.
    pub fn take(
        &mut self,
        event: &v1::Event,
        screen: &mut Screen,
        returned: &mut dyn FnMut(&MinionId, &MinionReturn, &mut Screen),
    ) -> bool {
        if let EventTag::Job { job, .. } = EventTag::parse(&event.tag) {
            self.done.job = Some(job);
        }
        match EventData::read(&event.tag, &event.data_json) {
            EventData::StateProgress(data) => screen.live().set(&data.minion, &progress(&data)),
            EventData::Wait(data) => self.wait(&data, screen),
            EventData::ParallelRepair(data) => self.repair(data, screen),
            EventData::MinionUpdate(data) => self.minion(data, screen),
            EventData::PartReturned(data) => {
                let (job, minion) = (data.job.clone(), data.minion.clone());
                screen.live().remove(&minion);
                let job = self.returns.entry(job).or_default();
                let new = MinionReturn::from(*data);
                // Events are repeated after a broken connection.
                if !job.contains_key(&minion) {
                    returned(&minion, &new, screen);
                }
                job.insert(minion, new);
            }
            _ => {}
        }
        if event.last {
            self.done.retcode = event.retcode;
            self.done.returns = whole(std::mem::take(&mut self.returns));
        }
        event.last
    }

    /// Prints that minions are updated first, or that one was not; only once if events are
    /// repeated.
    fn minion(&mut self, update: MinionUpdate, screen: &mut Screen) {
        if !self.done.minion_updates.contains(&update) {
            let mark = screen.paint().notable("!");
            screen.note(format!("{mark} {}", minion_update(&update)));
            self.done.minion_updates.push(update);
        }
    }

    /// Prints the reason why the job waits: one line for hosts that are reported together, and
    /// another one when their reason has changed.
    fn wait(&mut self, wait: &StepWait, screen: &mut Screen) {
        if self.is_news(wait) {
            let mark = screen.paint().notable("!");
            screen.note(format!("{mark} {}", waiting(wait)));
        }
    }

    /// Records a wait; returns false if it has been printed.
    fn is_news(&mut self, wait: &StepWait) -> bool {
        let step = wait.hosts.is_empty().then(|| wait.step.clone());
        let mut is_news = false;
        for name in wait.hosts.iter().map(ToString::to_string).chain(step) {
            let before = self.waits.insert(name, wait.because.clone());
            is_news |= before.as_ref() != Some(&wait.because);
        }
        is_news
    }

    /// Prints that hosts are repaired in parallel.
    fn repair(&mut self, repair: ParallelRepair, screen: &mut Screen) {
        let mark = screen.paint().notable("!");
        screen.note(format!("{mark} {}", parallel_repair(&repair)));
        self.done.parallel_repair = Some(repair);
    }
}

/// The returns of the last job. The changes of an earlier job on the same host come first.
fn whole(
    jobs: BTreeMap<JobId, BTreeMap<MinionId, MinionReturn>>,
) -> BTreeMap<MinionId, MinionReturn> {
    let mut all: BTreeMap<MinionId, MinionReturn> = BTreeMap::new();
    for (minion, mut returned) in jobs.into_values().flatten() {
        let before = all.remove(&minion).and_then(|before| before.run);
        if let (Some(before), Some(run)) = (before, &mut returned.run) {
            let changed =
                |state: &StateReturn| state.result == Some(true) && !state.changes.is_empty();
            let before = before.states.into_iter().filter(changed);
            run.states.splice(0..0, before);
        }
        all.insert(minion, returned);
    }
    all
}

/// Formats the minions that are updated first, with the reason.
pub fn minion_update(update: &MinionUpdate) -> String {
    let MinionUpdate {
        hosts,
        because,
        then,
        ..
    } = update;
    format!("{}: {because}; {then}", hosts.join(", "))
}

/// Formats the hosts that are repaired in parallel, with the reason.
pub fn parallel_repair(repair: &ParallelRepair) -> String {
    let ParallelRepair { hosts, because, .. } = repair;
    format!("{because}; repaired in parallel: {}", hosts.join(", "))
}

/// Formats a step's wait: its reason, its duration, the usual duration, and the operator's options.
pub fn waiting(wait: &StepWait) -> String {
    let usual = match wait.usual {
        Some(usual) => format!(" (usually {usual} s here)"),
        None => String::new(),
    };
    let mut line = format!(
        "{}: waiting for {} s{usual} until {}: {}",
        wait.step, wait.seconds, wait.until, wait.because
    );
    if !wait.remedy.is_empty() {
        line.push_str(&format!("; {}", wait.remedy));
    }
    line
}

/// One line about the state that a minion applies.
pub fn progress(progress: &StateProgress) -> String {
    let state = progress.state.as_ref();
    let state = state.map(|state| format!("{} {}", state.function, state.name));
    format!(
        "{}  {}/{}  {}",
        progress.minion,
        progress.index + 1,
        progress.total,
        state.unwrap_or_default(),
    )
}

/// The failed states of an ended part, for people; nothing if the function succeeded.
pub fn failures(part: PartReturned) -> Vec<String> {
    let minion = part.minion.clone();
    let returned = MinionReturn::from(part);
    if returned.success {
        return Vec::new();
    }
    let run = returned.run.as_ref();
    let mut found = run
        .map(|run| failed_states(&minion, run))
        .unwrap_or_default();
    if found.is_empty() {
        let error = returned.error.as_deref().unwrap_or("failed");
        found.push(format!("{minion}: {error}"));
    }
    found
}

/// The failed states of a run, as `worker-1: file.managed /etc/x (base.x): COMMENT`. States that
/// failed only because of a requisite are left out.
pub fn failed_states(minion: &str, run: &RunReturn) -> Vec<String> {
    let failed = |state: &&StateReturn| state.result == Some(false) && state.fail_run;
    let line = |state: &StateReturn| {
        format!(
            "{minion}: {} {} ({}): {}",
            state.function,
            state.name,
            state.sls,
            state.comment.trim()
        )
    };
    let own: Vec<String> = run
        .states
        .iter()
        .filter(failed)
        .filter(|state| state.ran)
        .map(line)
        .collect();
    if own.is_empty() {
        run.states.iter().filter(failed).map(line).collect()
    } else {
        own
    }
}

/// A finished job as a document; `with_states` if its function applies states.
pub fn job_outcome(done: &FinishedJob, with_states: bool) -> JobOutcome {
    let minions = done.returns.iter();
    let minions = minions.map(|(minion, returned)| (minion.clone(), minion_outcome(returned)));
    let minions: BTreeMap<MinionId, MinionOutcome> = minions.collect();
    let sum = |count: fn(&MinionOutcome) -> Option<usize>| {
        with_states.then(|| minions.values().filter_map(count).sum())
    };
    JobOutcome {
        job: done.job.clone(),
        retcode: done.retcode,
        states: sum(|minion| minion.total),
        changed: sum(|minion| minion.changed),
        failed: sum(|minion| minion.failed),
        minions,
        parallel_repair: done.parallel_repair.clone(),
        minion_updates: done.minion_updates.clone(),
    }
}

/// The return of a minion as part of a document.
pub fn minion_outcome(returned: &MinionReturn) -> MinionOutcome {
    let run = returned.run.as_ref();
    MinionOutcome {
        success: returned.success,
        error: returned.error.clone(),
        total: run.map(|run| run.states.len()),
        changed: run.map(RunReturn::changed),
        failed: run.map(RunReturn::failed),
        states: run.map(|run| run.states.clone()),
        answer: returned.answer.clone(),
    }
}

#[cfg(test)]
#[path = "job_watch_tests.rs"]
mod tests;
