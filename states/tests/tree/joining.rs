//! The order in which an additional control plane joins.

use halite_states::compile;
use serde_json::{Value, json};

use crate::support::{before, by_id, fixture, sure, with};

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
    let released = before(&add, "turn-ends");
    assert!(released.contains("control-plane"), "{released:?}");
    let ready = before(&add, "ready");
    assert!(ready.contains("components"), "{ready:?}");
    for id in ["registered", "node", "masters", "components", "ready"] {
        assert!(!released.contains(id), "the lock waits for {id}");
    }
    for id in ["turn-ends", "masters", "other-masters", "dns", "custom"] {
        assert!(!ready.contains(id), "the node waits for {id}");
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
        // A state that is applied on other hosts skips a bare one; no step names the other host.
        for chunk in &add.low.chunks {
            let target = chunk.args.get("tgt").and_then(Value::as_str);
            let target = target.unwrap_or_default();
            assert_ne!(target, other, "{}", chunk.id);
            if target.starts_with('*') {
                assert_eq!(chunk.args["bare"], "skip", "{}", chunk.id);
                assert_eq!(chunk.args["offline"], "skip", "{}", chunk.id);
            }
        }
        // The same states, on the host itself too, and not twice on one host.
        let args = |id: &str| &by_id(&add, id).1.args;
        let (peers, late) = (args("peers"), args("late-peers"));
        assert_eq!(late["sls"], peers["sls"]);
        assert!(peers["tgt"].as_str().unwrap().contains(name));
        assert_eq!(late["tgt"], "* and not L@master");
        assert_eq!(late["but_done_by"], "peers");
        // Its own preflight, its own packages, and only then the changes on other hosts for it and
        // on it for them.
        let known = before(&add, "late-peers");
        assert!(
            known.is_superset(&["preflight", "host", "kubelet"].into()),
            "{known:?}"
        );
        let member = before(&add, "learner");
        assert!(
            member.is_superset(&["peers", "late-peers", "turn"].into()),
            "{member:?}"
        );
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
