//! Hosts that leave the cluster of three control planes and come back: a worker that is drained and
//! removed, and a control plane that is destroyed and replaced.

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::wait;
use halite_upstream::versions::NEWEST;
use serde_json::{Value, json};

use super::cancelled;
use super::last_worker;
use super::losses::{GAP, VIP, at_the_vip};
use super::stalls::waited;
use super::taints::lasting;
use super::touched::Since;
use super::{BACK, is_complete, same_content};
use crate::bare::{is_bare, wait_until_bare};
use crate::checks::nothing_to_do;
use crate::interrupted::Running;
use crate::test::Counts;
use crate::{firewall, guide, health};

/// The master's host.
pub(super) const MASTER: [&str; 1] = ["cp-1"];
/// A label that the operator declares for a host.
const LABEL: &str = "example.com/kept";
/// The namespace of the pods that are evicted.
const NAMESPACE: &str = "leaving";

/// A drain's output about the pod that stays: its name, its owner, and the budget with its numbers.
const HELD: [&str; 3] = [
    "leaving/held-",
    "(Deployment held)",
    "the PodDisruptionBudget leaving/none-may-go holds it (1 healthy, 1 required)",
];
/// The operator's options while it waits.
const HELPS: [&str; 2] = [
    "scale up the owner or change the budget",
    "kubectl delete pod",
];

/// A Deployment with one pod on that host, and a budget that allows no disruption.
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

/// Runs `ctl node` on the first host; a failure is an error with all its output.
fn ctl_node(cluster: &Cluster, words: &[&str]) -> Result<String> {
    cluster.bootstrap.run(&[&["ctl", "node"], words].concat())
}

/// A budget blocks a drain, which names it, in a line while it waits and at its end; when the
/// budget is removed the drain continues, and after an uncordon the node takes pods again.
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
    // Until then the server reports no numbers.
    let counted = [
        "wait",
        "--for=jsonpath={.status.currentHealthy}=1",
        "pdb/none-may-go",
        "--timeout=120s",
        "-n",
        NAMESPACE,
    ];
    cluster.kubectl(&counted)?;
    let drain = ["ctl", "node", "drain", name, "--timeout", "5s"];
    let output = cluster.bootstrap.output(&drain)?;
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    ensure!(!output.status.success(), "the budget held nothing: {text}");
    for part in HELD {
        ensure!(text.contains(part), "{part} is not in: {text}");
    }
    let drain = ["ctl", "node", "drain", name, "--delete-emptydir-data"];
    let mut running = Running::start(&cluster.bootstrap, &drain)?;
    let [pod, _, budget, ..] = HELD;
    let line = running.wait_for_line(&["waiting for ", "until the pods of ", pod, budget]);
    // As the line suggests. Without the budget the command ends in any case.
    cluster.kubectl(&["delete", "pdb", "none-may-go", "-n", NAMESPACE])?;
    let line = line?;
    println!("  {line}");
    let seconds = waited(&line)?;
    ensure!(seconds >= 10, "it came after {seconds} s: {line}");
    for part in HELD.into_iter().chain(HELPS) {
        ensure!(line.contains(part), "{part} is not in: {line}");
    }
    let (status, said) = running.ended(|| Ok(()))?;
    ensure!(
        status.success() && said.contains(&format!("node/{name} drained")),
        "the drain did not continue: {status}: {said}"
    );
    // The only node for it is unschedulable.
    let pods = ["get", "pods", "-n", NAMESPACE, "-o", "json"];
    let pods: Value = serde_json::from_str(&cluster.kubectl(&pods)?)?;
    let mut pods = pods["items"].as_array().into_iter().flatten();
    ensure!(
        pods.all(|pod| pod["spec"]["nodeName"].is_null()),
        "{pods:?}"
    );
    ctl_node(cluster, &["uncordon", name])?;
    cluster.kubectl(&rollout)?;
    // With the budget again, a removal stalls. The test after this one runs the same command,
    // without it.
    cluster.kubectl(&["apply", "-f", "/root/held.json"])?;
    cancelled::removal(cluster)?;
    cluster.kubectl(&["delete", "namespace", NAMESPACE])?;
    Ok(Counts {
        passed: 2,
        failed: 0,
    })
}

/// A removed worker has nothing of Halite, the others have forgotten it, and it can be added again.
/// At no moment is a port open that the roles do not open, and on the others the addition changes
/// only its name and its entries in sets of addresses. It is the only worker: where that is
/// declared, the control planes take its pods.
pub(super) fn removed(cluster: &Cluster) -> Result<Counts> {
    let moved = || last_worker::declared(cluster, || leaves_and_returns(cluster));
    let name = cluster.worker.spec.name.as_str();
    firewall::during(cluster, VIP, &MASTER, &[name], moved)?;
    Ok(Counts {
        passed: 4,
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
    last_worker::control_planes_have_its_pods(cluster)?;
    nothing_to_do(&cluster.bootstrap)?;
    let unknown = cluster
        .bootstrap
        .output(&["ctl", "node", "remove", name, "--yes"])?;
    ensure!(!unknown.status.success(), "{name} was removed twice");
    let since = Since::now(&cluster.bootstrap)?;
    cluster.join(&[name])?;
    since.added_only(cluster, worker)?;
    wait::until("the worker to be back", BACK, || is_complete(cluster))?;
    last_worker::control_planes_keep_its_pods(cluster)
}

/// Does something while a node has a label that is declared in its document.
fn labelled(cluster: &Cluster, name: &str, act: impl FnOnce() -> Result<()>) -> Result<()> {
    let first = &cluster.bootstrap;
    let file = first.file(&format!("/etc/halite/nodes/{name}.yaml"));
    let line = format!("labels: {{{LABEL}: \"yes\"}}\n");
    let text = std::fs::read_to_string(&file)?;
    std::fs::write(
        &file,
        text.replacen("\nroles:", &format!("\n{line}roles:"), 1),
    )?;
    let outcome = first
        .run(&["ctl", "highstate", "master"])
        .and_then(|_| act());
    // Also after a failure: the tests after this one declare the node without it.
    let text = std::fs::read_to_string(&file)?;
    std::fs::write(&file, text.replace(&line, ""))?;
    first.run(&["ctl", "highstate", "master"])?;
    outcome?;
    // Its kubelet has the label among its flags.
    first.run(&["ctl", "highstate", name]).map(drop)
}

/// The roles, labels and taints of a node.
fn declared(cluster: &Cluster, name: &str) -> Result<(String, Value, Value)> {
    let roles = format!("grep '^roles:' /etc/halite/nodes/{name}.yaml");
    let node = cluster.kubectl(&["get", "node", name, "-o", "json"])?;
    let node: Value = serde_json::from_str(&node)?;
    Ok((
        cluster.bootstrap.sh(&roles)?,
        node["metadata"]["labels"].clone(),
        json!(lasting(&node["spec"]["taints"])),
    ))
}

/// A control plane whose disks are lost is replaced by one command while a client writes, and the
/// cluster recovers its previous state. At no moment is a port open that the roles do not open.
pub(super) fn replaced(cluster: &Cluster) -> Result<Counts> {
    let planes = cluster.control_planes();
    let lost = planes.get(1).context("no second control plane")?;
    let name = lost.spec.name.as_str();
    // A living host is not dead, and without the cluster's name nothing may be lost.
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
    wait::until("all hosts to serve again", BACK, || is_complete(cluster))?;
    labelled(cluster, name, || {
        firewall::during(cluster, VIP, &MASTER, &[name], || {
            let replaced = || replaced_as_it_was(cluster, name);
            let measured = at_the_vip(cluster, &cluster.bootstrap, "replaced", replaced)?;
            measured.check("a control plane is destroyed and replaced", GAP)
        })
    })?;
    same_content(cluster)?;
    Ok(Counts {
        passed: 2,
        failed: 0,
    })
}

/// Destroys a host, replaces it, and checks that the new one has the old one's declaration.
fn replaced_as_it_was(cluster: &Cluster, name: &str) -> Result<()> {
    let before = declared(cluster, name)?;
    ensure!(before.1[LABEL] == "yes", "{name} has no label: {before:?}");
    cluster.lab.power_off(&[name.to_owned()], true)?;
    // A host that was there a moment ago may not be replaced.
    wait_until_lost(cluster, name)?;
    let heading = "## A control plane is lost";
    let printed = guide::replace(cluster, &cluster.bootstrap, heading, name)?;
    println!(
        "  replace: the command is printed after {:.1} s",
        printed.as_secs_f64()
    );
    wait::until("the new host to serve", BACK, || is_complete(cluster))?;
    wait::until("the node to be restored", BACK, || {
        let now = declared(cluster, name)?;
        ensure!(now == before, "{name} was {before:?}, and is {now:?}");
        Ok(())
    })
}

/// Nothing of Halite is left on the host, and the cluster has forgotten it.
pub(super) fn has_gone(cluster: &Cluster, name: &str) -> Result<()> {
    has_gone_as_seen_on(cluster, &cluster.bootstrap, name)
}

/// The same while another host has the master, which is queried.
pub(super) fn has_gone_as_seen_on(cluster: &Cluster, master: &Host, name: &str) -> Result<()> {
    let host = cluster.host(name)?;
    wait_until_bare(host)?;
    let others = (cluster.control_planes().iter())
        .map(|plane| plane.spec.name.clone())
        .filter(|other| other != name)
        .chain(["api[.]demo".to_owned()])
        .collect::<Vec<_>>()
        .join("|");
    is_bare(host, &others)?;
    wait::until("the host to be forgotten", BACK, || {
        let nodes = cluster.kubectl_on(&master.spec.name, &["get", "nodes", "-o", "name"])?;
        ensure!(!nodes.contains(name), "{nodes}");
        let keys = master.run(&["ctl", "key", "list"])?;
        ensure!(!keys.contains(name), "{keys}");
        Ok(())
    })
}

/// Removes a host and enrols it again. Returns the command that restores its previous state.
pub(super) fn enrolled_again(cluster: &Cluster, name: &str, roles: &str) -> Result<Vec<String>> {
    ctl_node(cluster, &["remove", name, "--force", "--cluster", "demo"])?;
    has_gone(cluster, name)?;
    cluster.enrol(&[name], roles)
}

/// Waits until the master has noticed that a host is away.
pub(crate) fn wait_until_lost(cluster: &Cluster, name: &str) -> Result<()> {
    wait::until("the master to notice the loss", BACK, || {
        let status = health::status(cluster)?;
        let mut nodes = status.nodes.iter();
        let lost = nodes.any(|node| node.name == name && !node.connected);
        ensure!(lost, "{name} is connected: {:?}", status.nodes);
        Ok(())
    })
}
