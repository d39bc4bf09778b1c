//! Watching what goes on: first what the store says of it, then what happens, and at last how it
//! ended.

use std::future::Future;

use halite_proto::v1;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::app::{EventStream, Refusal};
use crate::store::Event;

/// Events that may wait for a slow watcher.
const QUEUE: usize = 256;

/// Why watching ends early.
pub enum Stop {
    /// The watcher has gone.
    Gone,
    /// The watcher is told this.
    Failed(Refusal),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Failed(refusal)
    }
}

/// Where a watcher's events go.
#[derive(Debug)]
pub struct Watcher(mpsc::Sender<Result<v1::Event, Refusal>>);

impl Watcher {
    /// Tells an event.
    ///
    /// # Errors
    /// The watcher has gone.
    pub async fn tell(&self, event: Event) -> Result<(), Stop> {
        self.0.send(Ok(event.into())).await.map_err(|_| Stop::Gone)
    }
}

/// What can be watched. It remembers what its watcher was told.
pub trait Watched: Send + 'static {
    /// Tells what the store says and was not told yet; true when that was all that there will be.
    fn recount(&mut self, watcher: &Watcher) -> impl Future<Output = Result<bool, Stop>> + Send;

    /// The event as it is told: none when it is another's, or was told already. After one that is
    /// the last, watching ends.
    fn news(&mut self, event: Event) -> Option<Event>;
}

/// The events of what is watched. `bus` must have been subscribed before that was made, or before
/// now for what is there.
pub fn follow(mut watched: impl Watched, mut bus: Receiver<Event>) -> EventStream {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let watcher = Watcher(sender);
    tokio::spawn(async move {
        if let Err(Stop::Failed(refusal)) = watch(&mut watched, &watcher, &mut bus).await {
            // A watcher that has gone needs no reason.
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
    if watched.recount(watcher).await? {
        return Ok(());
    }
    loop {
        let event = tokio::select! {
            event = bus.recv() => event,
            () = watcher.0.closed() => return Err(Stop::Gone),
        };
        match event {
            Ok(event) => {
                if let Some(event) = watched.news(event) {
                    let last = event.last;
                    watcher.tell(event).await?;
                    if last {
                        return Ok(());
                    }
                }
            }
            // What was missed is in the store, but for progress, which is worth nothing afterwards.
            Err(RecvError::Lagged(_)) => {
                if watched.recount(watcher).await? {
                    return Ok(());
                }
            }
            Err(RecvError::Closed) => {
                return Err(Refusal::internal("the master is stopping").into());
            }
        }
    }
}
