//! The event bus, which stores the events of jobs and runs and passes them on to all subscribers.

use std::sync::{Arc, PoisonError, RwLock};

use halite_api::{EventData, JournalLines, StateProgress};
use halite_proto::v1;
use halite_store::{Event, Millis, Store, StoreError};
use tokio::sync::broadcast;

use crate::clock::{Clock, rfc3339};

/// The number of events that a slow reader may lag behind before it must read the store.
const EVENTS: usize = 1024;
/// The size in bytes from which progress is cut before it is passed on: hosts choose it, and all
/// these events stay in memory. The return has the whole state.
const PROGRESS: usize = 256 << 10;

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
    /// value afterwards, and events that repeat the rows of a job. Large progress is cut.
    /// `data` must not contain a secret.
    pub fn announce(&self, data: &EventData, last: Option<i32>) -> Event {
        let mut event = unstored(self.clock.now(), data, last);
        if event.data_json.len() > PROGRESS
            && let Some(brief) = cut(data)
        {
            event.data_json = brief.to_text();
        }
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

    /// Closes the bus: each subscriber receives the events until now, and then the end. Later
    /// events are only stored.
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

/// Progress without its state, or with the newest lines of a journal; `None` for other events.
fn cut(data: &EventData) -> Option<EventData> {
    match data {
        EventData::StateProgress(progress) => {
            Some(EventData::StateProgress(Box::new(StateProgress {
                job: progress.job.clone(),
                minion: progress.minion.clone(),
                index: progress.index,
                total: progress.total,
                state: None,
            })))
        }
        EventData::JournalLines(journal) => {
            let mut size = 0;
            let fits = |line: &&String| {
                size += line.len();
                size < PROGRESS
            };
            let newest = journal.lines.iter().rev().take_while(fits).count();
            let mut lines = vec!["[cut here: too many lines at once]".to_owned()];
            lines.extend_from_slice(&journal.lines[journal.lines.len() - newest..]);
            Some(EventData::JournalLines(JournalLines {
                job: journal.job.clone(),
                minion: journal.minion.clone(),
                lines,
            }))
        }
        _ => None,
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
    use halite_states::low::StateReturn;
    use halite_store::Store;

    use super::*;
    use crate::clock::ManualClock;
    use crate::names::minion;

    #[tokio::test]
    async fn large_progress_takes_no_memory() {
        let directory = tempfile::TempDir::new().unwrap();
        let store = Store::open(&directory.path().join("store.db"))
            .await
            .unwrap();
        let bus = EventBus::new(Arc::new(store), Arc::new(ManualClock::at(7)));
        let mut heard = bus.subscribe();
        let (job, minion) = (halite_proto::ids::JobId::from_number(1), minion("a"));
        let progress = |comment: &str| {
            let state = StateReturn {
                index: 4,
                id: "x".to_owned(),
                name: "x".to_owned(),
                function: "test.nop".to_owned(),
                sls: "x".to_owned(),
                result: Some(true),
                changes: serde_json::Map::new(),
                comment: comment.to_owned(),
                start_time: String::new(),
                duration: 1.0,
                run_num: 0,
                ran: true,
                fail_run: true,
            };
            EventData::StateProgress(Box::new(StateProgress {
                job: job.clone(),
                minion: minion.clone(),
                index: 4,
                total: 9,
                state: Some(state),
            }))
        };
        let large = "x".repeat(PROGRESS);
        let lines = |lines: &[&str]| {
            EventData::JournalLines(JournalLines {
                job: job.clone(),
                minion: minion.clone(),
                lines: lines.iter().map(|line| (*line).to_owned()).collect(),
            })
        };
        for _ in 0..100 {
            bus.announce(&progress(&large), None);
            bus.announce(&lines(&["old", &large]), None);
        }
        let newest = bus.announce(&lines(&[&large, "a", "b"]), None);
        let mark = "[cut here: too many lines at once]";
        assert_eq!(data(&newest), lines(&[mark, "a", "b"]));
        bus.announce(&progress("small"), None);
        let mut sum = 0;
        let mut last = None;
        while let Ok(event) = heard.try_recv() {
            sum += event.data_json.len();
            last = Some(data(&event));
            if let Some(EventData::StateProgress(progress)) = &last {
                assert_eq!((progress.index, progress.total), (4, 9));
            }
        }
        assert!(sum < PROGRESS, "{sum}");
        assert_eq!(last, Some(progress("small")));
    }

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
