//! Pods that come back to the cordoned node.

use serde_json::json;

use super::super::drain_pods::UNSCHEDULABLE;
use super::{api, drain, pod, writes};

#[test]
fn a_pod_that_returns_to_the_cordoned_node_is_evicted_once() {
    for (toleration, returns) in [
        (json!({"operator": "Exists"}), true),
        (
            json!({"key": UNSCHEDULABLE, "operator": "Exists", "effect": "NoSchedule"}),
            true,
        ),
        (
            json!({"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}),
            false,
        ),
        (json!({"operator": "Exists", "effect": "NoExecute"}), false),
    ] {
        let api = api();
        let successors = ["web-1", "web-2"].map(|name| {
            let mut pod = pod(name, "ReplicaSet");
            pod["spec"]["tolerations"] = json!([toleration]);
            pod
        });
        *api.successors.lock().unwrap() = successors.to_vec();
        // There are several rounds.
        api.held.lock().unwrap().insert("api".into(), 2);
        let drained = drain(&api).0.unwrap();
        let evicted = writes(&api).len() - 1;
        assert_eq!(
            evicted,
            if returns { 3 } else { 5 },
            "{toleration}: {drained:?}"
        );
        let remark = drained.remark().unwrap_or_default();
        let wanted = "back on the node, because they tolerate that it is cordoned: default/web-";
        assert_eq!(remark.contains(wanted), returns, "{toleration}: {remark:?}");
    }
}
