//! `Operator.Watch`: the events of jobs, runs and keys, as the caller may see them.

use std::collections::BTreeMap;
use std::sync::Arc;

use halite_api::{EventData, EventTag};
use halite_core::app::App;
use halite_core::event_bus::{data as event_data, message};
use halite_core::event_stream::EventStream;
use halite_core::refusal::Refusal;
use halite_proto::ids::JobId;
use halite_proto::role::Role;
use halite_proto::v1;
use halite_store::Event;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::roles::{News, withhold};

/// The events that are read from the store at once.
const PAGE: u32 = 256;
/// The events that may wait for a slow reader.
const QUEUE: usize = 256;
/// The jobs whose functions are remembered.
const JOBS: usize = 1024;

/// The events after a position: the stored ones, each once, then the following ones.
///
/// # Errors
/// The store failed.
pub(super) async fn watch(
    app: &Arc<App>,
    role: Option<Role>,
    request: v1::WatchRequest,
) -> Result<EventStream, Refusal> {
    // A master that was restored from a backup numbers its events from a lower position: a reader
    // that has seen more would miss them all.
    let after = match request.after {
        Some(after) => Some(after.min(app.store.last_event().await?)),
        None => None,
    };
    let (sender, receiver) = mpsc::channel(QUEUE);
    let bus = app.events.subscribe();
    let watch = Watch {
        app: Arc::clone(app),
        role,
        prefix: request.prefix,
        after,
        functions: BTreeMap::new(),
        sender,
    };
    tokio::spawn(watch.run(bus));
    Ok(Box::pin(ReceiverStream::new(receiver)))
}

struct Watch {
    app: Arc<App>,
    role: Option<Role>,
    prefix: String,
    /// The position of the last stored event that was sent; `None` before the first, if the caller
    /// wants only new events.
    after: Option<i64>,
    functions: BTreeMap<JobId, String>,
    sender: mpsc::Sender<Result<v1::Event, Refusal>>,
}

/// The reader has closed its stream.
struct Gone;

impl Watch {
    async fn run(mut self, mut bus: Receiver<Event>) {
        // A reader that has closed its stream needs no reason.
        if let Err(refusal) = self.follow(&mut bus).await {
            let _ = self.sender.send(Err(refusal)).await;
        }
    }

    async fn follow(&mut self, bus: &mut Receiver<Event>) -> Result<(), Refusal> {
        if self.catch_up().await?.is_err() {
            return Ok(());
        }
        loop {
            let event = tokio::select! {
                event = bus.recv() => event,
                () = self.sender.closed() => return Ok(()),
            };
            let sent = match event {
                Ok(event) => self.pass_on(event).await?,
                // Missed events that are stored are read from the store.
                Err(RecvError::Lagged(_)) => self.catch_up().await?,
                Err(RecvError::Closed) => {
                    return Err(Refusal::internal("the master is stopping"));
                }
            };
            if sent.is_err() {
                return Ok(());
            }
        }
    }

    /// Sends the stored events after the last one that was sent.
    async fn catch_up(&mut self) -> Result<Result<(), Gone>, Refusal> {
        while let Some(after) = self.after {
            let page = self.app.store.events(&self.prefix, after, PAGE).await?;
            let Some(last) = page.last().map(|event| event.seq) else {
                break;
            };
            for event in page {
                if self.send(event).await?.is_err() {
                    return Ok(Err(Gone));
                }
            }
            self.after = Some(last);
        }
        Ok(Ok(()))
    }

    /// Sends an event of the bus, unless it was read from the store or has another tag.
    async fn pass_on(&mut self, event: Event) -> Result<Result<(), Gone>, Refusal> {
        if event.seq > 0 {
            if self.after.is_some_and(|after| event.seq <= after) {
                return Ok(Ok(()));
            }
            // From here on, missed events are read from the store, also for a reader of only new
            // events.
            self.after = Some(event.seq);
        }
        if !event.tag.starts_with(&self.prefix) {
            return Ok(Ok(()));
        }
        self.send(event).await
    }

    async fn send(&mut self, event: Event) -> Result<Result<(), Gone>, Refusal> {
        let data = match event_data(&event) {
            // `ShowJob` reads its text.
            EventData::PartReturned(part) => EventData::PartReturned(Box::new(part.announcement())),
            data => data,
        };
        let function = self.function(&event.tag, &data).await?;
        let news = withhold(self.role, News { function, data });
        let event = Event {
            data_json: news.data.to_text(),
            ..event
        };
        let sent = self.sender.send(Ok(message(event))).await;
        Ok(sent.map_err(|_| Gone))
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
