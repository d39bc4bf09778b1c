//! Steps on a node of the Kubernetes API.

use std::sync::atomic::Ordering;

use futures_util::StreamExt as _;
use halite_core::event_stream::EventStream;
use halite_proto::v1;
use halite_store::StepStatus;
use serde_json::{Value, json};

use super::fixture::{applied, newest_run, resumed};
use crate::backend::fixture::{Life, ScriptedMinion, Site};

const TREE: &[(&str, &str)] = &[
    ("top.sls", "base:\n  '*': []\n"),
    (
        "orchestrate/leave.sls",
        "away:\n  halite.cordon:\n    - node: worker-1\n\
         drained:\n  halite.drain:\n    - node: worker-1\n    - force: {{ pillar.force }}\n    - timeout: 0\n    - require: [{halite: away}]\n\
         deleted:\n  halite.node_delete:\n    - node: worker-1\n    - require: [{halite: drained}]\n",
    ),
    (
        "orchestrate/back.sls",
        "back:\n  halite.uncordon:\n    - node: worker-1\n    - timeout: 0\n",
    ),
];

fn site() -> Site {
    let site = Site::new(TREE);
    site.api.put(
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker-1"}, "spec": {}}),
    );
    site.api.put(json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "alone", "namespace": "default"}, "spec": {"nodeName": "worker-1"}}));
    site
}

fn orchestrate(life: &Life, sls: &str, pillar: &Value, test: bool) -> (i32, String) {
    let request = v1::OrchestrateRequest {
        sls: sls.into(),
        pillar_json: pillar.to_string(),
        test,
        ..Default::default()
    };
    let backend = &life.backend;
    let stream = life.runtime.block_on(backend.orchestrate("root", request));
    let events = life.collect(stream.unwrap());
    let last = events.last().unwrap();
    (last.retcode, last.data_json.clone())
}

#[test]
fn a_node_is_cordoned_drained_deleted_and_uncordoned() {
    let site = site();
    let life = site.live();
    let leave =
        |force: bool, test| orchestrate(&life, "orchestrate.leave", &json!({"force": force}), test);
    // A test run says what it would do.
    let (retcode, data) = leave(true, true);
    assert_eq!(retcode, 0, "{data}");
    assert!(data.contains("a real run drains worker-1"), "{data}");
    assert!(site.api.writes.lock().unwrap().is_empty());

    let (retcode, data) = leave(false, false);
    assert_eq!(retcode, 1, "{data}");
    assert!(
        data.contains("(--force ends them): default/alone"),
        "{data}"
    );
    let unschedulable = || site.api.object("Node", "worker-1").unwrap()["spec"].clone();
    assert_eq!(unschedulable(), json!({"unschedulable": true}));

    let (retcode, data) = orchestrate(&life, "orchestrate.back", &json!({}), false);
    assert_eq!(retcode, 0, "{data}");
    assert_eq!(unschedulable(), json!({}));

    let (retcode, data) = leave(true, false);
    assert_eq!(retcode, 0, "{data}");
    assert!(site.api.object("Node", "worker-1").is_none());

    let (retcode, data) = orchestrate(&life, "orchestrate.back", &json!({}), false);
    assert_eq!(retcode, 1, "{data}");
    assert!(
        data.contains("cannot uncordon worker-1: node worker-1 is not registered"),
        "{data}"
    );
}

#[test]
fn an_api_that_does_not_answer_in_time_is_named() {
    let site = site();
    site.api.silent_for.store(u32::MAX, Ordering::SeqCst);
    let life = site.live();
    let (retcode, data) = orchestrate(&life, "orchestrate.back", &json!({}), false);
    assert_eq!(retcode, 1, "{data}");
    let text = "cannot uncordon worker-1: the Kubernetes API at 10.0.0.1:6443 does not answer";
    assert!(data.contains(text), "{data}");
}

/// A connection to a dead address never answers.
#[test]
fn a_step_waits_for_a_missing_answer_until_the_limit() {
    let site = site();
    site.api.hung.on.store(true, Ordering::SeqCst);
    let life = site.live();
    let (retcode, data) = orchestrate(&life, "orchestrate.back", &json!({}), false);
    assert_eq!(retcode, 1, "{data}");
    assert!(
        data.contains("cannot uncordon worker-1: the API has not answered yet"),
        "{data}"
    );
    assert!(site.api.hung.came.load(Ordering::SeqCst) >= 1);
}

/// A drain that leaves out the worker, and states of the worker.
fn undrained() -> Site {
    let steps = "drained:\n  halite.drain:\n    - node: worker-1\n    - offline: skip\n\
                 back:\n  halite.wait_for_minion:\n    - id: worker-1\n    - require:\n        - halite: drained\n\
                 states:\n  halite.state:\n    - tgt: worker-1\n    - sls: [one]\n    - offline: skip\n    - require:\n        \
                 - halite: back\n";
    let tree = [
        ("top.sls", "base:\n  '*': []\n"),
        (
            "one.sls",
            "one:\n  file.managed:\n    - name: /one\n    - contents: x\n",
        ),
        ("orchestrate/undrained.sls", steps),
    ];
    Site::new(&tree)
}

/// Begins the run of [`undrained`], until it has left out the worker.
fn left_out(life: &Life) -> EventStream {
    life.accept("worker-1");
    let request = v1::OrchestrateRequest {
        sls: "orchestrate.undrained".into(),
        ..Default::default()
    };
    let stream = life.backend.orchestrate("root", request);
    let mut stream = life.runtime.block_on(stream).unwrap();
    life.runtime.block_on(async {
        while let Some(event) = stream.next().await {
            if event.unwrap().data_json.contains("is left out") {
                break;
            }
        }
    });
    stream
}

#[test]
fn a_host_whose_drain_was_left_out_gets_no_later_states() {
    let (site, worker) = (undrained(), ScriptedMinion::new("worker-1"));
    let life = site.live();
    let stream = left_out(&life);
    life.connect(&worker);
    let events = life.collect(stream);
    let done: Value = serde_json::from_str(&events.last().unwrap().data_json).unwrap();
    assert_eq!(
        done["steps"][2]["detail"]["leftOut"],
        json!(["worker-1"]),
        "{done}"
    );
    assert!(worker.journal.lock().unwrap().applied.is_empty());
}

#[test]
fn a_host_that_is_back_when_its_drain_is_repeated_gets_the_later_states() {
    let (site, worker) = (undrained(), ScriptedMinion::new("worker-1"));
    let life = site.live();
    drop(left_out(&life));
    // The master ends between the record of the host and the end of the step.
    let run = newest_run(&life);
    life.runtime.block_on(async {
        let mut drain = life.store.steps(&run.id).await.unwrap().remove(0);
        assert!(drain.detail_json.contains("leftOut"), "{drain:?}");
        (drain.status, drain.ended) = (StepStatus::Running, None);
        life.store.put_step(&drain).await.unwrap();
    });
    life.kill();
    let life = site.live();
    life.reconnect(&worker);
    let (retcode, data) = resumed(&life, &run);
    assert_eq!(retcode, 0, "{data}");
    assert_eq!(applied(&worker), ["one"], "{data}");
    life.kill();
}
