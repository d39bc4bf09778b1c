//! Messages of minions about jobs: starts, progress, returns. A return is on disk before any
//! watcher or minion is notified of it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use halite_api::{
    EventData, JobCreated, JobEnded, JournalLines, MinionAnswer, PartReturned, PartStarted,
    StateProgress,
};
use halite_core::refusal::Refusal;
use halite_proto::ids::{JobId, MinionId};
use halite_proto::v1;
use halite_proto::v1::master_message::Body as ToMinion;
use halite_proto::v1::minion_message::Body;
use halite_states::low::StateReturn;
use halite_store::{Job, JobRow, JobStatus, RowState, StoredAnswer, StoredPart};

use super::Jobs;
use super::function::{Function, FunctionSite, READ_JOURNAL};
use super::open_job::{OpenJob, PartEnd};

/// The end of a job that is being recorded. If the job is still open afterwards, it has not ended:
/// the store failed, or the task was dropped.
struct Ending<'a> {
    jobs: &'a Jobs,
    job_id: &'a JobId,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if let Some(job) = self.jobs.open_jobs().get_mut(self.job_id) {
            job.has_not_ended();
        }
    }
}

impl Jobs {
    /// Handles a message of a minion other than its hello and its grains.
    ///
    /// # Errors
    /// The store failed: then the return is not acknowledged, and the minion sends it again. A
    /// return with unknown secrets is not an error; the minion keeps it until the master asks for
    /// it.
    pub async fn message_from(
        self: &Arc<Self>,
        minion: &MinionId,
        body: Body,
    ) -> Result<(), Refusal> {
        match body {
            Body::Started(started) => self.started(&started.job.parse()?, minion).await,
            Body::Progress(progress) => {
                let job_id = progress.job.parse()?;
                self.progress(&job_id, minion, progress).await;
                Ok(())
            }
            Body::Returned(returned) => {
                let job_id = returned.job.parse()?;
                let Some(returned) = self.questions.take(&job_id, minion, returned) else {
                    return Ok(());
                };
                let redactor = match self.redactor(&job_id, minion).await {
                    Ok(redactor) => redactor,
                    Err(refusal) => {
                        self.hold(minion, &refusal);
                        return Ok(());
                    }
                };
                let answer = StoredAnswer {
                    retcode: returned.retcode,
                    return_json: redactor.json(&returned.return_json),
                    error: redactor.text(&returned.error),
                    when: self.app.clock.now(),
                };
                // A minion keeps no answer to a query, so it need not know that this one is stored.
                let is_query = self
                    .open_jobs()
                    .get(&job_id)
                    .is_some_and(|job| job.function.is_query());
                self.returned(&job_id, minion, answer).await?;
                if is_query {
                    return Ok(());
                }
                let stored = ToMinion::Stored(v1::ReturnStored { job: returned.job });
                // A disconnected minion sends the return again and gets the answer then.
                let _ = self
                    .app
                    .connections
                    .send(minion, v1::MasterMessage { body: Some(stored) })
                    .await;
                Ok(())
            }
            Body::Hello(_) | Body::Grains(_) => Ok(()),
        }
    }

    /// Records that a minion has started the job, which is in its journal.
    pub(super) async fn started(&self, job_id: &JobId, minion: &MinionId) -> Result<(), Refusal> {
        let place = self.open_jobs().get(job_id).map(|job| job.function.place);
        let Some(place) = place else { return Ok(()) };
        {
            let lane = self.lane(minion);
            let mut session = lane.lock().await;
            // A part that has ended is not recorded again: no later end would remove it.
            if self.is_pending(job_id, minion) {
                session.running.insert(job_id.clone());
            }
        }
        // The start of a query need not be stored: its return follows at once, and sending it twice
        // does no harm.
        if place == FunctionSite::States {
            self.app
                .store
                .mark_started(job_id, minion, self.app.clock.now())
                .await?;
        }
        let started = EventData::PartStarted(PartStarted {
            job: job_id.clone(),
            minion: minion.clone(),
        });
        self.app.events.announce(&started, None);
        Ok(())
    }

    async fn progress(&self, job_id: &JobId, minion: &MinionId, progress: v1::JobProgress) {
        let function = {
            let jobs = self.open_jobs();
            let ours = jobs.get(job_id).filter(|job| job.pending.contains(minion));
            ours.map(|job| job.function.name)
        };
        let Some(function) = function else {
            return;
        };
        // Without a redactor no progress can be displayed; the return contains it later.
        let Ok(redactor) = self.declarations.redactor(minion).await else {
            return;
        };
        let clean = redactor.json(&progress.state_json);
        if function == READ_JOURNAL {
            let lines = MinionAnswer::from_json(&clean).and_then(|value| value.journal_lines());
            let data = EventData::JournalLines(JournalLines {
                job: job_id.clone(),
                minion: minion.clone(),
                lines: lines.unwrap_or_default(),
            });
            self.app.events.announce(&data, None);
            return;
        }
        let state = serde_json::from_str(&clean).ok();
        self.progressed(job_id, minion, (progress.index, progress.total), state);
    }

    /// Announces that one state of a job is done, with its position and the number of all states.
    pub(super) fn progressed(
        &self,
        job_id: &JobId,
        minion: &MinionId,
        (index, total): (u32, u32),
        state: Option<StateReturn>,
    ) {
        if let Some(state) = &state {
            self.app.metrics.count_state(state);
        }
        let progress = EventData::StateProgress(Box::new(StateProgress {
            job: job_id.clone(),
            minion: minion.clone(),
            index,
            total,
            state,
        }));
        self.app.events.announce(&progress, None);
    }

    /// Stores a return; the first one counts. Then the parts that waited for it continue.
    ///
    /// # Errors
    /// The store failed.
    pub(super) async fn returned(
        self: &Arc<Self>,
        job_id: &JobId,
        minion: &MinionId,
        answer: StoredAnswer,
    ) -> Result<(), Refusal> {
        // The events of a query are not stored, so its end is stored together with its last return.
        let ends = self.open_jobs().get(job_id).is_some_and(|job| {
            job.function.is_query() && job.pending.len() == 1 && job.pending.contains(minion)
        });
        let store = &self.app.store;
        let first = if ends {
            store.record_last_return(job_id, minion, &answer).await?
        } else {
            store.record_return(job_id, minion, &answer).await?
        };
        if !first {
            tracing::debug!(job = %job_id, %minion, "ignored a return that is already stored or belongs to no job of this minion");
            return Ok(());
        }
        self.app.metrics.returns.inc();
        tracing::info!(job = %job_id, %minion, retcode = answer.retcode, error = %answer.error, "returned");
        let end = match answer.retcode {
            0 => PartEnd::Succeeded,
            _ => PartEnd::Failed,
        };
        let row = JobRow {
            state: RowState::Returned,
            return_json: Some(answer.return_json),
            retcode: Some(answer.retcode),
            error: answer.error,
            ended: Some(answer.when),
            ..JobRow::queued(job_id, minion, None)
        };
        self.announce_end(&row).await;
        self.end_part(job_id, minion, end).await
    }

    /// Ends a part whose return did not arrive.
    ///
    /// # Errors
    /// The store failed.
    pub(super) async fn lost(
        self: &Arc<Self>,
        job_id: &JobId,
        minion: &MinionId,
        why: &str,
    ) -> Result<(), Refusal> {
        self.end_without_return(job_id, minion, why, PartEnd::Failed)
            .await
    }

    /// Ends a part without a return.
    ///
    /// # Errors
    /// The store failed.
    pub(super) async fn end_without_return(
        self: &Arc<Self>,
        job_id: &JobId,
        minion: &MinionId,
        why: &str,
        end: PartEnd,
    ) -> Result<(), Refusal> {
        let now = self.app.clock.now();
        if !self.app.store.mark_lost(job_id, minion, why, now).await? {
            return Ok(());
        }
        self.after_loss(job_id, minion, why, end).await
    }

    /// Ends a part that its minion no longer knows. It is lost with the return code of an
    /// interrupted job; if a return arrives after all, it counts instead.
    ///
    /// # Errors
    /// The store failed.
    pub(super) async fn interrupted(
        self: &Arc<Self>,
        job_id: &JobId,
        minion: &MinionId,
        why: &str,
    ) -> Result<(), Refusal> {
        let (store, now) = (&self.app.store, self.app.clock.now());
        if !store.mark_interrupted(job_id, minion, why, now).await? {
            return Ok(());
        }
        self.after_loss(job_id, minion, why, PartEnd::Failed).await
    }

    /// Announces a part that the store has recorded as lost, and continues after it.
    ///
    /// # Errors
    /// The store failed.
    pub(super) async fn after_loss(
        self: &Arc<Self>,
        job_id: &JobId,
        minion: &MinionId,
        why: &str,
        end: PartEnd,
    ) -> Result<(), Refusal> {
        tracing::warn!(job = %job_id, %minion, why, "expired");
        if minion.is_master() {
            self.stop_here(job_id);
        }
        let row = JobRow {
            state: RowState::Lost,
            error: why.to_owned(),
            ended: Some(self.app.clock.now()),
            ..JobRow::queued(job_id, minion, None)
        };
        self.announce_end(&row).await;
        self.end_part(job_id, minion, end).await
    }

    /// Ends the parts of a job that will not start because a part of an earlier group failed.
    ///
    /// # Errors
    /// The store failed.
    pub(super) async fn end_not_started(self: &Arc<Self>, job_id: &JobId) -> Result<(), Refusal> {
        let minions = self.open_jobs().get(job_id).map(OpenJob::not_started);
        for (minion, failed) in minions.unwrap_or_default() {
            let why = format!(
                "not started, because {failed} failed before it: repair that host, then run the command again"
            );
            self.end_without_return(job_id, &minion, &why, PartEnd::NotStarted)
                .await?;
        }
        Ok(())
    }

    /// Continues after the end of a part: sends the parts that wait behind it on this minion, and
    /// the parts of the job's next group.
    fn end_part<'a>(
        self: &'a Arc<Self>,
        job_id: &'a JobId,
        minion: &'a MinionId,
        end: PartEnd,
    ) -> BoxFuture<'a, Result<(), Refusal>> {
        // Boxed, because sending may store a return at once, which calls this again.
        Box::pin(async move {
            let next = {
                let mut open = self.open_jobs();
                match open.get_mut(job_id) {
                    Some(job) => {
                        job.end(minion, end);
                        job.make_ready(self.app.clock.steady())
                    }
                    None => Vec::new(),
                }
            };
            self.turns().end(minion, job_id, end);
            let mut outcome = Ok(());
            if end == PartEnd::Failed {
                outcome = self.end_not_started(job_id).await;
            }
            outcome = outcome.and(self.finish_if_done(job_id).await);
            {
                // Last, because a stop of the master waits for this and must not interrupt the
                // steps above.
                let lane = self.lane(minion);
                let mut session = lane.lock().await;
                session.forget(job_id);
            }
            self.guard(job_id);
            // Send the parts behind this one even if the store has failed before: no other message
            // would start them.
            for other in next.iter().chain([minion]) {
                outcome = outcome.and(self.dispatch(other).await);
            }
            outcome
        })
    }

    /// Finishes a job that has no open part.
    ///
    /// # Errors
    /// The store failed. The job stays open, and the check of open jobs retries.
    pub(super) async fn finish_if_done(&self, job_id: &JobId) -> Result<(), Refusal> {
        let ending = {
            let mut open = self.open_jobs();
            let job = open.get_mut(job_id);
            job.and_then(|job| job.begin_end().then(|| (job.function, job.job.created)))
        };
        let Some((function, created)) = ending else {
            return Ok(());
        };
        let _ending = Ending { jobs: self, job_id };
        let retcode = self.finish(function, job_id).await?;
        let took = u64::try_from(self.app.clock.now() - created).unwrap_or_default();
        let took = Duration::from_millis(took);
        let metrics = &self.app.metrics;
        metrics.count_job(function.name, retcode == 0, took);
        self.open_jobs().remove(job_id);
        self.ends.send_modify(|count| *count += 1);
        if function.place == FunctionSite::States {
            // The compiled data and the returns took megabytes.
            halite_heap::give_back();
        }
        Ok(())
    }

    /// Records that a job has ended, and notifies its watchers; returns its return code. May be
    /// repeated.
    async fn finish(&self, function: &Function, job_id: &JobId) -> Result<i32, Refusal> {
        let parts = self.app.store.parts(job_id).await?;
        let now = self.app.clock.now();
        let retcode = overall(&parts);
        let stored = function.is_query()
            && self
                .app
                .store
                .job(job_id)
                .await?
                .is_some_and(|job| job.status == JobStatus::Finished);
        if !stored {
            self.app.store.finish_job(job_id, retcode, now).await?;
        }
        tracing::info!(job = %job_id, retcode, "job finished");
        let ended = EventData::JobEnded(summary(job_id, &parts));
        self.publish(function, &ended, Some(retcode)).await?;
        Ok(retcode)
    }

    /// Announces the end of a part. The row contains the return: the event that is stored, for jobs
    /// that apply states, contains only the outcome.
    async fn announce_end(&self, row: &JobRow) {
        let returned = returned(row);
        let place = self
            .open_jobs()
            .get(&row.job_id)
            .map(|job| job.function.place);
        let stored = EventData::PartReturned(Box::new(returned.announcement()));
        let live = EventData::PartReturned(Box::new(returned));
        if place == Some(FunctionSite::States) {
            match self.app.events.publish_brief(&stored, &live).await {
                Ok(_) => return,
                // The row is stored, so the part has ended.
                Err(error) => {
                    tracing::error!(job = %row.job_id, %error, "cannot store the event of a return");
                }
            }
        }
        self.app.events.announce(&live, None);
    }

    /// Publishes an event of a whole job; it is stored only for jobs that apply states.
    pub(super) async fn publish(
        &self,
        function: &Function,
        event: &EventData,
        last: Option<i32>,
    ) -> Result<(), Refusal> {
        match (function.place, last) {
            (FunctionSite::States, Some(retcode)) => {
                self.app.events.publish_last(event, retcode).await?;
            }
            (FunctionSite::States, None) => {
                self.app.events.publish(event).await?;
            }
            (FunctionSite::Minion | FunctionSite::Here, last) => {
                self.app.events.announce(event, last);
            }
        }
        Ok(())
    }
}

/// Returns 0 if each minion returned 0, otherwise 1.
pub(super) fn overall(parts: &[StoredPart]) -> i32 {
    i32::from(!parts.iter().all(succeeded))
}

fn succeeded(part: &StoredPart) -> bool {
    part.state == RowState::Returned && part.retcode == Some(0)
}

/// The data of a `new` event.
pub(super) fn created(job: &Job) -> JobCreated {
    JobCreated {
        job: job.job_id.clone(),
        function: job.function.clone(),
        target: job.target.clone(),
        minions: job.minions.clone(),
        order: job.order.clone(),
        test: job.test,
        operator: job.operator.clone(),
    }
}

/// The data of a `ret` event.
pub(super) fn returned(row: &JobRow) -> PartReturned {
    PartReturned::new(
        (row.job_id.clone(), row.minion.clone()),
        row.state.as_str().into(),
        row.retcode.unwrap_or(1),
        row.return_json.as_deref().and_then(MinionAnswer::from_json),
        Some(row.error.clone()).filter(|error| !error.is_empty()),
    )
}

/// The data of a `done` event.
pub(super) fn summary(job_id: &JobId, parts: &[StoredPart]) -> JobEnded {
    let named = |keep: &dyn Fn(&StoredPart) -> bool| {
        let kept = parts.iter().filter(|part| keep(part));
        kept.map(|part| part.minion.clone()).collect()
    };
    JobEnded {
        job: job_id.clone(),
        retcode: overall(parts),
        succeeded: named(&succeeded),
        failed: named(&|part| part.state == RowState::Returned && part.retcode != Some(0)),
        lost: named(&|part| part.state == RowState::Lost),
    }
}
