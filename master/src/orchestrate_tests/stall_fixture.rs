//! A site on which steps stall, each for another reason.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use halite_core::event_stream::EventStream;
use halite_etcd::fake::FakeCluster;
use halite_proto::ids::JobId;
use serde_json::{Value, json};

use super::fixture::{dns, put_pod, ready_node, request};
use crate::backend::fixture::{Life, Site};

/// Orchestrations of one step that waits for ten minutes at most.
const TREE: &[(&str, &str)] = &[
    ("top.sls", "base:\n  '*': []\n"),
    (
        "one.sls",
        "one:\n  file.managed:\n    - name: /one\n    - contents: x\n",
    ),
    (
        "orchestrate/host.sls",
        "step:\n  halite.state:\n    - tgt: worker-1\n    - sls: [one]\n    - timeout: 600\n",
    ),
    (
        "orchestrate/disk.sls",
        "step:\n  halite.wait_for_node:\n    - node: full-1\n    - timeout: 600\n",
    ),
    (
        "orchestrate/dns.sls",
        "step:\n  halite.rebalance:\n    - namespace: kube-system\n    - deployment: coredns\n    - timeout: 600\n",
    ),
    (
        "orchestrate/quorum.sls",
        "step:\n  halite.etcd_quorum_allows:\n    - node: bootstrap-1\n    - timeout: 600\n",
    ),
    (
        "orchestrate/enrol.sls",
        "turn:\n  halite.lock:\n    - lock: etcd-members\n\
         step:\n  halite.wait_for_minion:\n    - id: worker-2\n    - timeout: 600\n    - require: [{halite: turn}]\n",
    ),
    (
        "orchestrate/lock.sls",
        "step:\n  halite.lock:\n    - lock: etcd-members\n    - timeout: 600\n",
    ),
    (
        "orchestrate/facts.sls",
        "step:\n  halite.preflight:\n    - node: bootstrap-1\n",
    ),
    (
        "orchestrate/pdb.sls",
        "step:\n  halite.drain:\n    - node: worker-1\n    - timeout: 600\n",
    ),
    (
        "orchestrate/again.sls",
        "step:\n  test.fail_without_changes:\n    - retry: {attempts: 100, interval: 3600}\n",
    ),
    (
        "orchestrate/two.sls",
        "first:\n  halite.state:\n    - tgt: worker-1\n    - sls: [one]\n\
         second:\n  halite.state:\n    - tgt: worker-1\n    - sls: [one]\n    - require: [{halite: first}]\n",
    ),
];

/// A node that is Ready, and whose disk is full.
fn full_node(name: &str) -> Value {
    let mut node = ready_node(name);
    let conditions = node["status"]["conditions"].as_array_mut().unwrap();
    conditions.push(
        json!({"type": "DiskPressure", "status": "True", "reason": "KubeletHasDiskPressure",
        "message": "kubelet has disk pressure"}),
    );
    node
}

/// One of three members is away; a disk is full; both pods of the DNS are on one node, and an
/// evicted pod gets no successor; a budget protects a pod of the worker.
pub(super) fn site() -> Site {
    let mut site = Site::new(TREE);
    let cluster = FakeCluster::new(&["bootstrap-1", "cp-2", "cp-3"]);
    cluster.stop("cp-2");
    site.etcd = Some((Arc::new(cluster), Duration::from_secs(600)));
    site.api.put(full_node("full-1"));
    site.api.put(ready_node("bootstrap-1"));
    site.api.put(ready_node("worker-1"));
    site.api.put(dns(2));
    for name in ["dns-a", "dns-b"] {
        site.api.put(json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "kube-system", "labels": {"k8s-app": "kube-dns"}},
            "spec": {"nodeName": "bootstrap-1"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}));
    }
    put_pod(&site.api);
    site.api.put(
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "web-budget", "namespace": "default"}, "spec": {"selector": {}},
        "status": {"currentHealthy": 1, "desiredHealthy": 1}}),
    );
    let held = [("web".to_owned(), u32::MAX)];
    site.api.held.lock().unwrap().extend(held);
    site
}

/// Starts an orchestration, and waits until its last step has started; returns the remaining
/// events.
pub(super) async fn begin(life: &Life, sls: &str) -> (JobId, EventStream) {
    let request = request(&format!("orchestrate.{sls}"), &json!({}));
    let mut events = life.backend.orchestrate("root", request).await.unwrap();
    loop {
        let event = events.next().await.expect("it waits").unwrap();
        assert!(!event.last, "{sls} ended: {}", event.data_json);
        let data: Value = serde_json::from_str(&event.data_json).unwrap();
        if data["step"]["status"] == "running" && data["step"]["name"] != "turn" {
            let run = data["run"].as_str().unwrap().parse();
            return (run.unwrap(), events);
        }
    }
}
