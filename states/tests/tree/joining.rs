//! The order in which a further control plane joins.

use halite_states::compile;
use serde_json::{Value, json};

use crate::support::{fixture, sure, with};

/// The lock of etcd's members is free as soon as the API server serves; and a standby of the master copies while the
/// node becomes Ready, which waits for the whole control plane, and not for the copy.
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

/// No run changes a host that is still bare, and whichever of two is later lets both know each other before it
/// can become a member.
#[test]
fn hosts_that_join_side_by_side_leave_each_other_alone_until_both_are_there() {
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
        // What is applied on other hosts is left out on a bare one; no step names the other host.
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
        // Its own preflight, its own packages, and only then what the others do for it and it for them.
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
    // The own states of a host open its firewall to the other one, whose address is known by then.
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
fn the_last_step_tries_what_pods_of_the_host_reach() {
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
    // That of a cluster may be broken for another reason.
    assert_eq!(last("add_node", "worker-1"), None);
}
