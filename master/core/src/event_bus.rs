//! The event bus, which stores the events of jobs and runs and passes them on to all subscribers.

use std::sync::{Arc, PoisonError, RwLock};

use halite_api::EventData;
use halite_proto::v1;
use halite_store::{Event, Millis, Store, StoreError};
use tokio::sync::broadcast;

use crate::clock::{Clock, rfc3339};

/// The number of events that a slow reader may lag behind before it must read the store.
const EVENTS: usize = 1024;

/// The event bus.
pub struct EventBus {
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    /// `None` once the bus is closed.
    events: RwLock<Option<broadcast::Sender<Event>>>,
    /// Keeps the order on the bus the same as in the store.
    publishing: tokio::sync::Mutex<()>,
}

impl EventBus {
    /// Creates a bus without subscribers that stores its events in `store`.
    #[must_use]
    pub fn new(store: Arc<Store>, clock: Arc<dyn Clock>) -> Self {
        Self {
            store,
            clock,
            events: RwLock::new(Some(broadcast::Sender::new(EVENTS))),
            publishing: tokio::sync::Mutex::new(()),
        }
    }

    /// Stores an event and passes it on to all subscribers. `data` must not contain a secret.
    ///
    /// # Errors
    /// The store failed; no subscriber received the event.
    pub async fn publish(&self, data: &EventData) -> Result<Event, StoreError> {
        self.publish_event(data, None).await
    }

    /// Like [`EventBus::publish`], for the last event of a job or run.
    ///
    /// # Errors
    /// The store failed; no subscriber received the event.
    pub async fn publish_last(&self, data: &EventData, retcode: i32) -> Result<Event, StoreError> {
        self.publish_event(data, Some(retcode)).await
    }

    /// Like [`EventBus::publish`], but subscribers receive more than the store retains: `data` is
    /// stored, and `live` passed on. Both have the same kind.
    ///
    /// # Errors
    /// The store failed; no subscriber received the event.
    pub async fn publish_brief(
        &self,
        data: &EventData,
        live: &EventData,
    ) -> Result<Event, StoreError> {
        let _order = self.publishing.lock().await;
        let now = self.clock.now();
        let seq = self.store.append_event(&unstored(now, data, None)).await?;
        let event = Event {
            seq,
            ..unstored(now, live, None)
        };
        self.pass_on(&event);
        Ok(event)
    }

    async fn publish_event(
        &self,
        data: &EventData,
        last: Option<i32>,
    ) -> Result<Event, StoreError> {
        let _order = self.publishing.lock().await;
        let mut event = unstored(self.clock.now(), data, last);
        event.seq = self.store.append_event(&event).await?;
        self.pass_on(&event);
        Ok(event)
    }

    /// Passes an event on to all subscribers without storing it (`seq` 0): progress, which has no
    /// value afterwards, and events that repeat the rows of a job. `data` must not contain a
    /// secret.
    pub fn announce(&self, data: &EventData, last: Option<i32>) -> Event {
        let event = unstored(self.clock.now(), data, last);
        self.pass_on(&event);
        event
    }

    /// Subscribes to all events from now on. To follow a job from its start: subscribe, read
    /// [`Store::events`], and skip received events with a `seq` already seen; after a `Lagged`,
    /// read the store again from the last `seq`.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<Event> {
        let events = self.events.read().unwrap_or_else(PoisonError::into_inner);
        match &*events {
            Some(events) => events.subscribe(),
            // It is closed from the start.
            None => broadcast::channel(1).1,
        }
    }

    /// Closes the bus: each subscriber receives the events until now, and then the end. Later events
    /// are only stored.
    pub fn close(&self) {
        let mut events = self.events.write().unwrap_or_else(PoisonError::into_inner);
        *events = None;
    }

    fn pass_on(&self, event: &Event) {
        let events = self.events.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(events) = &*events {
            // A bus without subscribers is not an error.
            let _ = events.send(event.clone());
        }
    }
}

/// Creates an event that is not stored, with the return code if it is the last one of a job or run.
#[must_use]
pub fn unstored(time: Millis, data: &EventData, last: Option<i32>) -> Event {
    Event {
        seq: 0,
        // Only data of another version lacks a tag, and this version never creates such data.
        tag: data.tag().unwrap_or_default(),
        time,
        data_json: data.to_text(),
        last: last.is_some(),
        retcode: last.unwrap_or(0),
    }
}

/// The data of an event.
#[must_use]
pub fn data(event: &Event) -> EventData {
    EventData::read(&event.tag, &event.data_json)
}

/// Converts an event to the message for operators.
#[must_use]
pub fn message(event: Event) -> v1::Event {
    v1::Event {
        tag: event.tag,
        time: rfc3339(event.time),
        data_json: event.data_json,
        last: event.last,
        retcode: event.retcode,
        seq: event.seq,
    }
}

#[cfg(test)]
mod tests {
    use halite_api::{KeyAction, KeyChanged};
    use halite_store::Store;

    use super::*;
    use crate::clock::ManualClock;
    use crate::names::minion;

    #[tokio::test]
    async fn events_are_stored_and_heard_in_one_order() {
        let directory = tempfile::TempDir::new().unwrap();
        let store = Store::open(&directory.path().join("store.db"))
            .await
            .unwrap();
        let bus = EventBus::new(Arc::new(store), Arc::new(ManualClock::at(7)));
        let mut heard = bus.subscribe();
        let data = ["a", "b", "c"].map(|name| {
            EventData::KeyChanged(KeyChanged {
                minion: minion(name),
                action: KeyAction::Pending,
                fingerprint: None,
                token: None,
                reason: None,
            })
        });
        let (a, b, c) = tokio::join!(
            bus.publish(&data[0]),
            bus.publish(&data[1]),
            bus.publish_last(&data[2], 1)
        );
        let c = c.unwrap();
        assert!(c.last && c.retcode == 1 && c.time == 7 && !a.unwrap().last && !b.unwrap().last);
        let stored = bus.store.events("", 0, 9).await.unwrap();
        assert_eq!(stored.len(), 3);
        for event in stored {
            assert_eq!(heard.recv().await.unwrap(), event);
        }
        let wire = message(c);
        assert_eq!(
            (wire.time.as_str(), wire.last, wire.retcode),
            ("1970-01-01T00:00:00.007Z", true, 1)
        );
    }
}
