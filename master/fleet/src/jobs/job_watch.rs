//! The events of a job from its start, even for a watcher that connects later.

use std::collections::BTreeSet;
use std::sync::Arc;

use halite_api::EventData;
use halite_core::event_bus::unstored;
use halite_core::event_stream;
use halite_core::event_stream::{EventStream, Stop, Watched, Watcher};
use halite_core::refusal::Refusal;
use halite_proto::ids::{JobId, MinionId};
use halite_store::{Event, Job, JobStatus, StoredPart};
use tokio::sync::broadcast::Receiver;

use super::Jobs;
use super::open_job::ended;
use super::returns::{created, overall, returned, summary};

impl Jobs {
    /// The events of a job. `bus` must have been subscribed to before the job was created; for an
    /// existing job, any subscription works.
    #[must_use]
    pub fn follow(self: &Arc<Self>, job_id: JobId, bus: Receiver<Event>) -> EventStream {
        let prefix = format!("halite/job/{job_id}/");
        let jobs = Arc::clone(self);
        event_stream::follow(
            WatchedJob {
                jobs,
                job_id,
                prefix,
                reported: BTreeSet::new(),
                introduced: false,
            },
            bus,
        )
    }
}

struct WatchedJob {
    jobs: Arc<Jobs>,
    job_id: JobId,
    /// The prefix of the tags of its events.
    prefix: String,
    /// The minions whose return was already reported.
    reported: BTreeSet<MinionId>,
    introduced: bool,
}

impl Watched for WatchedJob {
    async fn catch_up(&mut self, watcher: &Watcher) -> Result<bool, Stop> {
        let store = Arc::clone(&self.jobs.app.store);
        let job = store.job(&self.job_id).await.map_err(Refusal::from)?;
        let job =
            job.ok_or_else(|| Refusal::not_found(format!("there is no job {}", self.job_id)))?;
        let parts = store.parts(&self.job_id).await.map_err(Refusal::from)?;
        if !self.introduced {
            self.introduced = true;
            watcher.report(introduction(&job)).await?;
        }
        let mut news = Vec::new();
        for part in parts.iter().filter(|part| ended(part.state)) {
            if self.reported.insert(part.minion.clone()) {
                news.push(part.minion.clone());
            }
        }
        if !news.is_empty() {
            let rows = store.returns(&self.job_id, &news).await;
            for row in rows.map_err(Refusal::from)? {
                let at = row.ended.unwrap_or(job.created);
                let data = EventData::PartReturned(Box::new(returned(&row)));
                watcher.report(unstored(at, &data, None)).await?;
            }
        }
        if job.status == JobStatus::Finished {
            watcher.report(conclusion(&job, &parts)).await?;
            return Ok(true);
        }
        Ok(false)
    }

    async fn accept(&mut self, event: Event) -> Result<Option<Event>, Stop> {
        let Some(rest) = event.tag.strip_prefix(&self.prefix) else {
            return Ok(None);
        };
        let news = match rest.split_once('/') {
            _ if event.last => true,
            Some(("ret", minion)) => minion
                .parse()
                .is_ok_and(|minion| self.reported.insert(minion)),
            _ => rest != "new",
        };
        Ok(news.then_some(event))
    }
}

fn introduction(job: &Job) -> Event {
    unstored(job.created, &EventData::JobCreated(created(job)), None)
}

fn conclusion(job: &Job, parts: &[StoredPart]) -> Event {
    let retcode = job.retcode.unwrap_or_else(|| overall(parts));
    let data = EventData::JobEnded(summary(&job.job_id, parts));
    unstored(job.finished.unwrap_or(job.created), &data, Some(retcode))
}
