//! The running processes, and waits until they are stable.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use halite_lab::cluster::{BOOTSTRAP, CTL, Cluster, WORKER};
use halite_lab::wait;
use serde_json::Value;

use super::answer::HighstateAnswer;
use super::containers;

/// Limit for everything to be up again after a repair, including an API server and an etcd. A
/// program that lost its lease while the API server was unavailable has exited, and the kubelet
/// waits up to five minutes before it restarts it.
const LIMIT: Duration = Duration::from_secs(360);

/// Arguments that list all pods except completed ones (kubeadm's health check leaves one), which
/// are deleted after a while.
const PODS: [&str; 4] = [
    "get",
    "pods",
    "-A",
    "--field-selector=status.phase!=Succeeded",
];

/// Units that Halite manages, on either host, and its own.
const UNITS: [(&str, &str); 2] = [
    ("units", "kubelet containerd firewalld nginx keepalived"),
    (OWN, "halite-master halite-minion"),
];

/// Label of Halite's own units in [`running`].
const OWN: &str = "daemons";

/// Invocation ids of units, ids of containers and restart counts of pods: they change at a restart.
pub fn running(cluster: &Cluster) -> Result<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    for host in cluster.hosts() {
        let name = &host.spec.name;
        for (label, units) in UNITS {
            let shown = host.sh(&format!("systemctl show -p Id,InvocationID {units}"))?;
            all.insert(format!("{label} on {name}"), shown);
        }
        all.insert(
            format!("containers on {name}"),
            containers::running(host)?.join("\n"),
        );
    }
    all.insert("restarts of pods".to_owned(), restarts(cluster)?);
    Ok(all)
}

/// The name and the restart counts of each pod, as soon as the kubelet has reported all of them:
/// after a restart of an API server or an etcd, it first creates the object of its static pod
/// again.
fn restarts(cluster: &Cluster) -> Result<String> {
    let counts = "jsonpath={range .items[*]}{.metadata.name} {.status.containerStatuses[*].restartCount}{\"\\n\"}{end}";
    wait::until("the status of all pods", LIMIT, || {
        let all = cluster.kubectl(&[&PODS, ["-o", counts].as_slice()].concat())?;
        let without = all.lines().find(|line| line.ends_with(' '));
        ensure!(without.is_none(), "no status of {without:?}");
        Ok(all)
    })
}

/// The same as [`running`], without Halite's own daemons, for tests that replace these.
pub fn workload(cluster: &Cluster) -> Result<BTreeMap<String, String>> {
    let mut all = running(cluster)?;
    all.retain(|label, _| !label.starts_with(OWN));
    Ok(all)
}

/// Fails if anything was restarted since.
pub fn still(cluster: &Cluster, before: &BTreeMap<String, String>) -> Result<()> {
    let after = running(cluster)?;
    for (label, was) in before {
        let is = after.get(label).map_or("", String::as_str);
        ensure!(
            is == was,
            "something was restarted: {label}:\nwas {was}\nis {is}\nlast ends of containers:\n{}",
            ends(cluster)
        );
    }
    Ok(())
}

/// The last end of each container that has ended before, for messages: a program that exited by
/// itself has another reason than one that was stopped.
fn ends(cluster: &Cluster) -> String {
    let path = "jsonpath={range .items[*]}{.metadata.name} {.status.containerStatuses[*].lastState.terminated}{\"\\n\"}{end}";
    match cluster.kubectl(&[&PODS, ["-o", path].as_slice()].concat()) {
        Ok(text) => text
            .lines()
            .filter(|line| line.contains("exitCode"))
            .map(|line| format!("{line}\n"))
            .collect(),
        Err(error) => format!("{error:#}"),
    }
}

/// The invocation ids of Halite's own daemons, by `host unit`.
pub fn daemons(cluster: &Cluster) -> Result<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    for (host, unit) in [
        (&cluster.bootstrap, "halite-master"),
        (&cluster.bootstrap, "halite-minion"),
        (&cluster.worker, "halite-minion"),
    ] {
        let id = host.run(&["systemctl", "show", "-p", "InvocationID", "--value", unit])?;
        all.insert(format!("{} {unit}", host.spec.name), id);
    }
    Ok(all)
}

/// Waits until systemd has done the restarts of daemons that `answer` left to it, and until all
/// daemons answer.
pub fn daemons_restarted(
    cluster: &Cluster,
    before: &BTreeMap<String, String>,
    answer: &HighstateAnswer,
) -> Result<()> {
    let restarted = |label: &str| {
        let (host, unit) = label.split_once(' ').unwrap_or_default();
        answer.changed.iter().any(|tag| {
            tag.starts_with(&format!("{host}: cmd.")) && tag.ends_with(&format!("[{unit}-restart]"))
        })
    };
    wait::until("restarted daemons", Duration::from_secs(60), || {
        let now = daemons(cluster)?;
        let same: Vec<&String> = before
            .iter()
            .filter(|(label, id)| restarted(label) && now.get(*label) == Some(id))
            .map(|(l, _)| l)
            .collect();
        if same.is_empty() {
            Ok(())
        } else {
            Err(anyhow!("not restarted yet: {same:?}"))
        }
    })?;
    answering(cluster)
}

/// Waits until master and minions answer.
pub fn answering(cluster: &Cluster) -> Result<()> {
    wait::until("master and minions to answer", LIMIT, || {
        cluster.bootstrap.run(&[CTL, "ping", "*"]).map(drop)
    })
}

/// Waits until nodes and pods are Ready, static pods equal their files, and no leftover container
/// runs.
pub fn settled(cluster: &Cluster, pods_before: usize) -> Result<()> {
    wait::until("the cluster to settle", LIMIT, || {
        look(cluster, pods_before)
    })
}

/// The number of pods.
pub fn pods(cluster: &Cluster) -> Result<usize> {
    Ok(items(&cluster.kubectl(&[&PODS, ["-o", "json"].as_slice()].concat())?)?.len())
}

fn items(text: &str) -> Result<Vec<Value>> {
    let list: Value = serde_json::from_str(text).context("kubectl did not print JSON")?;
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    conditions
        .iter()
        .any(|c| c["type"] == "Ready" && c["status"] == "True")
}

fn look(cluster: &Cluster, pods_before: usize) -> Result<()> {
    for node in items(&cluster.kubectl(&["get", "nodes", "-o", "json"])?)? {
        ensure!(is_ready(&node), "{} is not Ready", node["metadata"]["name"]);
    }
    let pods = items(&cluster.kubectl(&[&PODS, ["-o", "json"].as_slice()].concat())?)?;
    for pod in &pods {
        let leaving = !pod["metadata"]["deletionTimestamp"].is_null();
        ensure!(
            is_ready(pod) && !leaving,
            "{} is not Ready, or leaving",
            pod["metadata"]["name"]
        );
    }
    ensure!(
        pods.len() == pods_before,
        "{} pods instead of {pods_before}",
        pods.len()
    );
    for (host, name) in [(&cluster.bootstrap, BOOTSTRAP), (&cluster.worker, WORKER)] {
        let here = pods.iter().filter(|pod| pod["spec"]["nodeName"] == name);
        containers::are_of_pods(host, &here.collect::<Vec<_>>())?;
    }
    Ok(())
}
