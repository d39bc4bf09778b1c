//! Watching a run: its steps from the beginning, and the events of the jobs that they make.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use halite_proto::v1;
use serde_json::{Value, json};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::record::step_data;
use crate::app::{EventStream, Refusal};
use crate::jobs::Jobs;
use crate::store::{Event, Millis, Run, RunStatus, Step, StepStatus};

/// Events that may wait for a slow watcher.
const QUEUE: usize = 256;

/// The events of a run; `bus` must have been subscribed before the run was started or found.
pub(super) fn follow(jobs: Arc<Jobs>, run: String, bus: Receiver<Event>) -> EventStream {
    let (sender, receiver) = mpsc::channel(QUEUE);
    tokio::spawn(async move {
        let mut watcher =
            Watcher { jobs, run, sender, told: BTreeMap::new(), jids: BTreeSet::new(), introduced: false };
        if let Err(Stop::Failed(refusal)) = watcher.watch(bus).await {
            // A watcher that has gone needs no reason.
            let _ = watcher.sender.send(Err(refusal)).await;
        }
    });
    Box::pin(ReceiverStream::new(receiver))
}

enum Stop {
    Gone,
    Failed(Refusal),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Failed(refusal)
    }
}

struct Watcher {
    jobs: Arc<Jobs>,
    run: String,
    sender: mpsc::Sender<Result<v1::Event, Refusal>>,
    /// The status that was told last, by step.
    told: BTreeMap<u64, String>,
    /// Jobs of the run.
    jids: BTreeSet<String>,
    introduced: bool,
}

impl Watcher {
    async fn watch(&mut self, mut bus: Receiver<Event>) -> Result<(), Stop> {
        let prefix = format!("halite/run/{}/", self.run);
        if self.recount().await? {
            return Ok(());
        }
        loop {
            let event = tokio::select! {
                event = bus.recv() => event,
                () = self.sender.closed() => return Err(Stop::Gone),
            };
            match event {
                Ok(event) if event.tag.starts_with(&prefix) => {
                    if event.last {
                        return self.send(event).await;
                    }
                    if self.is_news(&event) {
                        self.send(event).await?;
                    }
                }
                Ok(mut event) if self.of_our_jobs(&event.tag) => {
                    event.last = false;
                    self.send(event).await?;
                }
                Ok(_) => {}
                Err(RecvError::Lagged(_)) => {
                    if self.recount().await? {
                        return Ok(());
                    }
                }
                Err(RecvError::Closed) => return Err(Refusal::internal("the master is stopping").into()),
            }
        }
    }

    /// Notes jobs, and holds back what the store has told already.
    fn is_news(&mut self, event: &Event) -> bool {
        let data: Value = serde_json::from_str(&event.data_json).unwrap_or_default();
        if event.tag.ends_with("/job") {
            if let Some(jid) = data.get("jid").and_then(Value::as_str) {
                self.jids.insert(jid.to_owned());
            }
            return true;
        }
        match (data.get("index").and_then(Value::as_u64), data.get("status").and_then(Value::as_str)) {
            (Some(index), Some(status)) => {
                self.told.insert(index, status.to_owned()).as_deref() != Some(status)
            }
            _ => !event.tag.ends_with("/new"),
        }
    }

    fn of_our_jobs(&self, tag: &str) -> bool {
        let jid = tag.strip_prefix("halite/job/").and_then(|rest| rest.split('/').next());
        jid.is_some_and(|jid| self.jids.contains(jid))
    }

    /// Tells what the store says and was not told yet; true when that was all.
    async fn recount(&mut self) -> Result<bool, Stop> {
        let store = Arc::clone(&self.jobs.app().store);
        let run = store.run(&self.run).await.map_err(Refusal::from)?;
        let run = run.ok_or_else(|| Refusal::not_found(format!("there is no run {}", self.run)))?;
        let steps = store.steps(&self.run).await.map_err(Refusal::from)?;
        if !self.introduced {
            self.introduced = true;
            let names: Vec<&str> = steps.iter().map(|step| step.name.as_str()).collect();
            let data = json!({"id": run.id, "sls": run.sls, "test": run.test, "operator": run.operator, "steps": names});
            self.send(event(&run.id, "new", run.created, &data, None)).await?;
        }
        for step in steps.iter().filter(|step| step.status != StepStatus::Waiting) {
            let data = step_data(step, steps.len());
            let jobs = data.pointer("/detail/jobs").and_then(Value::as_array).cloned().unwrap_or_default();
            self.jids.extend(jobs.iter().filter_map(Value::as_str).map(str::to_owned));
            let status = step.status.as_str().to_owned();
            if self.told.insert(u64::from(step.index), status.clone()).as_deref() != Some(status.as_str()) {
                let at = step.ended.or(step.started).unwrap_or(run.created);
                self.send(event(&run.id, "step", at, &data, None)).await?;
            }
        }
        if run.status != RunStatus::Running {
            self.send(conclusion(&run, &steps)).await?;
            return Ok(true);
        }
        Ok(false)
    }

    async fn send(&self, event: Event) -> Result<(), Stop> {
        self.sender.send(Ok(event.into())).await.map_err(|_| Stop::Gone)
    }
}

fn event(run: &str, what: &str, time: Millis, data: &Value, last: Option<i32>) -> Event {
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
    event(&run.id, "done", run.changed, &summary(&run.id, run.status, steps), Some(retcode))
}

/// The data of a `done` event.
pub(super) fn summary(id: &str, status: RunStatus, steps: &[Step]) -> Value {
    let total = steps.len();
    json!({"id": id, "status": status.as_str(), "retcode": i32::from(status != RunStatus::Succeeded),
        "steps": steps.iter().map(|step| step_data(step, total)).collect::<Vec<_>>()})
}
