//! Events while a minion works, as `ctl` receives them: its progress, the lines of its journal, and
//! waits.

use std::sync::Arc;

use futures_util::StreamExt as _;
use halite_core::clock::{ManualClock, Steady};
use halite_core::isolation::{AFTER, Surroundings};
use halite_proto::v1;
use halite_proto::v1::minion_message::Body;
use halite_states::low::StateReturn;
use serde_json::{Map, json};

use super::contract::check_event;
use super::contract_tests::{NOW, life, site};
use super::fixture::WATCHDOG;
use super::wire::Wire;

#[test]
fn progress_and_waits() {
    let site = site();
    let clock = Arc::new(ManualClock::at(NOW));
    let life = site.live_at(clock.clone());
    let mut wire = Wire::connect(&life, "worker-1");
    let request = v1::RunRequest {
        target: "worker-1".to_owned(),
        function: "state.highstate".to_owned(),
        ..v1::RunRequest::default()
    };
    let mut events = life
        .runtime
        .block_on(life.backend.run("root", request))
        .unwrap();
    let mut next = |kind: &str| {
        let found = async {
            loop {
                let event = events.next().await.unwrap().unwrap();
                if event.tag.contains(kind) {
                    return event;
                }
            }
        };
        let found = life
            .runtime
            .block_on(async { tokio::time::timeout(WATCHDOG, found).await });
        found.unwrap_or_else(|_| panic!("there is no event {kind}"))
    };
    let job = wire.job();
    let state = StateReturn {
        index: 0,
        id: "motd".to_owned(),
        name: "/etc/motd".to_owned(),
        function: "file.managed".to_owned(),
        sls: "host".to_owned(),
        result: Some(true),
        changes: Map::from_iter([(
            "diff".to_owned(),
            json!("--- \n+++ \n@@ -0,0 +1 @@\n+welcome\n"),
        )]),
        comment: "/etc/motd was written".to_owned(),
        start_time: "2027-01-15T08:00:00.000Z".to_owned(),
        duration: 3.5,
        run_num: 0,
        ran: true,
        fail_run: true,
    };
    wire.say(Body::Progress(v1::JobProgress {
        job: job.clone(),
        index: 0,
        total: 1,
        state_json: serde_json::to_string(&state).unwrap(),
    }));
    check_event("event-job-prog", &next("/prog/"));
    clock.advance(10_000);
    check_event("event-job-wait", &next("/wait"));
    wire.returns(&job, "halite-minion was stopped");
    check_event("event-job-ret-failed", &next("/ret/"));
    life.kill();
}

#[test]
fn lines_of_a_journal() {
    let site = site();
    let life = life(&site);
    let mut wire = Wire::connect(&life, "worker-1");
    let request = v1::RunRequest {
        target: "worker-1".to_owned(),
        function: "log.read".to_owned(),
        args_json: json!({"unit": "kubelet", "lines": 2, "follow": true}).to_string(),
        ..v1::RunRequest::default()
    };
    let run = life.backend.run("root", request);
    let mut events = life.runtime.block_on(run).unwrap();
    let lines = ["Started kubelet", "Node became ready"]
        .map(|text| format!("2027-01-15T08:00:00+00:00 worker-1 kubelet[812]: {text}"));
    let job = wire.job();
    wire.say(Body::Progress(v1::JobProgress {
        job,
        index: 0,
        total: 0,
        state_json: json!({"lines": lines}).to_string(),
    }));
    let read = async {
        loop {
            let event = events.next().await.unwrap().unwrap();
            if event.tag.contains("/log/") {
                return event;
            }
        }
    };
    let read = async { tokio::time::timeout(WATCHDOG, read).await };
    let event = life.runtime.block_on(read).expect("the event must come");
    check_event("event-job-log", &event);
    life.kill();
}

#[test]
fn a_run_that_waits_because_its_master_is_isolated() {
    let site = site();
    let life = life(&site);
    let mut wire = Wire::connect(&life, "worker-1");
    let request = v1::OrchestrateRequest {
        sls: "custom.two".to_owned(),
        ..v1::OrchestrateRequest::default()
    };
    let mut events = life
        .runtime
        .block_on(life.backend.orchestrate("root", request))
        .unwrap();
    let job = wire.job();
    let seen = Surroundings {
        standbys: 2,
        alone_since: Some(0),
        accepted: 4,
        connected: 1,
    };
    for now in [0, AFTER] {
        life.app.isolation.look(Steady(now), seen);
    }
    wire.say(Body::Returned(v1::JobReturn {
        job,
        retcode: 0,
        return_json: json!({"states": []}).to_string(),
        error: String::new(),
    }));
    let waits = async {
        loop {
            let event = events.next().await.unwrap().unwrap();
            if event.tag.starts_with("halite/run/") && event.tag.ends_with("/wait") {
                return event;
            }
        }
    };
    let waits = async { tokio::time::timeout(WATCHDOG, waits).await };
    let event = life.runtime.block_on(waits).expect("the event must come");
    check_event("event-run-wait", &event);
    life.kill();
}
