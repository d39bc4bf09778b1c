//! The events of a run: its steps from the beginning, and the events of their jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use halite_api::{EventData, EventTag, RunCreated, RunEnded, RunStep};
use halite_core::event_bus::{data as event_data, unstored};
use halite_core::event_stream;
use halite_core::event_stream::{EventStream, Stop, Watched, Watcher};
use halite_core::refusal::Refusal;
use halite_fleet::jobs::Jobs;
use halite_proto::ids::JobId;
use halite_store::{Event, Run, RunStatus, Step, StepStatus};
use tokio::sync::broadcast::Receiver;

use super::record::{document, step_data};

/// The events of a run. `bus` must have been subscribed to before the run was started or found.
pub fn follow(jobs: Arc<Jobs>, run: JobId, bus: Receiver<Event>) -> EventStream {
    let prefix = format!("halite/run/{run}/");
    let (reported, job_ids) = (BTreeMap::new(), BTreeSet::new());
    event_stream::follow(
        WatchedRun {
            jobs,
            run,
            prefix,
            reported,
            job_ids,
            introduced: false,
        },
        bus,
    )
}

struct WatchedRun {
    jobs: Arc<Jobs>,
    run: JobId,
    /// The prefix of its events' tags.
    prefix: String,
    /// The last reported status of each step.
    reported: BTreeMap<u32, halite_api::StepStatus>,
    /// The jobs of the run.
    job_ids: BTreeSet<JobId>,
    introduced: bool,
}

impl WatchedRun {
    /// Records jobs of the run; returns `false` for an event that repeats one that the store has
    /// reported.
    fn is_news(&mut self, event: &Event) -> bool {
        match event_data(event) {
            EventData::RunJob(made) => {
                self.job_ids.insert(made.job);
                true
            }
            EventData::RunStep(step) => self.is_new_status(&step),
            EventData::RunCreated(_) => false,
            _ => true,
        }
    }

    /// Records the status of a step; returns `false` for a status that was reported already.
    fn is_new_status(&mut self, step: &RunStep) -> bool {
        let status = step.step.status.clone();
        self.reported.insert(step.step.index, status.clone()) != Some(status)
    }

    fn is_of_our_jobs(&self, tag: &str) -> bool {
        matches!(EventTag::parse(tag), EventTag::Job { job, .. } if self.job_ids.contains(&job))
    }
}

impl Watched for WatchedRun {
    async fn catch_up(&mut self, watcher: &Watcher) -> Result<bool, Stop> {
        let store = Arc::clone(&self.jobs.app().store);
        let run = store.run(&self.run).await.map_err(Refusal::from)?;
        let run = run.ok_or_else(|| Refusal::not_found(format!("there is no run {}", self.run)))?;
        let steps = store.steps(&self.run).await.map_err(Refusal::from)?;
        if !self.introduced {
            self.introduced = true;
            let data = EventData::RunCreated(created(&run, &steps));
            watcher.report(unstored(run.created, &data, None)).await?;
        }
        for step in steps
            .iter()
            .filter(|step| step.status != StepStatus::Waiting)
        {
            let data = step_data(step, steps.len());
            self.job_ids.extend(data.step.detail.jobs.iter().cloned());
            if self.is_new_status(&data) {
                let at = step.ended.or(step.started).unwrap_or(run.created);
                let data = EventData::RunStep(Box::new(data));
                watcher.report(unstored(at, &data, None)).await?;
            }
        }
        if run.status != RunStatus::Running {
            watcher.report(conclusion(&run, &steps)).await?;
            return Ok(true);
        }
        Ok(false)
    }

    async fn accept(&mut self, mut event: Event) -> Result<Option<Event>, Stop> {
        if event.tag.starts_with(&self.prefix) {
            return Ok((event.last || self.is_news(&event)).then_some(event));
        }
        // The end of one of its jobs is not the end of the run.
        event.last = false;
        Ok(self.is_of_our_jobs(&event.tag).then_some(event))
    }
}

fn conclusion(run: &Run, steps: &[Step]) -> Event {
    let data = EventData::RunEnded(Box::new(summary(run, steps)));
    unstored(run.changed, &data, Some(retcode(run, steps)))
}

/// The data of a `new` event.
pub(super) fn created(run: &Run, steps: &[Step]) -> RunCreated {
    RunCreated {
        run: run.id.clone(),
        sls: run.sls.clone(),
        test: run.test,
        operator: run.operator.clone(),
        steps: steps.iter().map(|step| step.name.clone()).collect(),
    }
}

/// The return code of a run that has ended: a pause that the run itself contained is a success, one
/// that an operator requested later is not.
pub(super) fn retcode(run: &Run, steps: &[Step]) -> i32 {
    let is_whole = steps
        .iter()
        .all(|step| step.status == StepStatus::Succeeded);
    i32::from(match run.status {
        RunStatus::Paused => !is_whole,
        status => status != RunStatus::Succeeded,
    })
}

/// The data of a `done` event.
pub(super) fn summary(run: &Run, steps: &[Step]) -> RunEnded {
    let (by, paused_by) = (run.cancelled_by.clone(), run.paused_by.clone());
    RunEnded {
        run: run.id.clone(),
        status: run.status.as_str().into(),
        cancelled_by: by.filter(|_| run.status == RunStatus::Cancelled),
        paused_by: paused_by.filter(|_| run.status == RunStatus::Paused),
        retcode: retcode(run, steps),
        steps: steps.iter().map(document).collect(),
    }
}
