//! `Operator.Watch`: the events of jobs, runs and keys, as the caller may see them.

use std::collections::BTreeMap;
use std::sync::Arc;

use halite_api::{EventData, EventTag};
use halite_core::app::App;
use halite_core::event_bus::data as event_data;
use halite_core::event_stream::{EventStream, Stop, Watched, Watcher, follow};
use halite_core::refusal::{Refusal, RefusalKind};
use halite_proto::ids::JobId;
use halite_proto::role::Role;
use halite_proto::v1;
use halite_store::Event;

use super::roles::{News, withhold};

/// The events that are read from the store at once.
const PAGE: u32 = 256;
/// The start of the tags of jobs.
const JOB: &str = "halite/job/";
/// The jobs whose functions are remembered.
const JOBS: usize = 1024;

/// The events after a position: the stored ones, each once, then the following ones; and that
/// position.
///
/// # Errors
/// The store failed.
pub(super) async fn watch(
    app: &Arc<App>,
    role: Option<Role>,
    request: v1::WatchRequest,
) -> Result<(EventStream, i64), Refusal> {
    // A master that was restored from a backup numbers its events from a lower position: a reader
    // that has seen more would miss them all.
    let last = app.store.last_event().await?;
    let after = request.after.map_or(last, |after| after.min(last));
    let bus = app.events.subscribe();
    let selected = SelectedEvents {
        app: Arc::clone(app),
        role,
        prefix: request.prefix,
        after,
        functions: BTreeMap::new(),
    };
    Ok((follow(selected, bus), after))
}

struct SelectedEvents {
    app: Arc<App>,
    role: Option<Role>,
    prefix: String,
    /// The position of the last stored event that was sent.
    after: i64,
    functions: BTreeMap<JobId, String>,
}

impl Watched for SelectedEvents {
    /// Sends the stored events after the last one that was sent.
    async fn catch_up(&mut self, watcher: &Watcher) -> Result<bool, Stop> {
        loop {
            let page = self.app.store.events(&self.prefix, self.after, PAGE).await;
            let page = page.map_err(Refusal::from)?;
            let Some(last) = page.last().map(|event| event.seq) else {
                return Ok(false);
            };
            for event in page {
                watcher.report(self.visible(event).await?).await?;
            }
            self.after = last;
        }
    }

    async fn catch_up_after_loss(&mut self, watcher: &Watcher) -> Result<bool, Stop> {
        let job = self.prefix.strip_prefix(JOB);
        if job.is_none_or(str::is_empty) {
            // The store has what a reader of all jobs needs.
            return self.catch_up(watcher).await;
        }
        // The end of a job is stored only if the job applies states. The reader comes back, and
        // asks whether the job has ended.
        let kind = RefusalKind::Unavailable;
        let reason = "events of jobs were lost, because they were read too slowly";
        Err(Refusal::new(kind, reason).into())
    }

    async fn accept(&mut self, event: Event) -> Result<Option<Event>, Stop> {
        if event.seq > 0 {
            // It was read from the store.
            if event.seq <= self.after {
                return Ok(None);
            }
            self.after = event.seq;
        }
        if !event.tag.starts_with(&self.prefix) {
            return Ok(None);
        }
        Ok(Some(self.visible(event).await?))
    }

    /// The end of a job is not the end of all events.
    fn ends_with(&self, _: &Event) -> bool {
        false
    }
}

impl SelectedEvents {
    /// The event as the caller may see it.
    async fn visible(&mut self, event: Event) -> Result<Event, Refusal> {
        let data = match event_data(&event) {
            // `ShowJob` reads its text.
            EventData::PartReturned(part) => EventData::PartReturned(Box::new(part.announcement())),
            data => data,
        };
        let function = self.function(&event.tag, &data).await?;
        let news = withhold(self.role, News { function, data });
        Ok(Event {
            data_json: news.data.to_text(),
            ..event
        })
    }

    /// The function of the job of an event.
    async fn function(&mut self, tag: &str, data: &EventData) -> Result<Option<String>, Refusal> {
        let EventTag::Job { job, .. } = EventTag::parse(tag) else {
            return Ok(None);
        };
        if let EventData::JobCreated(created) = data {
            self.remember(job, created.function.clone());
            return Ok(Some(created.function.clone()));
        }
        if let Some(function) = self.functions.get(&job) {
            return Ok(Some(function.clone()));
        }
        let stored = self.app.store.job(&job).await?;
        let function = stored.map(|job| job.function);
        if let Some(function) = &function {
            self.remember(job, function.clone());
        }
        Ok(function)
    }

    fn remember(&mut self, job: JobId, function: String) {
        if self.functions.len() >= JOBS {
            // Evict the oldest one.
            self.functions.pop_first();
        }
        self.functions.insert(job, function);
    }
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
