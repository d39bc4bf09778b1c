//! The only worker of a cluster leaves and comes back, while the taint of the control planes
//! follows the workers.

use std::fs;

use anyhow::{Result, ensure};
use halite_lab::cluster::{Cluster, DOCUMENT};
use halite_lab::wait;
use halite_upstream::versions::NEWEST;
use serde_json::{Value, json};

use super::BACK;
use super::taints::lasting;

const NAMESPACE: &str = "last-worker";
/// The line of the cluster document.
const DECLARED: &str = "controlPlane: {taint: auto}\n";

/// Two pods that tolerate no taint, and a budget that lets one go if the other one is ready.
fn pods() -> Value {
    let meta = |name: &str| json!({"name": name, "namespace": NAMESPACE});
    let labels = json!({"app": "moved"});
    let image = format!("registry.k8s.io/pause:{}", NEWEST.pause);
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta("moved"),
            "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{"name": "it", "image": image}]}}}},
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta("one-by-one"),
            "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}}},
    ]})
}

/// Does something while the taint of the control planes follows the workers and two pods run. The
/// document is restored afterwards, also after a failure.
pub(super) fn declared(cluster: &Cluster, act: impl FnOnce() -> Result<()>) -> Result<()> {
    let document = cluster.bootstrap.file(DOCUMENT);
    let text = fs::read_to_string(&document)?;
    fs::write(
        cluster.bootstrap.file("/root/moved.json"),
        pods().to_string(),
    )?;
    fs::write(&document, format!("{text}\n{DECLARED}"))?;
    let outcome = cluster
        .kubectl(&["apply", "-f", "/root/moved.json"])
        .and_then(|_| all_ready(cluster))
        .and_then(|()| act());
    fs::write(&document, text)?;
    let gone = ["delete", "namespace", NAMESPACE, "--ignore-not-found"];
    let cleaned = cluster.kubectl(&gone);
    outcome?;
    cleaned.map(drop)
}

fn all_ready(cluster: &Cluster) -> Result<()> {
    let rollout = [
        "rollout",
        "status",
        "deployment/moved",
        "--timeout=120s",
        "-n",
    ];
    cluster
        .kubectl(&[&rollout[..], &[NAMESPACE]].concat())
        .map(drop)
}

/// Without the worker no control plane has a taint, and the pods run there.
pub(super) fn control_planes_have_its_pods(cluster: &Cluster) -> Result<()> {
    have_taints(cluster, 0)?;
    all_ready(cluster)?;
    run_on_control_planes(cluster)
}

/// With the worker each control plane has its taint again, and the pods stay.
pub(super) fn control_planes_keep_its_pods(cluster: &Cluster) -> Result<()> {
    have_taints(cluster, 1)?;
    run_on_control_planes(cluster)
}

fn run_on_control_planes(cluster: &Cluster) -> Result<()> {
    let pods = cluster.kubectl(&["get", "pods", "-n", NAMESPACE, "-o", "json"])?;
    let pods: Value = serde_json::from_str(&pods)?;
    let pods = pods["items"].as_array().into_iter().flatten();
    let pods = pods.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    let hosts: Vec<&str> = pods
        .filter_map(|pod| pod["spec"]["nodeName"].as_str())
        .collect();
    ensure!(
        hosts.len() == 2 && hosts.iter().all(|name| name.starts_with("cp-")),
        "the pods run on {hosts:?}"
    );
    Ok(())
}

/// Each control plane has this many taints that are not Kubernetes' own.
fn have_taints(cluster: &Cluster, count: usize) -> Result<()> {
    wait::until("the taints of the control planes", BACK, || {
        for plane in cluster.control_planes() {
            let name = plane.spec.name.as_str();
            let node = cluster.kubectl(&["get", "node", name, "-o", "json"])?;
            let node: Value = serde_json::from_str(&node)?;
            let taints = lasting(&node["spec"]["taints"]);
            ensure!(taints.len() == count, "{name} has the taints {taints:?}");
        }
        Ok(())
    })
}
