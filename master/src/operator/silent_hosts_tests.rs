use std::net::IpAddr;

use halite_core::clock::ManualClock;
use halite_core::connections::ConnectionGuard;
use halite_core::names::minion;
use halite_proto::v1::master_message::Body as ToMinion;
use halite_proto::v1::minion_message::Body;
use serde_json::Value;
use tokio::sync::mpsc;

use super::*;
use crate::backend::fixture::{Life, Site, WATCHDOG};

const HOST: &str = "worker-1";
const TREE: &[(&str, &str)] = &[
    ("top.sls", "base:\n  '*-1':\n    - host\n"),
    (
        "host.sls",
        "motd:\n  file.managed:\n    - name: /etc/motd\n    - contents: welcome\n\
         issue:\n  file.managed:\n    - name: /etc/issue\n    - contents: welcome\n",
    ),
];

#[test]
fn a_state_is_named_on_one_line() {
    let chunk = |id: &str| -> Chunk {
        serde_json::from_value(
            json!({"state": "cmd", "fun": "run", "id": id, "name": id, "sls": "a.b",
            "source": {"file": "a", "line": 1, "column": 1}}),
        )
        .unwrap()
    };
    assert_eq!(named(&chunk("install")), "install (cmd.run, a.b)");
    assert_eq!(named(&chunk("one\ntwo")), "one… (cmd.run, a.b)");
    let long = "x".repeat(ID + 1);
    let short = "x".repeat(ID);
    assert_eq!(named(&chunk(&long)), format!("{short}… (cmd.run, a.b)"));
}

/// The next report of a stream while the clock advances to it; `None` after the last event.
async fn report(events: &mut EventStream) -> Option<Value> {
    let next = async {
        // No job of these tests has that many events.
        for _ in 0..100 {
            let event = events.next().await?.unwrap();
            if event.last {
                return None;
            }
            if event.tag.ends_with("/wait") {
                return serde_json::from_str(&event.data_json).ok();
            }
        }
        None
    };
    let next = tokio::time::timeout(WATCHDOG, next).await;
    next.expect("nothing comes")
}

async fn highstate(life: &Life) -> EventStream {
    highstate_of(life, HOST).await
}

async fn highstate_of(life: &Life, target: &str) -> EventStream {
    let request = v1::RunRequest {
        target: target.into(),
        function: "state.highstate".into(),
        ..v1::RunRequest::default()
    };
    life.backend.run("root", request).await.unwrap()
}

/// Waits until this holds.
async fn until(is_so: impl Fn() -> bool) {
    let holds = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let holds = tokio::time::timeout(WATCHDOG, holds).await;
    holds.expect("the condition must hold in time");
}

/// A host that does what the test says.
struct Hand<'l> {
    life: &'l Life,
    host: MinionId,
    messages: mpsc::Receiver<v1::MasterMessage>,
}

impl<'l> Hand<'l> {
    async fn connect(life: &'l Life) -> (Self, ConnectionGuard) {
        Self::connect_as(life, HOST).await
    }

    async fn connect_as(life: &'l Life, name: &str) -> (Self, ConnectionGuard) {
        let host = minion(name);
        let address = IpAddr::from([10, 10, 1, 12]);
        let (connection, messages) = life.app.connections.join(&host, address);
        let grains =
            json!({"id": name, "os": "Debian", "ip4_interfaces": {"host0": ["10.10.1.12"]}});
        let hello = v1::MinionHello {
            protocol: 1,
            grains_json: grains.to_string(),
            ..v1::MinionHello::default()
        };
        life.backend.on_connected(&host, &hello).await.unwrap();
        let hand = Self {
            life,
            host,
            messages,
        };
        (hand, connection)
    }

    /// Takes the next job, and reports its start; returns its id.
    async fn start(&mut self) -> String {
        for _ in 0..10 {
            let message = self.messages.recv().await.unwrap();
            if let Some(ToMinion::Job(job)) = message.body {
                let job = job.job;
                self.say(Body::Started(v1::JobStarted { job: job.clone() }))
                    .await;
                return job;
            }
        }
        panic!("it got no job");
    }

    async fn say(&self, body: Body) {
        let message = v1::MinionMessage { body: Some(body) };
        let said = self.life.backend.on_message(&self.host, message).await;
        said.unwrap();
    }
}

#[test]
fn a_host_that_hangs_in_a_state_is_reported_with_it_its_usual_time_and_a_verb() {
    let site = Site::new(TREE);
    let clock = Arc::new(ManualClock::at(1_800_000_000_000));
    let life = site.live_at(clock.clone());
    life.accept(HOST);
    life.runtime.block_on(async {
        let (mut hand, connection) = Hand::connect(&life).await;
        // A successful highstate provides the usual time.
        let mut events = highstate(&life).await;
        let job = hand.start().await;
        clock.advance(7_000);
        let returned = v1::JobReturn {
            job,
            retcode: 0,
            return_json: json!({"states": []}).to_string(),
            error: String::new(),
        };
        hand.say(Body::Returned(returned)).await;
        assert_eq!(report(&mut events).await, None);

        let mut events = highstate(&life).await;
        let job_id = hand.start().await;
        let progress = v1::JobProgress {
            job: job_id.clone(),
            index: 0,
            total: 2,
            state_json: "{}".into(),
        };
        hand.say(Body::Progress(progress)).await;
        for kind in ["/new", "/start/worker-1", "/prog/worker-1"] {
            let event = events.next().await.unwrap().unwrap();
            assert!(event.tag.ends_with(kind), "{}", event.tag);
        }
        clock.advance(10_000);
        let said = report(&mut events).await.unwrap();
        assert_eq!(said["step"], HOST);
        assert_eq!(said["until"], "worker-1 has returned");
        let because = format!(
            "the job {job_id} (state.highstate) runs there; it is at state 2 of 2, or soon after: issue (file.managed, host)"
        );
        assert_eq!(said["because"], because);
        let numbers = ["seconds", "usual", "limit"].map(|key| said[key].as_u64());
        assert_eq!(numbers, [Some(10), Some(7), Some(3600)], "{said}");
        let remedy = said["remedy"].as_str().unwrap();
        assert!(remedy.contains(&format!("`ctl job show {job_id}`")), "{said}");
        let cancel = format!("`ctl job cancel {job_id}` ends the job");
        assert!(remedy.ends_with(&cancel), "{said}");

        // It loses its connection: the next report has another reason.
        drop(connection);
        until(|| !life.app.connections.is_connected(&hand.host)).await;
        clock.advance(10_000);
        let said = report(&mut events).await.unwrap();
        let because = said["because"].as_str().unwrap();
        assert!(because.starts_with("worker-1 is not connected"), "{said}");
        assert_eq!(said["seconds"], 20);
        let remedy = said["remedy"].as_str().unwrap();
        for verb in ["switch the host on", "ctl job cancel", "ctl node replace"] {
            assert!(remedy.contains(verb), "{said}");
        }
    });
    life.kill();
}

#[test]
fn a_job_behind_another_one_names_that() {
    let site = Site::new(TREE);
    let clock = Arc::new(ManualClock::at(1_800_000_000_000));
    let life = site.live_at(clock.clone());
    life.accept(HOST);
    life.runtime.block_on(async {
        let (mut hand, _connection) = Hand::connect(&life).await;
        let _first = highstate(&life).await;
        let first = hand.start().await;
        let mut events = highstate(&life).await;
        clock.advance(10_000);
        let said = report(&mut events).await.unwrap();
        let because = said["because"].as_str().unwrap();
        let comes_first = format!("the job {first} comes first there");
        assert!(because.starts_with(&comes_first), "{said}");
        let remedy = said["remedy"].as_str().unwrap();
        let own = said["job"].as_str().unwrap();
        let cancel = format!("`ctl job cancel {own}` ends this job");
        assert!(own != first && remedy.ends_with(&cancel), "{said}");
    });
    life.kill();
}

#[test]
fn silent_hosts_are_found_without_their_low_states() {
    let site = Site::new(TREE);
    let clock = Arc::new(ManualClock::at(1_800_000_000_000));
    let life = site.live_at(clock.clone());
    life.accept(HOST);
    life.runtime.block_on(async {
        let (mut hand, _connection) = Hand::connect(&life).await;
        let _first = highstate(&life).await;
        let first = hand.start().await;
        let mut events = highstate(&life).await;
        let columns: &[&str] = &["low_json"];
        let tables = [("job_rows", columns), ("low_states", columns)];
        life.store.spoil(&tables).await;
        clock.advance(10_000);
        let said = report(&mut events).await.unwrap();
        let because = said["because"].as_str().unwrap();
        let comes_first = format!("the job {first} comes first there");
        assert!(because.starts_with(&comes_first), "{said}");
    });
    life.kill();
}

#[test]
fn a_job_whose_turn_on_a_host_has_not_come_holds_up_nothing_there() {
    let site = Site::new(TREE);
    let clock = Arc::new(ManualClock::at(1_800_000_000_000));
    let life = site.live_at(clock.clone());
    life.accept("bootstrap-1");
    life.accept(HOST);
    life.runtime.block_on(async {
        let (mut other, _other) = Hand::connect_as(&life, "bootstrap-1").await;
        let (mut hand, _connection) = Hand::connect(&life).await;
        // One report for each host in turn: the job is queued on the second one.
        let _ordered = highstate_of(&life, "*").await;
        let ordered = other.start().await;
        let _first = highstate(&life).await;
        let first = hand.start().await;
        assert_ne!(first, ordered);
        let mut events = highstate(&life).await;
        clock.advance(10_000);
        let said = report(&mut events).await.unwrap();
        let because = said["because"].as_str().unwrap();
        let comes_first = format!("the job {first} comes first there");
        assert!(because.starts_with(&comes_first), "{said}");
    });
    life.kill();
}
