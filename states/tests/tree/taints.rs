//! The taints of control planes in clusters with and without a worker.

use halite_states::compile;
use serde_json::{Value, json};

use crate::support::{chunk, fixture, sure, with};

/// The master's pillar, in which the control-plane taint does or does not follow the workers, and
/// the host `worker-1` has this role.
fn pillar(follows: bool, role: &str) -> (Value, Value) {
    let (mut pillar, grains) = fixture("master");
    pillar["halite"]["nodes"]["bootstrap-1"]["taintFollowsWorkers"] = json!(follows);
    pillar["halite"]["nodes"]["worker-1"]["roles"] = json!([role]);
    (pillar, grains)
}

#[test]
fn a_control_plane_takes_pods_while_the_cluster_has_no_worker_where_that_is_declared() {
    for (follows, role, is_tainted) in [
        (false, "worker", true),
        (false, "infra", true),
        (true, "worker", true),
        (true, "infra", false),
    ] {
        let (pillar, grains) = pillar(follows, role);
        let compiled = sure(with(&pillar, &grains, |i| {
            compile::step(i, &["halite.base.nodes".to_owned()])
        }));
        let taints = &chunk(&compiled, "kubernetes.node", "node-bootstrap-1").args["taints"];
        let wanted = &pillar["halite"]["nodes"]["bootstrap-1"]["taints"];
        let none = json!([]);
        let wanted = if is_tainted { wanted } else { &none };
        assert_eq!(taints, wanted, "{follows} {role}");
    }
}

/// Before it drains, the removal of the last worker sets the taints that the highstate sets
/// afterwards, on no other node.
#[test]
fn control_planes_take_the_pods_of_the_last_worker() {
    let (pillar, grains) = pillar(true, "worker");
    let compiled = sure(with(&pillar, &grains, |i| {
        compile::step(i, &["halite.leave.last_worker".to_owned()])
    }));
    let node = chunk(&compiled, "kubernetes.node", "untainted-bootstrap-1");
    assert_eq!(node.args["object"], "bootstrap-1");
    assert_eq!(node.args["taints"], json!([]));
    let chunks = &compiled.low.chunks;
    let nodes = chunks
        .iter()
        .filter(|chunk| chunk.state == "kubernetes" && chunk.fun == "node");
    assert_eq!(nodes.count(), 1);
    // Labels and their record stay unchanged.
    assert!(!node.args.contains_key("labels") && !node.args.contains_key("record"));
}
