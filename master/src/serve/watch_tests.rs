use std::sync::Arc;

use futures_util::StreamExt as _;
use halite_api::{KeyAction, KeyChanged, StateProgress};
use halite_core::event_bus::unstored;
use halite_core::names::minion;
use serde_json::json;

use super::*;
use crate::backend::fixture::{Life, ScriptedMinion, Site, WATCHDOG};

const TREE: &[(&str, &str)] = &[
    ("top.sls", "base:\n  '*-1':\n    - host\n"),
    (
        "host.sls",
        "motd:\n  file.managed:\n    - name: /etc/motd\n    - contents: welcome\n",
    ),
];

fn all(after: Option<i64>) -> v1::WatchRequest {
    v1::WatchRequest {
        after,
        prefix: String::new(),
    }
}

/// The next events, up to the first with this part of a tag.
fn until(life: &Life, events: &mut EventStream, tag: &str) -> Vec<v1::Event> {
    let read = async {
        let mut read = Vec::new();
        loop {
            let event = events.next().await.unwrap().unwrap();
            let is_last = event.tag.contains(tag);
            read.push(event);
            if is_last {
                return read;
            }
        }
    };
    let read = async { tokio::time::timeout(WATCHDOG, read).await };
    life.runtime.block_on(read).expect("the event must come")
}

fn start(life: &Life, role: Role, request: v1::WatchRequest) -> EventStream {
    life.runtime
        .block_on(watch(&life.app, Some(role), request))
        .unwrap()
        .0
}

fn key(name: &str) -> EventData {
    EventData::KeyChanged(KeyChanged {
        minion: minion(name),
        action: KeyAction::Pending,
        fingerprint: None,
        token: None,
        reason: None,
    })
}

#[test]
fn only_an_administrator_sees_more_of_a_command_than_that_it_ran() {
    let site = Site::new(TREE);
    let life = site.live();
    let worker = ScriptedMinion::new("worker-1");
    life.connect(&worker);
    for role in Role::ALL {
        let mut events = start(&life, role, all(None));
        life.run("cmd.run", "worker-1", json!({"cmd": "echo CANARY"}), false);
        let seen = until(&life, &mut events, "/done");
        let text: Vec<&str> = seen.iter().map(|event| event.data_json.as_str()).collect();
        let text = text.join("\n");
        // `ShowJob` reads the arguments and the command's output; it withholds both.
        assert!(!text.contains("CANARY"), "{role}: {text}");
        let returned = seen
            .iter()
            .find(|event| event.tag.contains("/ret/"))
            .unwrap();
        let EventData::PartReturned(part) = EventData::read(&returned.tag, &returned.data_json)
        else {
            panic!("{returned:?}");
        };
        assert!(part.success && part.retcode == 0, "{part:?}");
        assert_eq!(part.digest.is_some(), role == Role::Admin, "{role}");
    }
    life.kill();
}

#[test]
fn a_return_of_states_is_announced_by_outcome_counts_and_digest_for_each_role() {
    let site = Site::new(TREE);
    let life = site.live();
    let worker = ScriptedMinion::new("worker-1");
    life.connect(&worker);
    for role in Role::ALL {
        let mut events = start(&life, role, all(None));
        life.run("state.highstate", "worker-1", json!({}), false);
        let seen = until(&life, &mut events, "/ret/");
        let returned = seen.last().unwrap();
        assert!(returned.seq > 0, "it is stored");
        let EventData::PartReturned(part) = EventData::read(&returned.tag, &returned.data_json)
        else {
            panic!("{returned:?}");
        };
        assert_eq!(
            (part.states, part.changed, part.failed),
            (Some(1), Some(1), Some(0))
        );
        assert!(part.digest.is_some() && part.answer.is_none() && part.error.is_none());
    }
    life.kill();
}

#[test]
fn a_reader_that_comes_back_gets_each_stored_event_once() {
    let site = Site::new(TREE);
    let life = site.live();
    let publish = |name: &str| {
        let data = key(name);
        let published = life.app.events.publish(&data);
        life.runtime.block_on(published).unwrap().seq
    };
    let (first, _) = (publish("a"), publish("b"));
    let mut events = start(&life, Role::Viewer, all(Some(first)));
    let read = until(&life, &mut events, "/b");
    assert_eq!(read.len(), 1, "{read:?}");
    let last = read[0].seq;
    drop(events);
    publish("c");
    let mut events = start(&life, Role::Viewer, all(Some(last)));
    publish("d");
    let tags = |read: &[v1::Event]| -> Vec<String> {
        read.iter().map(|event| event.tag.clone()).collect()
    };
    let read = until(&life, &mut events, "/d");
    assert_eq!(tags(&read), ["halite/key/c", "halite/key/d"]);
    // Only new events, of one kind.
    let request = v1::WatchRequest {
        after: None,
        prefix: "halite/key/f".to_owned(),
    };
    let mut events = start(&life, Role::Viewer, request);
    publish("e");
    publish("f");
    let read = until(&life, &mut events, "/f");
    assert_eq!(tags(&read), ["halite/key/f"]);
    life.kill();
}

#[test]
fn a_reader_ahead_of_a_restored_store_gets_the_following_events() {
    let site = Site::new(TREE);
    let life = site.live();
    let publish = |name: &str| {
        let data = key(name);
        let published = life.app.events.publish(&data);
        life.runtime.block_on(published).unwrap().seq
    };
    let last = publish("a");
    let mut events = start(&life, Role::Viewer, all(Some(last + 1000)));
    publish("b");
    let read = until(&life, &mut events, "/b");
    assert_eq!(read.len(), 1, "{read:?}");
    life.kill();
}

#[test]
fn a_reader_that_lags_gets_each_stored_event_once() {
    /// More events than the bus and a reader's queue hold.
    const EVENTS: usize = 2_000;
    let site = Site::new(TREE);
    let life = site.live();
    let mut events = start(&life, Role::Viewer, all(Some(0)));
    let app = Arc::clone(&life.app);
    life.runtime.block_on(async {
        for number in 0..EVENTS {
            app.events
                .publish(&key(&format!("h{number}")))
                .await
                .unwrap();
        }
    });
    let last = format!("/h{}", EVENTS - 1);
    let read = until(&life, &mut events, &last);
    let stored = life
        .runtime
        .block_on(life.store.events("", 0, 10_000))
        .unwrap();
    let stored: Vec<i64> = stored.iter().map(|event| event.seq).collect();
    let read: Vec<i64> = read.iter().map(|event| event.seq).collect();
    assert_eq!(read, stored);
    life.kill();
}

#[test]
fn a_reader_of_new_events_that_lags_before_the_first_one_does_not_miss_it() {
    let site = Site::new(TREE);
    let life = site.live();
    let mut events = start(&life, Role::Viewer, all(None));
    // Nothing is read: the reader's queue is full, and then the bus loses the key.
    announce_progress(&life, &JobId::from_number(1));
    let data = key("a");
    let stored = life.app.events.publish(&data);
    let stored = life.runtime.block_on(stored).unwrap().seq;
    announce_progress(&life, &JobId::from_number(1));
    let read = until(&life, &mut events, "/a");
    assert_eq!(read.last().unwrap().seq, stored);
    life.kill();
}

/// Announces more events than the bus and a reader's queue hold; none is stored.
fn announce_progress(life: &Life, job: &JobId) {
    const EVENTS: u32 = 2_000;
    for index in 0..EVENTS {
        let progress = StateProgress {
            job: job.clone(),
            minion: minion("worker-1"),
            index,
            total: EVENTS,
            state: None,
        };
        let data = EventData::StateProgress(Box::new(progress));
        life.app.events.announce(&data, None);
    }
}

/// The end of a job that is not stored may be among the lost events.
#[test]
fn a_reader_of_a_job_that_lags_has_to_come_back() {
    let site = Site::new(TREE);
    let life = site.live();
    let job = JobId::from_number(1);
    let request = v1::WatchRequest {
        after: Some(0),
        prefix: format!("halite/job/{job}/"),
    };
    let mut events = start(&life, Role::Viewer, request);
    announce_progress(&life, &job);
    let end = async {
        loop {
            if let Err(refusal) = events.next().await.unwrap() {
                return refusal;
            }
        }
    };
    let end = async { tokio::time::timeout(WATCHDOG, end).await };
    let refusal = life.runtime.block_on(end).expect("the stream must end");
    assert_eq!(refusal.kind, RefusalKind::Unavailable, "{refusal}");
    life.kill();
}

#[test]
fn an_event_of_another_version_is_for_administrators() {
    let site = Site::new(TREE);
    let life = site.live();
    let old = Event {
        tag: "halite/job/20261121000000123000/new".to_owned(),
        data_json: json!({"jid": "20261121000000123000", "args": "CANARY"}).to_string(),
        ..unstored(1, &key("a"), None)
    };
    life.runtime
        .block_on(life.store.append_event(&old))
        .unwrap();
    for role in Role::ALL {
        let mut events = start(&life, role, all(Some(0)));
        let read = until(&life, &mut events, "/new");
        let text = &read.last().unwrap().data_json;
        assert_eq!(
            text.contains("CANARY"),
            role == Role::Admin,
            "{role}: {text}"
        );
    }
    life.kill();
}

#[test]
fn streams_end_with_a_passing_error_when_the_master_stops() {
    let site = Site::new(TREE);
    let life = site.live();
    let mut events = start(&life, Role::Viewer, all(None));
    let publish = |name: &str| {
        let data = key(name);
        let published = life.app.events.publish(&data);
        life.runtime.block_on(published).unwrap().seq
    };
    publish("last");
    life.app.events.close();
    let stored = publish("later");
    until(&life, &mut events, "/last");
    // One that begins now gets what is stored.
    let mut late = start(&life, Role::Viewer, all(Some(stored - 1)));
    until(&life, &mut late, "/later");
    for mut stream in [events, late] {
        let next = async { tokio::time::timeout(WATCHDOG, stream.next()).await };
        let next = life.runtime.block_on(next).expect("the stream must end");
        let refusal = next.unwrap().unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::Unavailable, "{refusal}");
    }
    life.kill();
}
