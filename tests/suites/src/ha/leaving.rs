//! Hosts that leave the cluster of three control planes and come back: a worker that is drained and
//! removed, and a control plane that is destroyed and replaced.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::wait;
use halite_upstream::versions::NEWEST;
use serde_json::{Value, json};

use super::losses::VIP;
use super::{BACK, is_complete, same_content};
use crate::bare::{is_bare, wait_until_bare};
use crate::test::Counts;
use crate::{firewall, health};

/// Limit for `ctl node replace` to print the command for the new host: three times the target.
const PRINTED: Duration = Duration::from_secs(30);
/// The namespace of the pods that are evicted.
const NAMESPACE: &str = "leaving";

/// A Deployment with one pod on that host, and a budget that allows none to be missing.
fn held(host: &Host) -> Value {
    let labels = json!({"app": "held"});
    let image = format!("registry.k8s.io/pause:{}", NEWEST.pause);
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "held", "namespace": NAMESPACE},
            "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "nodeSelector": {"kubernetes.io/hostname": host.spec.name},
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{"name": "it", "image": image}]}}}},
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": "none-may-go", "namespace": NAMESPACE},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}}},
    ]})
}

/// Runs `ctl node` on the first host; a failure is an error with all that it said.
fn ctl_node(cluster: &Cluster, words: &[&str]) -> Result<String> {
    cluster.bootstrap.run(&[&["ctl", "node"], words].concat())
}

/// A budget holds a drain, which names it; without the budget the node is drained, and uncordoned
/// it takes pods again.
pub(super) fn drained(cluster: &Cluster) -> Result<Counts> {
    let worker = &cluster.worker;
    let name = worker.spec.name.as_str();
    let file = cluster.bootstrap.file("/root/held.json");
    std::fs::write(&file, held(worker).to_string())?;
    cluster.kubectl(&["apply", "-f", "/root/held.json"])?;
    let rollout = [
        "rollout",
        "status",
        "deployment/held",
        "--timeout=120s",
        "-n",
        NAMESPACE,
    ];
    cluster.kubectl(&rollout)?;
    let drain = ["ctl", "node", "drain", name, "--timeout", "10s"];
    let output = cluster.bootstrap.output(&drain)?;
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    ensure!(!output.status.success(), "the budget held nothing: {text}");
    for part in ["leaving/held-", "Deployment held", "leaving/none-may-go"] {
        ensure!(text.contains(part), "{part} is not in: {text}");
    }
    cluster.kubectl(&["delete", "pdb", "none-may-go", "-n", NAMESPACE])?;
    ctl_node(cluster, &["drain", name, "--delete-emptydir-data"])?;
    // Its only place takes no pods.
    let pods = ["get", "pods", "-n", NAMESPACE, "-o", "json"];
    let pods: Value = serde_json::from_str(&cluster.kubectl(&pods)?)?;
    let mut pods = pods["items"].as_array().into_iter().flatten();
    ensure!(
        pods.all(|pod| pod["spec"]["nodeName"].is_null()),
        "{pods:?}"
    );
    ctl_node(cluster, &["uncordon", name])?;
    cluster.kubectl(&rollout)?;
    cluster.kubectl(&["delete", "namespace", NAMESPACE])?;
    Ok(Counts::ONE)
}

/// A removed worker has nothing of Halite, the others have forgotten it, and it can be added again.
/// At no moment of it a port is open that the roles do not open.
pub(super) fn removed(cluster: &Cluster) -> Result<Counts> {
    firewall::during(cluster, VIP, || leaves_and_returns(cluster))?;
    Ok(Counts {
        passed: 2,
        failed: 0,
    })
}

fn leaves_and_returns(cluster: &Cluster) -> Result<()> {
    let worker = &cluster.worker;
    let name = worker.spec.name.as_str();
    ctl_node(
        cluster,
        &["remove", name, "--yes", "--delete-emptydir-data"],
    )?;
    // The minion removes itself when its last return has been delivered.
    wait_until_bare(worker)?;
    is_bare(worker, "cp-[123]|api[.]demo")?;
    let nodes = cluster.kubectl(&["get", "nodes", "-o", "name"])?;
    ensure!(!nodes.contains(name), "{nodes}");
    for host in cluster.control_planes() {
        let hosts = std::fs::read_to_string(host.file("/etc/hosts"))?;
        ensure!(!hosts.contains(name), "{}: {hosts}", host.spec.name);
        let sets = host.run(&["firewall-cmd", "--ipset=halite-nodes", "--get-entries"])?;
        let address = worker.control_plane_address();
        ensure!(!sets.lines().any(|line| line == address), "{sets}");
    }
    let unknown = cluster
        .bootstrap
        .output(&["ctl", "node", "remove", name, "--yes"])?;
    ensure!(!unknown.status.success(), "{name} was removed twice");
    cluster.join(&[name])?;
    wait::until("the worker to be back", BACK, || is_complete(cluster))
}

/// A control plane whose disks are gone is replaced by one command, and the cluster is as it was.
pub(super) fn replaced(cluster: &Cluster) -> Result<Counts> {
    let planes = cluster.control_planes();
    let lost = planes.get(1).context("no second control plane")?;
    let name = lost.spec.name.as_str();
    // Alive it is not dead, and without the cluster's name nothing is lost.
    for words in [
        &["replace", name, "--force", "--cluster", "demo"][..],
        &["remove", name, "--yes"],
        &[
            "remove",
            &cluster.bootstrap.spec.name,
            "--force",
            "--cluster",
            "demo",
        ],
    ] {
        let output = cluster
            .bootstrap
            .output(&[&["ctl", "node"], words].concat())?;
        ensure!(
            !output.status.success(),
            "ctl node {words:?} was not refused"
        );
    }
    wait::until("all hosts to serve as before", BACK, || {
        is_complete(cluster)
    })?;
    cluster.lab.power_off(&[name.to_owned()], true)?;
    // A host that was there a moment ago may not be replaced.
    wait_until_lost(cluster, name)?;
    let printed = cluster.replace(name)?;
    println!(
        "  replace: the command is printed after {:.1} s",
        printed.as_secs_f64()
    );
    ensure!(
        printed <= PRINTED,
        "the command was printed after {printed:?}"
    );
    wait::until("the new host to serve", BACK, || is_complete(cluster))?;
    same_content(cluster)?;
    Ok(Counts::ONE)
}

/// Waits until the master has noticed that a host is away.
pub(super) fn wait_until_lost(cluster: &Cluster, name: &str) -> Result<()> {
    wait::until("the master to notice the loss", BACK, || {
        let status = health::status(cluster)?;
        let mut nodes = status["nodes"].as_array().into_iter().flatten();
        let lost = nodes.any(|node| node["name"] == name && node["connected"] == false);
        ensure!(lost, "{name} is connected: {}", status["nodes"]);
        Ok(())
    })
}
