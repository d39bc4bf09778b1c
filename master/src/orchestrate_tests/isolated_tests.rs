//! Runs that are open when their master becomes isolated.

use std::time::Duration;

use futures_util::StreamExt as _;
use halite_core::clock::Steady;
use halite_core::event_stream::EventStream;
use halite_core::isolation::{AFTER, Surroundings};
use halite_proto::v1;
use halite_proto::v1::minion_message::Body;
use serde_json::{Value, json};

use super::fixture::request;
use super::stall_fixture::{begin, site};
use crate::backend::fixture::{Life, ScriptedMinion, Site};
use crate::backend::wire::Wire;

fn look(life: &Life, connected: usize) {
    let seen = Surroundings {
        standbys: 2,
        alone_since: Some(0),
        accepted: 4,
        connected,
    };
    life.app.isolation.look(Steady(0), seen);
    life.app.isolation.look(Steady(AFTER), seen);
}

fn done(wire: &Wire<'_>, job: String) {
    wire.say(Body::Returned(v1::JobReturn {
        job,
        retcode: 0,
        return_json: json!({"states": []}).to_string(),
        error: String::new(),
    }));
}

/// Follows the run to the report of its wait.
async fn waits(events: &mut EventStream) -> Value {
    loop {
        let event = events.next().await.expect("it waits").unwrap();
        assert!(!event.last, "it ended: {}", event.data_json);
        if event.tag.ends_with("/wait") {
            return serde_json::from_str(&event.data_json).unwrap();
        }
    }
}

#[test]
fn an_open_run_waits_while_its_master_is_isolated_and_continues_by_itself() {
    let site = site();
    let life = site.live();
    let mut wire = Wire::connect(&life, "worker-1");
    let (_, mut events) = life.runtime.block_on(begin(&life, "two"));
    let job = wire.job();
    look(&life, 1);
    // Work that was already sent continues; the next step does not start.
    done(&wire, job);
    let wait = life.runtime.block_on(waits(&mut events));
    assert_eq!(wait["step"], "second", "{wait}");
    let because = wait["because"].as_str().unwrap();
    assert!(because.contains("1 of 4 minions are connected"), "{wait}");
    let jobs = life.runtime.block_on(life.store.jobs(9)).unwrap();
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    look(&life, 2);
    let job = wire.job();
    done(&wire, job);
    let events = life.collect(events);
    let last = events.last().unwrap();
    assert_eq!(last.retcode, 0, "{}", last.data_json);
    life.kill();
}

#[test]
fn a_run_that_waits_for_the_end_of_the_isolation_can_be_cancelled() {
    let site = site();
    let life = site.live();
    let mut wire = Wire::connect(&life, "worker-1");
    let (run, mut events) = life.runtime.block_on(begin(&life, "two"));
    let job = wire.job();
    look(&life, 1);
    done(&wire, job);
    life.runtime.block_on(waits(&mut events));
    let cancelled = life.backend.cancel_run(&run, "alice");
    let answer = life.runtime.block_on(cancelled).unwrap();
    assert_eq!(answer.status, halite_api::RunStatus::Cancelled);
    life.kill();
}

#[test]
fn an_open_run_waits_if_its_master_starts_alone_and_continues_by_itself() {
    let site = site();
    for (name, address) in [("cp-2", "10.10.0.12"), ("cp-3", "10.10.0.13")] {
        let text = format!(
            "apiVersion: halite/v1\nkind: Node\nmetadata: {{name: {name}}}\nroles: [etcd, control-plane]\naddress: {address}\n"
        );
        std::fs::write(site.path().join(format!("etc/nodes/{name}.yaml")), text).unwrap();
    }
    let life = site.live();
    for name in ["bootstrap-1", "cp-2", "cp-3"] {
        life.accept(name);
    }
    let mut wire = Wire::connect(&life, "worker-1");
    drop(life.runtime.block_on(begin(&life, "two")));
    let job = wire.job();
    drop(wire);
    life.kill();

    let life = site.live();
    let mut wire = Wire::with_jobs(&life, "worker-1", &[&job], &[]);
    done(&wire, job);
    let same = request("orchestrate.two", &json!({}));
    let joined = life.backend.orchestrate("root", same);
    let mut events = life.runtime.block_on(joined).unwrap();
    let wait = life.runtime.block_on(waits(&mut events));
    let because = wait["because"].as_str().unwrap();
    assert!(because.contains("1 of 4 minions are connected"), "{wait}");
    let jobs = life.runtime.block_on(life.store.jobs(9)).unwrap();
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    let _second = Wire::connect(&life, "cp-2");
    let job = wire.job();
    done(&wire, job);
    let events = life.collect(events);
    let last = events.last().unwrap();
    assert_eq!(last.retcode, 0, "{}", last.data_json);
    life.kill();
}

#[test]
fn a_host_that_calls_long_after_the_start_of_the_master_is_not_left_out() {
    let step =
        "peers:\n  halite.state:\n    - tgt: worker-1\n    - sls: [one]\n    - offline: skip\n";
    let site = Site::new(&[
        ("top.sls", "base:\n  '*': [one]\n"),
        ("one.sls", "one:\n  test.succeed_with_changes: []\n"),
        ("orchestrate/peers.sls", step),
    ]);
    let worker = ScriptedMinion::new("worker-1");
    let life = site.live();
    life.app.isolation.serves();
    life.accept("worker-1");
    let request = v1::OrchestrateRequest {
        sls: "orchestrate.peers".into(),
        ..Default::default()
    };
    let stream = life.backend.orchestrate("root", request);
    let stream = life.runtime.block_on(stream).unwrap();
    // The longest pause of a minion that has repeatedly found no master.
    std::thread::sleep(Duration::from_secs(10));
    life.connect(&worker);
    assert_eq!(life.collect(stream).last().unwrap().retcode, 0);
    assert_eq!(worker.journal.lock().unwrap().applied, ["one"]);
}
