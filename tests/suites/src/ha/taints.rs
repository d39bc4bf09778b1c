//! Taints of nodes.

use serde_json::Value;

/// The taints of a node without those that Kubernetes sets while it is not ready, and removes a
/// little later.
pub(super) fn lasting(taints: &Value) -> Vec<&Value> {
    let all = taints.as_array().into_iter().flatten();
    let passing = |taint: &Value| {
        let key = taint["key"].as_str().unwrap_or_default();
        key.starts_with("node.kubernetes.io/") && key != "node.kubernetes.io/unschedulable"
    };
    all.filter(|taint| !passing(taint)).collect()
}
