//! The events of one job or run, or a selection of all events, as a stream: first the recorded
//! events of the store, then live events, and finally the end. The parts of the master that know
//! jobs and runs implement [`Watched`].

use std::future::Future;
use std::pin::Pin;

use futures_util::Stream;
use halite_proto::v1;
use halite_store::Event;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::event_bus::message;
use crate::refusal::{Refusal, RefusalKind};

/// Capacity of the queue of a slow watcher.
const QUEUE: usize = 256;

/// Events of one job or run; ends after the event with `last`. Dropping it stops the watching,
/// never the job.
pub type EventStream = Pin<Box<dyn Stream<Item = Result<v1::Event, Refusal>> + Send>>;

/// The reason why watching ends early.
pub enum Stop {
    /// The watcher has closed its stream.
    Gone,
    /// Watching failed; the watcher gets this refusal.
    Failed(Refusal),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Failed(refusal)
    }
}

/// The receiver of a stream's events.
#[derive(Debug)]
pub struct Watcher(mpsc::Sender<Result<v1::Event, Refusal>>);

impl Watcher {
    /// Sends an event to the watcher.
    ///
    /// # Errors
    /// The watcher has closed its stream.
    pub async fn report(&self, event: Event) -> Result<(), Stop> {
        self.0
            .send(Ok(message(event)))
            .await
            .map_err(|_| Stop::Gone)
    }
}

/// A job, a run or a selection of events that can be watched. It remembers what it has reported to
/// its watcher.
pub trait Watched: Send + 'static {
    /// Reports everything that the store has recorded and that was not reported before; returns
    /// `true` if nothing more will follow.
    fn catch_up(&mut self, watcher: &Watcher) -> impl Future<Output = Result<bool, Stop>> + Send;

    /// Like [`Watched::catch_up`], for a watcher that was too slow and has missed events, including
    /// events that are not stored.
    fn catch_up_after_loss(
        &mut self,
        watcher: &Watcher,
    ) -> impl Future<Output = Result<bool, Stop>> + Send {
        self.catch_up(watcher)
    }

    /// The event for the watcher; `None` if it belongs to another job or was already reported.
    fn accept(&mut self, event: Event) -> impl Future<Output = Result<Option<Event>, Stop>> + Send;

    /// Returns `true` if no event follows this accepted one.
    fn ends_with(&self, event: &Event) -> bool {
        event.last
    }
}

/// The events of a job or run, until its end or the end of the bus. `bus` must have been subscribed
/// to before the job or run was made; for an existing one, any subscription works.
pub fn follow(mut watched: impl Watched, mut bus: Receiver<Event>) -> EventStream {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let watcher = Watcher(sender);
    tokio::spawn(async move {
        if let Err(Stop::Failed(refusal)) = watch(&mut watched, &watcher, &mut bus).await {
            // A watcher that has closed its stream needs no reason.
            let _ = watcher.0.send(Err(refusal)).await;
        }
    });
    Box::pin(ReceiverStream::new(receiver))
}

async fn watch(
    watched: &mut impl Watched,
    watcher: &Watcher,
    bus: &mut Receiver<Event>,
) -> Result<(), Stop> {
    if watched.catch_up(watcher).await? {
        return Ok(());
    }
    loop {
        let event = tokio::select! {
            event = bus.recv() => event,
            () = watcher.0.closed() => return Err(Stop::Gone),
        };
        match event {
            Ok(event) => {
                if let Some(event) = watched.accept(event).await? {
                    let last = watched.ends_with(&event);
                    watcher.report(event).await?;
                    if last {
                        return Ok(());
                    }
                }
            }
            Err(RecvError::Lagged(_)) => {
                if watched.catch_up_after_loss(watcher).await? {
                    return Ok(());
                }
            }
            Err(RecvError::Closed) => {
                let kind = RefusalKind::Unavailable;
                return Err(Refusal::new(kind, "the master is stopping").into());
            }
        }
    }
}
