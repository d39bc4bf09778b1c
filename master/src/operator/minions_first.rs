//! Updates minions ahead of a highstate. A host whose minion differs from its bundle's program gets
//! that program first: the states of the bundle may use functions that the older minion lacks, and
//! a host of etcd stops at the first state that fails, which is before the update.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::{StreamExt as _, future, stream};
use halite_api::{EventData, MinionUpdate, StepWait};
use halite_core::due::{NextReport, SAY};
use halite_core::event_bus::{message, unstored};
use halite_core::event_stream::EventStream;
use halite_core::refusal::Refusal;
use halite_fleet::jobs::cancel::was_cancelled;
use halite_fleet::jobs::failure::{failure, succeeded};
use halite_fleet::jobs::function::MINION_SLS;
use halite_fleet::jobs::{Jobs, NewJob, target};
use halite_orchestrate::outdated_minions::{Outdated, runs, taken_back};
use halite_proto::ids::{JobId, MinionId};
use halite_proto::v1;
use halite_states::low::RunReturn;
use halite_store::JobRow;
use serde_json::json;
use tokio::sync::{MutexGuard, mpsc};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;

use super::silent_hosts;

/// The id of the state there that restarts the minion with the new program, after its return.
const RESTART: &str = "halite-minion-restart";

/// The time for a minion to connect after a restart of the master before it is left out: longer
/// than its longest pause between two attempts, plus its hello.
const CONNECT: Duration = Duration::from_secs(15);
/// The time for a minion to restart: the old process may need two and a half minutes to end, and
/// the new one has a minute to reach the master before the previous program is restored.
const LIMIT: Duration = Duration::from_secs(300);
/// Events that may wait for a slow watcher.
const QUEUE: usize = 256;
/// The time for a watcher to read when that many events wait; a slower one counts as gone.
const READ: Duration = Duration::from_secs(5);
/// The newest jobs among which the job of a repeated request is searched.
const NEWEST: u32 = 50;

const DIFFERS: &str = "the minion differs from the bundle's program";

/// Updates these minions, waits until they have reconnected, and makes the highstate; returns the
/// events of both jobs, in which only the highstate's end is marked as the last. In test mode no
/// minion is updated, and the hosts are named.
///
/// A host that cannot be updated is named, and gets its highstate from its present minion, which
/// retries the update.
///
/// # Errors
/// The highstate does not compile, and no job was sent; or the store failed.
pub(super) async fn run(
    jobs: &Arc<Jobs>,
    new: NewJob,
    outdated: Vec<Outdated>,
) -> Result<EventStream, Refusal> {
    let hosts: Vec<MinionId> = outdated.iter().map(|one| one.host.clone()).collect();
    if new.test {
        let events = jobs.app().events.subscribe();
        let job_id = jobs.create(new).await?;
        let then = "it would be updated first, and the new one would apply these states";
        let first = stream::iter([Ok(report(jobs, &job_id, &hosts, DIFFERS, then))]);
        return Ok(Box::pin(
            first.chain(silent_hosts::follow(jobs, job_id, events)),
        ));
    }
    if let Some(job_id) = made_before(jobs, &new).await? {
        let events = jobs.app().events.subscribe();
        return Ok(silent_hosts::follow(jobs, job_id, events));
    }
    jobs.check(&new).await?;
    let (watcher, events) = mpsc::channel(QUEUE);
    let update = Update {
        jobs: Arc::clone(jobs),
        watcher,
        is_watched: AtomicBool::new(true),
    };
    // As with a single job, a watcher that disconnects or stops reading does not cancel the hosts'
    // highstate.
    tokio::spawn(async move {
        if let Err(refusal) = update.carry_out(new, outdated).await {
            tracing::error!(error = %refusal.message, "the highstate after the update of minions was not made");
            let _ = update.watcher.send(Err(refusal)).await;
        }
    });
    Ok(Box::pin(ReceiverStream::new(events)))
}

/// The highstate of a repeated request.
async fn made_before(jobs: &Jobs, new: &NewJob) -> Result<Option<JobId>, Refusal> {
    if new.request_id.is_none() {
        return Ok(None);
    }
    let newest = jobs.app().store.jobs(NEWEST).await?;
    let made = newest
        .into_iter()
        .find(|job| job.request_id == new.request_id);
    Ok(made.map(|job| job.job_id))
}

/// The report on hosts: the reason and its consequence.
fn report(jobs: &Jobs, job_id: &JobId, hosts: &[MinionId], because: &str, then: &str) -> v1::Event {
    tracing::info!(job = %job_id, ?hosts, because, then, "minions ahead of a highstate");
    let update = EventData::MinionUpdate(MinionUpdate {
        job: job_id.clone(),
        hosts: hosts.to_vec(),
        because: because.to_owned(),
        then: then.to_owned(),
    });
    event(jobs, &update)
}

/// An event for the watcher of this request alone.
fn event(jobs: &Jobs, data: &EventData) -> v1::Event {
    message(unstored(jobs.app().clock.now(), data, None))
}

/// The wait for these hosts, in the form of a waiting step.
fn waiting_for(job_id: &JobId, hosts: &str, since: Duration) -> StepWait {
    StepWait {
        job: Some(job_id.clone()),
        step: hosts.to_owned(),
        until: "the new minion has connected".to_owned(),
        because: "the minion restarts with the program of the bundle".to_owned(),
        seconds: since.as_secs(),
        limit: Some(LIMIT.as_secs()),
        remedy: "`journalctl -u halite-minion` on the host shows it; after a minute without the master the previous one runs again"
            .to_owned(),
        ..StepWait::default()
    }
}

/// Returns whether the minion restarts after this return. It does not if its file already was the
/// bundle's.
fn restarts(row: &JobRow) -> bool {
    let run = row.return_json.as_deref();
    let run = run.and_then(|text| serde_json::from_str::<RunReturn>(text).ok());
    run.is_some_and(|run| {
        let mut states = run.states.iter();
        states.any(|state| state.id == RESTART && !state.changes.is_empty())
    })
}

struct Update {
    jobs: Arc<Jobs>,
    watcher: mpsc::Sender<Result<v1::Event, Refusal>>,
    is_watched: AtomicBool,
}

impl Update {
    async fn carry_out(&self, new: NewJob, outdated: Vec<Outdated>) -> Result<(), Refusal> {
        if !self.update(&new, outdated).await? {
            return Ok(());
        }
        let events = self.jobs.app().events.subscribe();
        let job_id = self.jobs.create(new).await?;
        let events = silent_hosts::follow(&self.jobs, job_id, events);
        let last = self.pass_on(events).await?;
        self.send(last).await;
        Ok(())
    }

    /// Waits until no other highstate updates minions: a highstate that finds the new file in its
    /// place would mistake the minion before its restart for the new one.
    async fn turn(&self, outdated: &[Outdated]) -> MutexGuard<'_, ()> {
        let turn = self.jobs.minion_updates();
        if let Ok(turn) = turn.try_lock() {
            return turn;
        }
        let then = "another highstate updates minions; this one waits for it";
        self.ahead(outdated, DIFFERS, then).await;
        turn.lock().await
    }

    /// Returns the hosts that are connected or connect soon. The others get their highstate, or
    /// lose it, as if they were up to date.
    async fn connected(&self, outdated: &[Outdated]) -> Vec<MinionId> {
        let connections = &self.jobs.app().connections;
        let is_away = |one: &&Outdated| !connections.is_connected(&one.host);
        let away: Vec<Outdated> = outdated.iter().filter(is_away).cloned().collect();
        if !away.is_empty() {
            let then = format!(
                "the master waits at most {} s for it to connect",
                CONNECT.as_secs()
            );
            self.ahead(&away, DIFFERS, &then).await;
        }
        let looks = outdated.iter().map(|one| async move {
            let there = connections.wait_connected(&one.host, CONNECT).await;
            there.then(|| one.host.clone())
        });
        let looked = future::join_all(looks).await;
        looked.into_iter().flatten().collect()
    }

    /// Reports on hosts before there is a job.
    async fn ahead(&self, outdated: &[Outdated], because: &str, then: &str) {
        let hosts: Vec<MinionId> = outdated.iter().map(|one| one.host.clone()).collect();
        self.say(&self.jobs.next_job_id(), &hosts, because, then)
            .await;
    }

    /// Updates these minions; returns `false` if an operator has cancelled the update.
    async fn update(
        &self,
        highstate: &NewJob,
        mut outdated: Vec<Outdated>,
    ) -> Result<bool, Refusal> {
        let _turn = self.turn(&outdated).await;
        let app = self.jobs.app();
        let mut old = BTreeMap::new();
        for one in outdated.drain(..) {
            // Another highstate may have updated it already.
            if !runs(&target::grains(app, &one.host).await?, &one.wanted) {
                old.insert(one.host.clone(), one);
            }
        }
        let hosts = self
            .connected(&old.values().cloned().collect::<Vec<_>>())
            .await;
        if hosts.is_empty() {
            return Ok(true);
        }
        let new = NewJob {
            function: "state.apply".into(),
            args: json!({"sls": [MINION_SLS]}),
            operator: highstate.operator.clone(),
            target: hosts.join(","),
            minions: hosts.clone(),
            timeout: highstate.timeout,
            // A request that is repeated after a restart of the master finds this job.
            request_id: highstate
                .request_id
                .as_ref()
                .map(|id| format!("{id}/minions")),
            ..NewJob::default()
        };
        let events = self.jobs.app().events.subscribe();
        let job_id = self.jobs.create(new).await?;
        let then = "it is updated first; the other states follow after it has reconnected";
        self.say(&job_id, &hosts, DIFFERS, then).await;
        let events = silent_hosts::follow(&self.jobs, job_id.clone(), events);
        let last = self.pass_on(events).await?;
        let (_, rows) = self.jobs.wait(&job_id).await?;
        if rows.iter().any(was_cancelled) {
            self.send(last).await;
            return Ok(false);
        }
        let (good, bad): (Vec<JobRow>, Vec<JobRow>) = rows.into_iter().partition(succeeded);
        for row in &bad {
            let why = format!("the minion cannot be updated: {}", failure(row));
            self.report_fallback(&job_id, &row.minion, &why).await;
        }
        // The job of a repeated request may have more hosts than are connected now.
        old.retain(|host, _| good.iter().any(|row| row.minion == *host && restarts(row)));
        self.restarted(&job_id, old).await?;
        Ok(true)
    }

    /// Waits until these minions have connected with the new program, or with the previous one.
    async fn restarted(
        &self,
        job_id: &JobId,
        mut waiting: BTreeMap<MinionId, Outdated>,
    ) -> Result<(), Refusal> {
        let app = self.jobs.app();
        let job = app.store.job(job_id).await?;
        let created = job.map_or(0, |job| job.created);
        let (start, due) = (Instant::now(), NextReport::default());
        let mut joins = app.connections.joins();
        loop {
            // A minion's grains are stored before its connection counts.
            joins.borrow_and_update();
            for one in waiting.clone().into_values() {
                let grains = target::grains(app, &one.host).await?;
                let back = taken_back(&grains).filter(|reverted| {
                    let is_new = Some(reverted.time) != one.taken_back;
                    // A rollback of an earlier request's job is known already.
                    let is_of_job = reverted.time * 1000 >= created;
                    reverted.program == one.wanted && (is_new || is_of_job)
                });
                if let Some(reverted) = &back {
                    let why = format!(
                        "the update of the minion was rolled back, because it did not reach the master within {} s",
                        reverted.seconds
                    );
                    self.report_fallback(job_id, &one.host, &why).await;
                }
                if back.is_some() || runs(&grains, &one.wanted) {
                    waiting.remove(&one.host);
                }
            }
            if waiting.is_empty() {
                return Ok(());
            }
            let since = start.elapsed();
            if since >= LIMIT {
                let why = format!(
                    "the new minion has not connected within {} s",
                    LIMIT.as_secs()
                );
                for host in waiting.keys() {
                    self.report_fallback(job_id, host, &why).await;
                }
                return Ok(());
            }
            if due.take(since) {
                let names = waiting.keys().cloned().collect::<Vec<_>>().join(", ");
                let wait = EventData::Wait(waiting_for(job_id, &names, since));
                self.send(Some(event(&self.jobs, &wait))).await;
            }
            tokio::select! {
                _ = joins.changed() => {}
                () = tokio::time::sleep(SAY) => {}
            }
        }
    }

    /// Reports that a host gets its highstate from its present minion.
    async fn report_fallback(&self, job_id: &JobId, host: &MinionId, because: &str) {
        let then = "the previous minion applies the states";
        self.say(job_id, std::slice::from_ref(host), because, then)
            .await;
    }

    async fn say(&self, job_id: &JobId, hosts: &[MinionId], because: &str, then: &str) {
        let report = report(&self.jobs, job_id, hosts, because, then);
        self.send(Some(report)).await;
    }

    /// Forwards the events of a job; returns the last one.
    async fn pass_on(&self, mut events: EventStream) -> Result<Option<v1::Event>, Refusal> {
        while let Some(event) = events.next().await {
            let event = event?;
            if event.last {
                return Ok(Some(event));
            }
            self.send(Some(event)).await;
        }
        Ok(None)
    }

    /// Sends the watcher an event. A watcher that has disconnected or stopped reading misses it.
    async fn send(&self, event: Option<v1::Event>) {
        let Some(event) = event else {
            return;
        };
        if self.is_watched.load(Ordering::Relaxed) {
            let sent = self.watcher.send_timeout(Ok(event), READ).await;
            self.is_watched.store(sent.is_ok(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
#[path = "minions_first_tests.rs"]
mod tests;
