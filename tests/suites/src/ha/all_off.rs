//! All hosts lose their power at the same moment, and come back in any order: etcd, the address,
//! the workloads, and the images.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::wait;
use halite_upstream::LAB_POD;
use serde_json::{Value, json};

use super::{BACK, is_complete, losses, same_content};
use crate::guide;
use crate::registry::Pod;
use crate::test::Counts;

/// The heading of the guide's section.
const HEADING: &str = "## All hosts have lost their power";
/// The namespace of the workload.
const NAMESPACE: &str = "all-off";
/// The component whose image no worker has.
const PULLED: &str = "kube-scheduler";
/// Limit for its pull.
const PULL: Duration = Duration::from_secs(180);

/// The last host that lost its power gets it back first.
pub(super) fn in_reverse(cluster: &Cluster) -> Result<Counts> {
    let mut names = names(cluster);
    names.reverse();
    come_back(cluster, &names)
}

/// The first host gets its power back first, and the worker last.
pub(super) fn in_order(cluster: &Cluster) -> Result<Counts> {
    come_back(cluster, &names(cluster))
}

fn names(cluster: &Cluster) -> Vec<String> {
    let hosts = cluster.hosts().into_iter();
    hosts.map(|host| host.spec.name.clone()).collect()
}

/// All hosts lose their power, and get it back in that order. The previous workload runs again and
/// answers at its Service, and the worker pulls an image.
fn come_back(cluster: &Cluster, order: &[String]) -> Result<Counts> {
    let before = workload(cluster)?;
    cluster.lab.power_off(order, false)?;
    cluster.lab.power_on(order)?;
    guide::run(&cluster.bootstrap, HEADING, "ctl health")?;
    wait::until("all hosts to be back", BACK, || is_complete(cluster))?;
    losses::wait_for_one_holder(cluster)?;
    same_content(cluster)?;
    runs_again(cluster, &before)?;
    Pod::start(cluster, PULLED)?.wait_until_done(PULL)?;
    cluster.kubectl(&["delete", "namespace", NAMESPACE])?;
    Ok(Counts::ONE)
}

/// A server on the worker, behind a Service.
fn manifests(node: &str) -> Value {
    let labels = json!({"app": "server"});
    let meta = |name: &str| json!({"name": name, "namespace": NAMESPACE});
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta("server"),
            "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "nodeSelector": {"kubernetes.io/hostname": node},
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{"name": "it", "image": LAB_POD, "args": ["serve", "--http-port=8080"]}]}}}},
        {"apiVersion": "v1", "kind": "Service", "metadata": meta("server"),
            "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": 8080}]}},
    ]})
}

/// Starts the workload of the site; returns its pod.
fn workload(cluster: &Cluster) -> Result<Value> {
    let text = manifests(&cluster.worker.spec.name).to_string();
    std::fs::write(cluster.bootstrap.file("/root/all-off.json"), text)?;
    // It may exist from an earlier attempt.
    cluster.kubectl(&["delete", "namespace", NAMESPACE, "--ignore-not-found"])?;
    cluster.kubectl(&["apply", "-f", "/root/all-off.json"])?;
    wait::until("the workload to run", BACK, || pod(cluster))
}

/// The pod of the workload, once it is ready.
fn pod(cluster: &Cluster) -> Result<Value> {
    let pods = cluster.kubectl(&["get", "pods", "-n", NAMESPACE, "-o", "json"])?;
    let pods: Value = serde_json::from_str(&pods)?;
    let pod = pods["items"].as_array().and_then(|all| all.first());
    let pod = pod.context("no pod")?.clone();
    ensure!(
        is_ready(&pod),
        "the pod of the workload is not ready: {}",
        pod["status"]
    );
    Ok(pod)
}

fn is_ready(pod: &Value) -> bool {
    pod["status"]["containerStatuses"][0]["ready"] == true
}

/// Waits until the same pod runs in another container, and answers at its Service.
fn runs_again(cluster: &Cluster, before: &Value) -> Result<()> {
    let container = |pod: &Value| pod["status"]["containerStatuses"][0]["containerID"].clone();
    wait::until("the workload to run again", BACK, || {
        let now = pod(cluster)?;
        ensure!(
            now["metadata"]["uid"] == before["metadata"]["uid"],
            "another pod: {now}"
        );
        // The previous status remains until its kubelet reports.
        ensure!(
            container(&now) != container(before),
            "still the status before the power cut: {}",
            now["status"]
        );
        Ok(())
    })?;
    let path = "jsonpath={.spec.clusterIP}";
    let address = cluster.kubectl(&["get", "service", "server", "-n", NAMESPACE, "-o", path])?;
    let url = format!("http://{address}/hostname");
    wait::until("the workload to answer", BACK, || {
        let get = ["curl", "-sS", "--fail", "--max-time", "2", "--noproxy", "*"];
        cluster.bootstrap.run(&[&get[..], &[url.as_str()]].concat())
    })?;
    Ok(())
}
