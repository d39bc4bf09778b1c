//! Spreads of a Deployment on the fake API.

use std::time::Duration;

use serde_json::{Value, json};

use super::Api;
use super::drain_tests::{Stopped, Virtual, finish, writes};
use super::fake::FakeApi;
use super::rebalance::{Rebalance, RebalanceError};

const READY: &str = r#"[{"type": "Ready", "status": "True"}]"#;

fn ready() -> Value {
    json!({"conditions": serde_json::from_str::<Value>(READY).unwrap()})
}

fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {}, "status": ready()})
}

fn pod(name: &str, node: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "kube-system", "uid": name, "labels": {"k8s-app": "kube-dns"}},
        "spec": {"nodeName": node}, "status": ready()})
}

/// Two replicas on the first of two nodes.
fn api() -> FakeApi {
    let api = FakeApi::default();
    for object in [
        node("cp-1"),
        node("worker-1"),
        pod("dns-a", "cp-1"),
        pod("dns-b", "cp-1"),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "coredns", "namespace": "kube-system"},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"k8s-app": "kube-dns"}}}}),
    ] {
        api.put(object);
    }
    let mut other = pod("other", "cp-1");
    other["metadata"]["labels"] = json!({"k8s-app": "other"});
    api.put(other);
    api
}

fn rebalance(api: &FakeApi) -> Result<Vec<String>, RebalanceError> {
    finish_on(api).expect("the fake never waits")
}

/// Spreads the pods; `None` if the caller of the API has died.
fn finish_on(api: &dyn Api) -> Option<Result<Vec<String>, RebalanceError>> {
    let pace = Virtual::default();
    let rebalance = Rebalance {
        api,
        pace: &pace,
        namespace: "kube-system",
        deployment: "coredns",
        limit: Duration::from_secs(20),
    };
    finish(rebalance.run())
}

#[test]
fn one_pod_makes_room_and_the_run_waits_for_its_successor() {
    let api = api();
    // Nothing creates the successor here.
    let text = rebalance(&api).unwrap_err().to_string();
    assert!(text.contains("1 of its pods are not ready"), "{text}");
    assert_eq!(writes(&api), ["evict Pod kube-system/dns-b"]);
    // A second run with the successor, as after a kill.
    api.put(pod("dns-c", "worker-1"));
    assert!(rebalance(&api).unwrap().is_empty());
    assert_eq!(writes(&api).len(), 1);
}

#[test]
fn the_run_waits_for_a_node_whose_network_starts() {
    let api = api();
    let mut network = pod("network", "worker-1");
    network["metadata"]["ownerReferences"] = json!([{"kind": "DaemonSet", "name": "network"}]);
    network["metadata"]["labels"] = json!({});
    network["status"] = json!({});
    api.put(network.clone());
    let text = rebalance(&api).unwrap_err().to_string();
    assert!(text.contains("network is not ready on worker-1"), "{text}");
    assert!(writes(&api).is_empty());
    network["status"] = ready();
    api.put(network);
    rebalance(&api).unwrap_err();
    assert_eq!(writes(&api), ["evict Pod kube-system/dns-b"]);
}

#[test]
fn pods_stay_where_no_other_node_takes_them_or_they_are_not_ready() {
    let spread = api();
    spread.put(pod("dns-b", "worker-1"));
    let mut cordoned = node("worker-1");
    cordoned["spec"]["unschedulable"] = json!(true);
    let mut away = node("worker-1");
    away["status"] = json!({});
    let mut starting = pod("dns-b", "cp-1");
    starting["status"] = json!({});
    for object in [cordoned, away, starting] {
        let api = api();
        api.put(object.clone());
        assert!(rebalance(&api).unwrap().is_empty(), "{object}");
        assert!(writes(&api).is_empty(), "{object}");
    }
    assert!(rebalance(&spread).unwrap().is_empty() && writes(&spread).is_empty());
    assert!(rebalance(&FakeApi::default()).unwrap().is_empty());
}

/// Three replicas on the first of three nodes; each of the others gets one.
fn three() -> FakeApi {
    let api = api();
    api.put(node("worker-2"));
    api.put(pod("dns-c", "cp-1"));
    let mut deployment = api.object("Deployment", "coredns").unwrap();
    deployment["spec"]["replicas"] = json!(3);
    api.put(deployment);
    let successors = [pod("dns-e", "worker-2"), pod("dns-d", "worker-1")];
    *api.successors.lock().unwrap() = successors.to_vec();
    api
}

/// The nodes of the pods.
fn places(api: &FakeApi) -> Vec<(String, Value)> {
    let objects = api.objects.lock().unwrap();
    let pods = objects.iter().filter(|(object, _)| object.kind == "Pod");
    pods.map(|(object, pod)| (object.name.clone(), pod["spec"]["nodeName"].clone()))
        .collect()
}

/// The table of kill points: before and after each eviction of a spread.
#[test]
fn a_spread_that_was_killed_at_any_eviction_ends_like_one_that_was_not() {
    let whole = three();
    assert_eq!(rebalance(&whole).unwrap().len(), 2);
    let all = writes(&whole);
    assert_eq!(
        all,
        ["evict Pod kube-system/dns-c", "evict Pod kube-system/dns-b"]
    );
    for at in 0..all.len() {
        for after in [false, true] {
            let api = three();
            let killed = finish_on(&Stopped::new(&api, at, after));
            assert!(killed.is_none(), "it continued after write {at}");
            assert_eq!(writes(&api).len(), at + usize::from(after));
            rebalance(&api).unwrap();
            assert_eq!(writes(&api), all, "killed at {at}, after: {after}");
            assert_eq!(
                places(&api),
                places(&whole),
                "killed at {at}, after: {after}"
            );
        }
    }
    // Another run, by a process that was killed after its last write and before it knew.
    assert!(rebalance(&whole).unwrap().is_empty());
    assert_eq!(writes(&whole), all);
}
