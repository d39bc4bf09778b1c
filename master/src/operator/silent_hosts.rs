//! Hosts of a job that report nothing: the operator who follows the job is notified of them, in the
//! form of a waiting orchestration step.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use halite_api::{EventData, StepWait};
use halite_core::clock::Steady;
use halite_core::event_bus::{message, unstored};
use halite_core::event_stream::EventStream;
use halite_core::names::some_of;
use halite_core::refusal::Refusal;
use halite_fleet::jobs::core::comes_first;
use halite_fleet::jobs::failure::succeeded;
use halite_fleet::jobs::{Jobs, NewJob};
use halite_orchestrate::stall::{Stall, Watched, queued, stall};
use halite_proto::ids::{JobId, MinionId};
use halite_proto::v1;
use halite_states::low::{Chunk, LowState};
use halite_store::{Event, Job, JobRow, Millis, OpenPart, RowState};
use serde_json::json;
use tokio::sync::broadcast::Receiver;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::silences::Silences;

/// Polling interval for the hosts that have not returned.
const TICK: Duration = Duration::from_secs(1);
/// The number of newest jobs among which similar jobs are searched.
const JOBS: u32 = 20;
/// The number of samples that are enough for a usual time.
const ENOUGH: usize = 5;
/// The number of characters of a state's id in a report.
const ID: usize = 80;

/// The events of a job, and a `wait` event whenever a pending host has reported nothing for a
/// while. `bus` as in [`Jobs::follow`].
pub(super) fn follow(jobs: &Arc<Jobs>, job_id: JobId, bus: Receiver<Event>) -> EventStream {
    let mut ticks = tokio::time::interval_at(Instant::now() + TICK, TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let watch = Watch {
        events: jobs.follow(job_id.clone(), bus),
        silences: Silences::since(jobs.app().clock.steady()),
        jobs: Arc::clone(jobs),
        job_id,
        ticks,
        reports: VecDeque::new(),
        usual: BTreeMap::new(),
    };
    Box::pin(stream::unfold(watch, |mut watch| async {
        let event = watch.next().await?;
        Some((event, watch))
    }))
}

struct Watch {
    jobs: Arc<Jobs>,
    job_id: JobId,
    events: EventStream,
    ticks: Interval,
    silences: Silences,
    /// Reports that were not passed on yet.
    reports: VecDeque<v1::Event>,
    /// The usual times of hosts, looked up with the first report.
    usual: BTreeMap<MinionId, Option<Duration>>,
}

impl Watch {
    async fn next(&mut self) -> Option<Result<v1::Event, Refusal>> {
        loop {
            if let Some(report) = self.reports.pop_front() {
                return Some(Ok(report));
            }
            tokio::select! {
                event = self.events.next() => {
                    if let Some(Ok(event)) = &event {
                        self.silences.hear(event, self.jobs.app().clock.steady());
                    }
                    return event;
                }
                _ = self.ticks.tick() => {}
            }
            if let Err(refusal) = self.look().await {
                // The job continues, and its events are passed on.
                tracing::debug!(job = %self.job_id, error = %refusal.message, "silent hosts are not reported");
            }
        }
    }

    /// Makes the reports on the hosts that are silent now; hosts with the same reason share one.
    async fn look(&mut self) -> Result<(), Refusal> {
        let now = self.jobs.app().clock.steady();
        let waited_for = self.jobs.waited_for(&self.job_id);
        let due = self.silences.due(&waited_for, now);
        if due.is_empty() {
            return Ok(());
        }
        let Some(job) = self.jobs.app().store.job(&self.job_id).await? else {
            return Ok(());
        };
        let waited_for: BTreeMap<MinionId, Steady> = waited_for.into_iter().collect();
        let since = |host: &MinionId| waited_for.get(host).map_or(0, |ready| now - *ready);
        let mut groups: Vec<(Stall, Vec<MinionId>)> = Vec::new();
        let connections = &self.jobs.app().connections;
        let is_away = |host: &MinionId| !host.is_master() && !connections.is_connected(host);
        let (away, present): (Vec<MinionId>, Vec<MinionId>) = due.into_iter().partition(is_away);
        if !away.is_empty() {
            let names: Vec<&MinionId> = away.iter().collect();
            let stall = stall(&self.job_id, &as_made(&job, &[]), &names, Watched::Job);
            groups.push((stall, away));
        }
        // All hosts with one read, which does not contain their low states.
        let mut parts: BTreeMap<MinionId, Vec<OpenPart>> = BTreeMap::new();
        if !present.is_empty() {
            for part in self.jobs.app().store.open_parts(&present).await? {
                parts.entry(part.minion.clone()).or_default().push(part);
            }
        }
        for host in present {
            let parts = parts.get(&host).map(Vec::as_slice).unwrap_or_default();
            let Some(stall) = self.reason(&job, &host, parts).await? else {
                continue;
            };
            match groups.iter_mut().find(|(other, _)| *other == stall) {
                Some((_, hosts)) => hosts.push(host),
                None => groups.push((stall, vec![host])),
            }
        }
        for (stall, hosts) in groups {
            let longest = hosts.iter().map(since).max().unwrap_or_default();
            let usual = match hosts.first() {
                Some(first) => self.usual(&job, first).await?,
                None => None,
            };
            let wait = EventData::Wait(waiting(&job, hosts, stall, longest, usual));
            let event = unstored(self.jobs.app().clock.now(), &wait, None);
            self.reports.push_back(message(event));
        }
        Ok(())
    }

    /// The reason why a connected host with these open parts has not returned; `None` if it has by
    /// now.
    async fn reason(
        &mut self,
        job: &Job,
        host: &MinionId,
        parts: &[OpenPart],
    ) -> Result<Option<Stall>, Refusal> {
        let Some(own) = parts.iter().find(|part| part.job_id == self.job_id) else {
            return Ok(None);
        };
        if own.state == RowState::Queued && own.has_low_state {
            // If no other job runs there, this one is about to be sent. A host whose turn has not
            // come yet, as in a highstate host by host, holds up nothing.
            let first = comes_first(parts, own);
            return Ok(first.map(|first| queued(&self.job_id, first, Watched::Job)));
        }
        let next = self.silences.next_state(host);
        // Only a host that has reported a state needs the list of its states.
        let Some(next) = next.filter(|_| own.has_low_state) else {
            return Ok(Some(working(job, None)));
        };
        let row = self.jobs.app().store.row(&self.job_id, host).await?;
        let low = row.and_then(|row| serde_json::from_str::<LowState>(&row.low_json?).ok());
        let chunks = low.map(|low| low.chunks).unwrap_or_default();
        Ok(Some(working(job, Some((next, &chunks)))))
    }

    /// The time that a job of this kind usually takes on the host: the median of the successful
    /// ones; `None` without any.
    async fn usual(&mut self, job: &Job, host: &MinionId) -> Result<Option<Duration>, Refusal> {
        if let Some(known) = self.usual.get(host) {
            return Ok(*known);
        }
        let store = &self.jobs.app().store;
        let of = [host.clone()];
        let mut times = Vec::new();
        for before in store.jobs(JOBS).await? {
            if is_alike(&before, job) && before.minions.contains(host) {
                let rows = store.returns(&before.job_id, &of).await?;
                times.extend(rows.iter().filter_map(time));
            }
            if times.len() >= ENOUGH {
                break;
            }
        }
        times.sort_unstable();
        let usual = times.get(times.len() / 2).copied();
        self.usual.insert(host.clone(), usual);
        Ok(usual)
    }
}

/// Returns whether another job does the same.
fn is_alike(other: &Job, job: &Job) -> bool {
    other.job_id != job.job_id
        && other.function == job.function
        && other.args_json == job.args_json
        && other.test == job.test
}

/// The time that a host has worked on its part of a job, if it succeeded.
fn time(row: &JobRow) -> Option<Duration> {
    let millis = row.ended? - row.started.or(row.sent)?;
    let millis = u64::try_from(millis).ok()?;
    succeeded(row).then(|| Duration::from_millis(millis))
}

/// The job as far as a report needs it; `sls`: the SLS that a host works on, if they are known.
fn as_made(job: &Job, sls: &[&str]) -> NewJob {
    NewJob {
        function: job.function.clone(),
        args: json!({"sls": sls}),
        ..NewJob::default()
    }
}

/// The reason for a host that works on its part; `at`: the state after the last one that it
/// reported, and all its states.
fn working(job: &Job, at: Option<(usize, &[Chunk])>) -> Stall {
    let chunk = at.and_then(|(next, chunks)| Some((next, chunks.get(next)?, chunks.len())));
    let Some((index, chunk, number)) = chunk else {
        return stall(&job.job_id, &as_made(job, &[]), &[], Watched::Job);
    };
    let mut stall = stall(
        &job.job_id,
        &as_made(job, &[chunk.sls.as_str()]),
        &[],
        Watched::Job,
    );
    // A minion does not report each state that was in order, so it may be a few states further.
    let at = format!(
        "; it is at state {} of {}, or soon after: {}",
        index + 1,
        number,
        named(chunk)
    );
    stall.because.push_str(&at);
    stall
}

/// A state, on one line: `id (function, SLS)`.
fn named(chunk: &Chunk) -> String {
    let first = chunk.id.lines().next().unwrap_or_default();
    let id: String = first.chars().take(ID).collect();
    let more = if id == chunk.id { "" } else { "…" };
    format!("{id}{more} ({}, {})", chunk.function(), chunk.sls)
}

/// The data of a report. As for a step, its time is the start of the wait for these hosts, not of
/// their silence.
fn waiting(
    job: &Job,
    hosts: Vec<MinionId>,
    stall: Stall,
    since: Millis,
    usual: Option<Duration>,
) -> StepWait {
    let names = some_of(&hosts);
    let seconds = |time: Millis| u64::try_from(time / 1000).unwrap_or_default();
    StepWait {
        job: Some(job.job_id.clone()),
        hosts,
        until: format!("{names} has returned"),
        step: names,
        because: stall.because,
        seconds: seconds(since),
        usual: usual.map(|usual| usual.as_secs()),
        limit: job.deadline.map(|deadline| seconds(deadline - job.created)),
        remedy: stall.remedy,
        ..StepWait::default()
    }
}

#[cfg(test)]
#[path = "silent_hosts_tests.rs"]
mod tests;
