//! The hub: which minions are connected, how to reach them, and the event bus.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use halite_proto::v1;
use tokio::sync::{broadcast, mpsc, watch};

use crate::clock::{Clock, rfc3339};
use crate::store::{Event, Store, StoreError};

/// Messages that may wait for one minion's stream. A minion that does not read is slow, not lost:
/// senders wait.
const QUEUE: usize = 64;
/// Events that a slow reader may lag behind before it has to read the store.
const EVENTS: usize = 1024;

/// The minion has no open stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("minion {0:?} is not connected")]
pub struct NotConnected(pub String);

/// One minion's place in the hub, held by its stream. Dropping it takes the minion out, unless a
/// newer stream has taken its place.
pub struct Seat {
    hub: Arc<Hub>,
    minion: String,
    number: u64,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.hub.leave(&self.minion, self.number);
    }
}

struct Line {
    number: u64,
    sender: mpsc::Sender<v1::MasterMessage>,
}

/// Connected minions and the event bus.
pub struct Hub {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    lines: Mutex<BTreeMap<String, Line>>,
    /// Grows with every seat; also what waiters watch.
    seats: watch::Sender<u64>,
    events: broadcast::Sender<Event>,
    /// Keeps the order on the bus equal to the order in the store.
    publishing: tokio::sync::Mutex<()>,
}

impl Hub {
    /// An empty hub whose events go to `store`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            store,
            clock,
            lines: Mutex::default(),
            seats: watch::Sender::new(0),
            events: broadcast::Sender::new(EVENTS),
            publishing: tokio::sync::Mutex::new(()),
        })
    }

    /// Takes a seat for a minion's new stream. An older stream of the same minion ends: its
    /// receiver closes.
    pub fn join(self: &Arc<Self>, minion: &str) -> (Seat, mpsc::Receiver<v1::MasterMessage>) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let mut lines = self.lines();
        let number = *self.seats.borrow() + 1;
        lines.insert(minion.to_owned(), Line { number, sender });
        // Inside the lock: two joins must not get one number.
        self.seats.send_replace(number);
        drop(lines);
        (
            Seat {
                hub: Arc::clone(self),
                minion: minion.to_owned(),
                number,
            },
            receiver,
        )
    }

    /// Ends a minion's stream from this side; true when it was connected.
    pub fn disconnect(&self, minion: &str) -> bool {
        self.lines().remove(minion).is_some()
    }

    /// Ends the stream of exactly this seat; a newer one of the same minion stays.
    pub fn leave_seat(&self, seat: &Seat) {
        self.leave(&seat.minion, seat.number);
    }

    /// Gives a message to a minion's stream, waiting while its queue is full.
    ///
    /// # Errors
    /// The minion has no open stream, or it ended meanwhile. Being accepted here means queued, not
    /// received.
    pub async fn send(&self, minion: &str, message: v1::MasterMessage) -> Result<(), NotConnected> {
        let sender = self.lines().get(minion).map(|line| line.sender.clone());
        let Some(sender) = sender else {
            return Err(NotConnected(minion.to_owned()));
        };
        sender
            .send(message)
            .await
            .map_err(|_| NotConnected(minion.to_owned()))
    }

    /// Ids of the connected minions, sorted.
    #[must_use]
    pub fn connected(&self) -> Vec<String> {
        self.lines().keys().cloned().collect()
    }

    /// Whether a minion has an open stream.
    #[must_use]
    pub fn is_connected(&self, minion: &str) -> bool {
        self.lines().contains_key(minion)
    }

    /// Waits until a minion is connected; false when `timeout` passed first.
    pub async fn wait_connected(&self, minion: &str, timeout: Duration) -> bool {
        let mut seats = self.seats.subscribe();
        let wait = async {
            loop {
                seats.borrow_and_update();
                if self.is_connected(minion) {
                    return true;
                }
                if seats.changed().await.is_err() {
                    return false;
                }
            }
        };
        tokio::time::timeout(timeout, wait).await.unwrap_or(false)
    }

    /// Stores an event and hands it to all who listen. Never put a secret into `data`.
    ///
    /// # Errors
    /// The store failed; nobody was told.
    pub async fn publish(&self, tag: &str, data: &serde_json::Value) -> Result<Event, StoreError> {
        self.publish_event(tag, data, None).await
    }

    /// As [`Hub::publish`], for the last event of a job or run.
    ///
    /// # Errors
    /// The store failed; nobody was told.
    pub async fn publish_last(
        &self,
        tag: &str,
        data: &serde_json::Value,
        retcode: i32,
    ) -> Result<Event, StoreError> {
        self.publish_event(tag, data, Some(retcode)).await
    }

    async fn publish_event(
        &self,
        tag: &str,
        data: &serde_json::Value,
        last: Option<i32>,
    ) -> Result<Event, StoreError> {
        let _order = self.publishing.lock().await;
        let mut event = Event {
            seq: 0,
            tag: tag.to_owned(),
            time: self.clock.now(),
            data_json: data.to_string(),
            last: last.is_some(),
            retcode: last.unwrap_or(0),
        };
        event.seq = self.store.append_event(&event).await?;
        // Nobody listening is not an error.
        let _ = self.events.send(event.clone());
        Ok(event)
    }

    /// Hands an event to all who listen without storing it (`seq` 0): progress, which is worth
    /// nothing afterwards, and what the job's rows say again. Never put a secret into `data`.
    pub fn announce(&self, tag: &str, data: &serde_json::Value, last: Option<i32>) -> Event {
        let event = Event {
            seq: 0,
            tag: tag.to_owned(),
            time: self.clock.now(),
            data_json: data.to_string(),
            last: last.is_some(),
            retcode: last.unwrap_or(0),
        };
        // Nobody listening is not an error.
        let _ = self.events.send(event.clone());
        event
    }

    /// All events from now on. To follow something from its beginning: subscribe, then read
    /// [`Store::events`], then skip what arrives with a `seq` already seen; after a `Lagged`, read
    /// the store again from the last `seq`.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }

    fn leave(&self, minion: &str, number: u64) {
        let mut lines = self.lines();
        if lines.get(minion).is_some_and(|line| line.number == number) {
            lines.remove(minion);
        }
    }

    fn lines(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Line>> {
        // Nothing panics while holding the lock; a poisoned one still holds a sound map.
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<Event> for v1::Event {
    fn from(event: Event) -> Self {
        Self {
            tag: event.tag,
            time: rfc3339(event.time),
            data_json: event.data_json,
            last: event.last,
            retcode: event.retcode,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::clock::ManualClock;
    use crate::store::SqliteStore;

    async fn hub() -> (Arc<Hub>, tempfile::TempDir) {
        let directory = tempfile::TempDir::new().unwrap();
        let store = SqliteStore::open(&directory.path().join("store.db"))
            .await
            .unwrap();
        (
            Hub::new(Arc::new(store), Arc::new(ManualClock::at(7))),
            directory,
        )
    }

    #[tokio::test]
    async fn events_are_stored_and_heard_in_one_order() {
        let (hub, _directory) = hub().await;
        let mut heard = hub.subscribe();
        let data = [1, 2, 3].map(|number| json!({ "n": number }));
        let (a, b, c) = tokio::join!(
            hub.publish("a", &data[0]),
            hub.publish("b", &data[1]),
            hub.publish_last("c", &data[2], 1)
        );
        let c = c.unwrap();
        assert!(c.last && c.retcode == 1 && c.time == 7 && !a.unwrap().last && !b.unwrap().last);
        let stored = hub.store.events("", 0, 9).await.unwrap();
        assert_eq!(stored.len(), 3);
        for event in stored {
            assert_eq!(heard.recv().await.unwrap(), event);
        }
        let wire = v1::Event::from(c);
        assert_eq!(
            (wire.time.as_str(), wire.last, wire.retcode),
            ("1970-01-01T00:00:00.007Z", true, 1)
        );
    }

    #[tokio::test]
    async fn waiting_ends_with_the_connection_or_the_time() {
        let (hub, _directory) = hub().await;
        assert!(!hub.wait_connected("a", Duration::from_millis(1)).await);
        let waiting = tokio::spawn({
            let hub = Arc::clone(&hub);
            async move { hub.wait_connected("a", Duration::from_secs(20)).await }
        });
        let (_other, _line) = hub.join("b");
        let (seat, _line) = hub.join("a");
        assert!(waiting.await.unwrap());
        assert_eq!(hub.connected(), ["a", "b"]);
        drop(seat);
        assert!(!hub.is_connected("a"));
        assert_eq!(
            hub.send("a", v1::MasterMessage::default()).await,
            Err(NotConnected("a".to_owned()))
        );
    }

    #[tokio::test]
    async fn an_old_seat_does_not_take_a_newer_one_along() {
        let (hub, _directory) = hub().await;
        let (old, mut old_line) = hub.join("a");
        let (_new, _new_line) = hub.join("a");
        assert!(old_line.recv().await.is_none());
        hub.leave_seat(&old);
        drop(old);
        assert!(hub.is_connected("a"));
        assert!(hub.disconnect("a"));
        assert!(!hub.disconnect("a"));
    }
}
