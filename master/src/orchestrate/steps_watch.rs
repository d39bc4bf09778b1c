//! The events of a run: its steps from the beginning, and the events of their jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use halite_core::event_stream;
use halite_core::event_stream::{EventStream, Stop, Watched, Watcher};
use halite_core::refusal::Refusal;
use halite_fleet::jobs::Jobs;
use halite_proto::ids::JobId;
use halite_store::{Event, Millis, Run, RunStatus, Step, StepStatus};
use serde_json::{Value, json};
use tokio::sync::broadcast::Receiver;

use super::record::step_data;

/// The events of a run. `bus` must have been subscribed to before the run was started or found.
pub(super) fn follow(jobs: Arc<Jobs>, run: JobId, bus: Receiver<Event>) -> EventStream {
    let prefix = format!("halite/run/{run}/");
    let (reported, jids) = (BTreeMap::new(), BTreeSet::new());
    event_stream::follow(
        WatchedRun {
            jobs,
            run,
            prefix,
            reported,
            jids,
            introduced: false,
        },
        bus,
    )
}

struct WatchedRun {
    jobs: Arc<Jobs>,
    run: JobId,
    /// The prefix of the tags of its events.
    prefix: String,
    /// The last reported status of each step.
    reported: BTreeMap<u64, String>,
    /// The jobs of the run.
    jids: BTreeSet<JobId>,
    introduced: bool,
}

impl WatchedRun {
    /// Notes jobs of the run; false for an event that repeats what the store reported already.
    fn is_news(&mut self, event: &Event) -> bool {
        let data: Value = serde_json::from_str(&event.data_json).unwrap_or_default();
        if event.tag.ends_with("/job") {
            self.jids.extend(data.get("jid").and_then(id));
            return true;
        }
        match (
            data.get("index").and_then(Value::as_u64),
            data.get("status").and_then(Value::as_str),
        ) {
            (Some(index), Some(status)) => {
                self.reported.insert(index, status.to_owned()).as_deref() != Some(status)
            }
            _ => !event.tag.ends_with("/new"),
        }
    }

    fn is_of_our_jobs(&self, tag: &str) -> bool {
        let jid = tag
            .strip_prefix("halite/job/")
            .and_then(|rest| rest.split('/').next());
        jid.is_some_and(|jid| self.jids.contains(jid))
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
            let names: Vec<&str> = steps.iter().map(|step| step.name.as_str()).collect();
            let data = json!({"id": run.id, "sls": run.sls, "test": run.test, "operator": run.operator, "steps": names});
            watcher
                .report(event(&run.id, "new", run.created, &data, None))
                .await?;
        }
        for step in steps
            .iter()
            .filter(|step| step.status != StepStatus::Waiting)
        {
            let data = step_data(step, steps.len());
            let jobs = data
                .pointer("/detail/jobs")
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default();
            self.jids.extend(jobs.iter().filter_map(id));
            let status = step.status.as_str().to_owned();
            if self
                .reported
                .insert(u64::from(step.index), status.clone())
                .as_deref()
                != Some(status.as_str())
            {
                let at = step.ended.or(step.started).unwrap_or(run.created);
                watcher
                    .report(event(&run.id, "step", at, &data, None))
                    .await?;
            }
        }
        if run.status != RunStatus::Running {
            watcher.report(conclusion(&run, &steps)).await?;
            return Ok(true);
        }
        Ok(false)
    }

    fn accept(&mut self, mut event: Event) -> Option<Event> {
        if event.tag.starts_with(&self.prefix) {
            return (event.last || self.is_news(&event)).then_some(event);
        }
        // The end of one of its jobs is not the end of the run.
        event.last = false;
        self.is_of_our_jobs(&event.tag).then_some(event)
    }
}

/// The id of a job in an event or a step.
fn id(value: &Value) -> Option<JobId> {
    value.as_str()?.parse().ok()
}

fn event(run: &JobId, what: &str, time: Millis, data: &Value, last: Option<i32>) -> Event {
    Event {
        seq: 0,
        tag: format!("halite/run/{run}/{what}"),
        time,
        data_json: data.to_string(),
        last: last.is_some(),
        retcode: last.unwrap_or(0),
    }
}

fn conclusion(run: &Run, steps: &[Step]) -> Event {
    let retcode = i32::from(run.status != RunStatus::Succeeded);
    event(
        &run.id,
        "done",
        run.changed,
        &summary(run, steps),
        Some(retcode),
    )
}

/// The data of a `done` event.
pub(super) fn summary(run: &Run, steps: &[Step]) -> Value {
    let (total, status) = (steps.len(), run.status);
    let by = run.cancelled_by.as_deref();
    let by = by.filter(|_| status == RunStatus::Cancelled);
    json!({"id": run.id, "status": status.as_str(), "cancelledBy": by, "retcode": i32::from(status != RunStatus::Succeeded),
        "steps": steps.iter().map(|step| step_data(step, total)).collect::<Vec<_>>()})
}
