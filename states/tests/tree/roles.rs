//! Steps that give a host other roles.

use halite_states::compile;
use serde_json::json;

use crate::support::{fixture, sure, with};

/// The steps that give a host of these roles others.
fn steps(before: &[&str], after: &[&str]) -> Vec<String> {
    let (mut pillar, grains) = fixture("master");
    pillar["node"] = json!("worker-1");
    pillar["roles"] = json!(after);
    pillar["halite"]["nodes"]["worker-1"]["roles"] = json!(before);
    let runs = before.contains(&"worker");
    pillar["halite"]["nodes"]["worker-1"]["runs"] = json!({"containers": runs});
    let compiled = sure(with(&pillar, &grains, |i| {
        compile::sls(i, &["halite.orchestrate.add_node".to_owned()])
    }));
    let chunks = &compiled.low.chunks;
    assert_eq!(chunks[0].args["roles"], json!(after));
    assert_eq!(chunks[1].requisites.require, [0], "{}", chunks[1].id);
    chunks.iter().map(|chunk| chunk.id.clone()).collect()
}

#[test]
fn a_host_with_new_roles_takes_the_steps_of_one_that_is_added_with_them() {
    assert_eq!(
        steps(&["worker"], &["worker", "control-plane", "etcd"]),
        [
            "roles",
            "enrolled",
            "peers",
            "preflight",
            "host",
            "containerd",
            "kubelet",
            "turn",
            "learner",
            "etcd",
            "promoted",
            "control-plane",
            "registered",
            "turn-ends",
            "api-clients",
            "node",
            "ready",
            "masters",
            "other-masters",
            "dns",
            "custom"
        ]
    );
    assert_eq!(
        steps(&["registry"], &["registry", "worker"]),
        [
            "roles",
            "enrolled",
            "peers",
            "preflight",
            "host",
            "registry",
            "containerd",
            "kubelet",
            "node",
            "ready",
            "dns",
            "custom",
            "clients"
        ]
    );
}

#[test]
fn a_host_that_stops_to_serve_bundles_has_no_clients_by_then() {
    let steps = steps(&["worker", "registry"], &["worker"]);
    let last = &steps[steps.len() - 2..];
    assert_eq!(last, ["former-clients", "custom"]);
}
