//! Watching a job: its events from the beginning, whenever the watcher came.

use std::collections::BTreeSet;
use std::sync::Arc;

use halite_proto::v1;
use serde_json::json;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::returns::{ended_row, overall, summary, tag};
use super::{Jobs, create, ended};
use crate::app::{EventStream, Refusal};
use crate::store::{Event, Job, JobRow, JobStatus, Millis};

/// Events that may wait for a slow watcher.
const QUEUE: usize = 256;

impl Jobs {
    /// The events of a job: first what the store says of it, then what happens. `bus` must have been subscribed before
    /// the job was made, or before now for one that is there.
    #[must_use]
    pub fn follow(self: &Arc<Self>, jid: String, bus: Receiver<Event>) -> EventStream {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let jobs = Arc::clone(self);
        tokio::spawn(async move {
            let mut watcher = Watcher { jobs, jid, sender, told: BTreeSet::new(), introduced: false };
            if let Err(Stop::Failed(refusal)) = watcher.watch(bus).await {
                // A watcher that has gone needs no reason.
                let _ = watcher.sender.send(Err(refusal)).await;
            }
        });
        Box::pin(ReceiverStream::new(receiver))
    }
}

/// Why watching ends early.
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
    jid: String,
    sender: mpsc::Sender<Result<v1::Event, Refusal>>,
    /// Minions whose return was told.
    told: BTreeSet<String>,
    introduced: bool,
}

impl Watcher {
    async fn watch(&mut self, mut bus: Receiver<Event>) -> Result<(), Stop> {
        let prefix = format!("halite/job/{}/", self.jid);
        if self.recount().await? {
            return Ok(());
        }
        loop {
            let event = tokio::select! {
                event = bus.recv() => event,
                () = self.sender.closed() => return Err(Stop::Gone),
            };
            match event {
                Ok(event) if event.last && event.tag.starts_with(&prefix) => return self.send(event).await,
                Ok(event) if event.tag.starts_with(&prefix) => {
                    let rest = &event.tag[prefix.len()..];
                    let news = match rest.split_once('/') {
                        Some(("ret", minion)) => self.told.insert(minion.to_owned()),
                        _ => rest != "new",
                    };
                    if news {
                        self.send(event).await?;
                    }
                }
                Ok(_) => {}
                // What was missed is in the store, but for progress, which is worth nothing afterwards.
                Err(RecvError::Lagged(_)) => {
                    if self.recount().await? {
                        return Ok(());
                    }
                }
                Err(RecvError::Closed) => return Err(Refusal::internal("the master is stopping").into()),
            }
        }
    }

    /// Tells what the store says and was not told yet; true when that was all.
    async fn recount(&mut self) -> Result<bool, Stop> {
        let store = Arc::clone(&self.jobs.app.store);
        let job = store.job(&self.jid).await.map_err(Refusal::from)?;
        let job = job.ok_or_else(|| Refusal::not_found(format!("there is no job {}", self.jid)))?;
        let rows = store.rows(&self.jid).await.map_err(Refusal::from)?;
        if !self.introduced {
            self.introduced = true;
            self.send(introduction(&job)).await?;
        }
        for row in rows.iter().filter(|row| ended(row.state)) {
            if self.told.insert(row.minion.clone()) {
                let at = row.ended.unwrap_or(job.created);
                self.send(event(tag(&job.jid, "ret", Some(&row.minion)), at, &ended_row(row), None)).await?;
            }
        }
        if job.status == JobStatus::Finished {
            self.send(conclusion(&job, &rows)).await?;
            return Ok(true);
        }
        Ok(false)
    }

    async fn send(&self, event: Event) -> Result<(), Stop> {
        self.sender.send(Ok(event.into())).await.map_err(|_| Stop::Gone)
    }
}

fn event(tag: String, time: Millis, data: &serde_json::Value, last: Option<i32>) -> Event {
    Event { seq: 0, tag, time, data_json: data.to_string(), last: last.is_some(), retcode: last.unwrap_or(0) }
}

fn introduction(job: &Job) -> Event {
    let data = json!({"jid": job.jid, "function": job.function, "target": job.target, "minions": job.minions,
        "order": create::order_of(&job.args_json), "test": job.test, "operator": job.operator});
    event(tag(&job.jid, "new", None), job.created, &data, None)
}

fn conclusion(job: &Job, rows: &[JobRow]) -> Event {
    let retcode = job.retcode.unwrap_or_else(|| overall(rows));
    event(
        tag(&job.jid, "done", None),
        job.finished.unwrap_or(job.created),
        &summary(&job.jid, rows),
        Some(retcode),
    )
}
