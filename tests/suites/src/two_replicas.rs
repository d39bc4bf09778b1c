//! A workload of two replicas that may run on each host, of which one may be evicted at a time.

use std::collections::BTreeSet;
use std::fs;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_upstream::versions::NEWEST;
use serde_json::json;

/// The Deployment, its disruption budget, and the file of both.
pub(crate) const NAME: &str = "drained";
const FILE: &str = "/root/drained.json";

/// Time between two counts.
const INTERVAL: Duration = Duration::from_millis(400);
/// The least number of counts in an upgrade, which takes minutes.
const COUNTS: usize = 50;

/// Starts the workload, and waits until one replica may be evicted.
pub(crate) fn start(cluster: &Cluster) -> Result<()> {
    let labels = json!({"app": NAME});
    let image = format!("registry.k8s.io/pause:{}", NEWEST.pause);
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": NAME}, "spec": {
            "replicas": 2, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {
                // Without a key, it would also tolerate the cordon.
                "terminationGracePeriodSeconds": 1, "tolerations": [
                    {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"}],
                "containers": [{"name": "it", "image": image}],
                "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
                    "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": labels}}]}}}},
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": NAME}, "spec": {
            "minAvailable": 1, "selector": {"matchLabels": labels}}},
    ]});
    fs::write(cluster.bootstrap.file(FILE), objects.to_string())?;
    cluster.kubectl(&["apply", "-f", FILE])?;
    let rollout = ["rollout", "status", "--timeout=120s", "deployment", NAME];
    cluster.kubectl(&rollout)?;
    wait_until_allowed(cluster, 1)
}

/// Waits until so many replicas may be evicted.
fn wait_until_allowed(cluster: &Cluster, evictions: u32) -> Result<()> {
    let allowed = format!("--for=jsonpath={{.status.disruptionsAllowed}}={evictions}");
    cluster
        .kubectl(&["wait", &allowed, "--timeout=120s", "pdb", NAME])
        .map(drop)
}

/// Does something while the workload has one replica, which no drain may evict. Then it has two
/// again.
pub(crate) fn while_held<T>(cluster: &Cluster, act: impl FnOnce() -> Result<T>) -> Result<T> {
    let scaled = |replicas: &str, evictions| {
        let scale = format!("--replicas={replicas}");
        cluster.kubectl(&["scale", "deployment", NAME, &scale])?;
        wait_until_allowed(cluster, evictions)
    };
    scaled("1", 0)?;
    let done = act();
    // Also after a failure: it would hold each later drain.
    scaled("2", 1)?;
    done
}

/// Deletes the workload.
pub(crate) fn delete(cluster: &Cluster) -> Result<()> {
    cluster
        .kubectl(&["delete", "-f", FILE, "--timeout=60s"])
        .map(drop)
}

/// The names of the replicas.
pub(crate) fn names(cluster: &Cluster) -> Result<BTreeSet<String>> {
    let selector = format!("app={NAME}");
    let names = cluster.kubectl(&["get", "pods", "-l", &selector, "-o", "name"])?;
    Ok(names.lines().map(str::to_owned).collect())
}

/// Does something that takes minutes while a thread counts the replicas that are ready and stay.
///
/// # Errors
/// The action fails, or at some moment no replica was ready.
pub(crate) fn while_one_is_ready<T>(
    cluster: &Cluster,
    act: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let host = &cluster.bootstrap;
    let (alive, end) = channel::<()>();
    let (done, counts) = thread::scope(|scope| {
        let counter = scope.spawn(move || {
            let mut counts = Vec::new();
            while end.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                // While the address moves, no API server answers.
                if let Ok(count) = ready(host) {
                    counts.push(count);
                }
            }
            counts
        });
        let done = act();
        drop(alive);
        (done, counter.join())
    });
    let done = done?;
    let counts: Vec<usize> = counts.map_err(|_| anyhow!("the counter of replicas panicked"))?;
    ensure!(counts.len() >= COUNTS, "only {} counts", counts.len());
    let least = counts.iter().min().context("no count")?;
    println!(
        "  {} counts of ready replicas, the least is {least}",
        counts.len()
    );
    ensure!(*least >= 1, "no replica was ready at some moment");
    Ok(done)
}

/// The number of replicas that are ready and do not end, as the API shows them.
fn ready(host: &Host) -> Result<usize> {
    let path = "jsonpath={range .items[*]}{.metadata.deletionTimestamp}\
                {.status.conditions[?(@.type==\"Ready\")].status}{\"\\n\"}{end}";
    let selector = format!("app={NAME}");
    let limit = "--request-timeout=2s";
    let shown = host.run(&["kubectl", "get", "pods", "-l", &selector, "-o", path, limit])?;
    Ok(shown.lines().filter(|line| *line == "True").count())
}
