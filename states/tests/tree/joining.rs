//! The order in which an additional control plane joins.

use halite_states::compile;
use serde_json::{Value, json};

use crate::support::{fixture, sure, with};

/// The lock of etcd's members is released as soon as the API server serves. A standby of the master
/// copies while the node becomes Ready, which waits for the whole control plane and not for the
/// copy.
#[test]
fn a_control_plane_that_joins_waits_for_nothing_that_can_be_later() {
    let (mut pillar, grains) = fixture("master");
    pillar["node"] = json!("worker-1");
    pillar["halite"]["nodes"]["worker-1"]["roles"] = json!(["control-plane", "etcd"]);
    let add = sure(with(&pillar, &grains, |i| {
        compile::step(i, &["halite.orchestrate.add_node".to_owned()])
    }));
    let chunks = &add.low.chunks;
    let at = |id: &str| chunks.iter().position(|chunk| chunk.id == id).unwrap();
    let sls = |id: &str| &chunks[at(id)].args["sls"];
    assert_eq!(
        sls("control-plane"),
        &json!(["halite.base.etcd", "halite.base.control_plane"])
    );
    assert_eq!(
        sls("components"),
        &json!(["halite.base.control_plane.running"])
    );
    for (id, wanted) in [
        ("registered", "control-plane"),
        ("turn-ends", "control-plane"),
        ("node", "registered"),
        ("masters", "node"),
        ("components", "node"),
        ("ready", "components"),
        ("other-masters", "ready"),
        ("dns", "ready"),
        ("custom", "ready"),
    ] {
        assert_eq!(chunks[at(id)].requisites.require, [at(wanted)], "{id}");
    }
}

/// No run changes a host that is still bare, and the later of two runs makes both hosts known to
/// each other before they can become members.
#[test]
fn hosts_that_join_in_parallel_leave_each_other_alone_until_both_are_prepared() {
    let (mut pillar, grains) = fixture("master");
    pillar["halite"]["nodes"]["worker-1"]["roles"] = json!(["control-plane", "etcd"]);
    let mut beside = pillar["halite"]["nodes"]["worker-1"].clone();
    beside["controlPlane"] = json!("10.10.1.13");
    beside["workloadPlane"] = json!("10.10.1.13");
    pillar["halite"]["nodes"]["worker-2"] = beside;
    for (name, other) in [("worker-1", "worker-2"), ("worker-2", "worker-1")] {
        pillar["node"] = json!(name);
        let add = sure(with(&pillar, &grains, |i| {
            compile::step(i, &["halite.orchestrate.add_node".to_owned()])
        }));
        let chunks = &add.low.chunks;
        let at = |id: &str| chunks.iter().position(|chunk| chunk.id == id).unwrap();
        // A state that is applied on other hosts skips a bare one; no step names the other host.
        let of_all: Vec<&str> = chunks
            .iter()
            .filter(|chunk| {
                let target = chunk.args.get("tgt").and_then(Value::as_str);
                let target = target.unwrap_or_default();
                assert_ne!(target, other, "{}", chunk.id);
                target.starts_with('*')
            })
            .map(|chunk| {
                assert_eq!(chunk.args["bare"], "skip", "{}", chunk.id);
                assert_eq!(chunk.args["offline"], "skip", "{}", chunk.id);
                chunk.id.as_str()
            })
            .collect();
        let wanted = ["peers", "late-peers", "api-clients", "other-masters"];
        assert_eq!(of_all, wanted);
        // The same states, on the host itself too, and not twice on one host.
        let (peers, late) = (&chunks[at("peers")].args, &chunks[at("late-peers")].args);
        assert_eq!(late["sls"], peers["sls"]);
        assert!(peers["tgt"].as_str().unwrap().contains(name));
        assert_eq!(late["tgt"], "* and not L@master");
        assert_eq!(late["but_done_by"], "peers");
        // Its own preflight, its own packages, and only then the changes on other hosts for it and
        // on it for them.
        for (id, wanted) in [
            ("preflight", "peers"),
            ("host", "preflight"),
            ("containerd", "host"),
            ("kubelet", "containerd"),
            ("late-peers", "kubelet"),
            ("turn", "late-peers"),
            ("learner", "turn"),
            ("earlier-member", "learner"),
            ("etcd", "earlier-member"),
        ] {
            assert_eq!(chunks[at(id)].requisites.require, [at(wanted)], "{id}");
        }
    }
    // The host's own states open its firewall to the other host, whose address is known by then.
    let (mut pillar, grains) = fixture("worker");
    pillar["halite"]["nodes"]["worker-2"] = pillar["halite"]["nodes"]["worker-1"].clone();
    pillar["halite"]["nodes"]["worker-2"]["controlPlane"] = json!("10.10.1.13");
    pillar["halite"]["nodes"]["worker-2"]["workloadPlane"] = json!("10.10.1.13");
    let host = sure(with(&pillar, &grains, |i| {
        compile::step(i, &["halite.host".to_owned()])
    }));
    let mut chunks = host.low.chunks.iter();
    let sets = chunks.find(|chunk| chunk.id == "halite-sets").unwrap();
    let nodes = sets.args["sets"]["halite-nodes"].to_string();
    assert!(nodes.contains("10.10.1.13"), "{nodes}");
}

/// The operator's own states, before it, may open the ports of another pod network.
#[test]
fn the_last_step_tests_the_network_of_the_hosts_pods() {
    let last = |sls: &str, node: &str| {
        let (mut pillar, grains) = fixture("master");
        pillar["node"] = json!(node);
        let compiled = sure(with(&pillar, &grains, |i| {
            compile::sls(i, &[format!("halite.orchestrate.{sls}")])
        }));
        let chunks = &compiled.low.chunks;
        let (last, before) = chunks.split_last().unwrap();
        assert_eq!(last.function(), "halite.pod_network", "{sls}");
        assert_eq!(last.args["node"], node);
        let required = last.requisites.require.iter();
        let required: Vec<&str> = required.map(|at| before[*at].id.as_str()).collect();
        assert_eq!(required, ["ready"], "{sls}");
        assert!(before.iter().any(|chunk| chunk.id == "custom"), "{sls}");
        last.args.get("dns").cloned()
    };
    assert_eq!(last("bootstrap", "bootstrap-1"), Some(json!(true)));
    // The pod network of a running cluster may be broken for another reason.
    assert_eq!(last("add_node", "worker-1"), None);
}
