//! Two Kubernetes on one site: made from the older bundle, with the newer one added. What was recorded when the cluster
//! was made counts for every node that is added later, too.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::{Counts, Site, Test, cluster::nothing_left, kubeadm, repair::highstate};
use crate::{
    cluster::{self, CLUSTER, Cluster, WORKER},
    demo,
    lab::{self, Lab, host::Host},
    upstream::versions::{NEWEST, OLDER},
};

/// Its own lab: the other suites' cluster is of the newest Kubernetes.
const LAB: &str = "versions";

const TESTS: &[Test<Cluster>] = &[
    Test { name: "versions: the older Kubernetes is as its own kubeadm makes it", run: as_kubeadm },
    Test { name: "versions: an added node gets the recorded version", run: added_node },
    Test { name: "versions: nothing tried to leave", run: nothing_left },
];

pub(super) fn site() -> Site {
    Site {
        lab: LAB.to_owned(),
        made: "versions: bootstrap with the older Kubernetes",
        make,
        tests: TESTS.iter().collect(),
    }
}

/// The cluster document for the older release.
fn document() -> String {
    CLUSTER.replace(NEWEST.minor(), OLDER.minor())
}

/// Boots the hosts and makes a cluster of the older release of the first. A document that asks for another Kubernetes than
/// the bundle has is refused before.
fn make(lab: &str) -> Result<Cluster> {
    let mut progress = |line: &str| println!("  {line}");
    let newer = demo::medium(&mut progress)?;
    let older = demo::medium_of(&OLDER, &mut progress)?;
    let lab = Lab::new(lab, &lab::cache().join("base-root"))?;
    lab.down()?;
    let cluster = cluster::boot_hosts_with(lab, &older, &newer)?;
    std::fs::write(cluster.bootstrap.root().join("root/cluster.yaml"), CLUSTER)?;
    let refused = cluster.bootstrap.output(&cluster::install())?;
    let said = String::from_utf8_lossy(&refused.stderr);
    let reason = format!("has Kubernetes {}, not {}", OLDER.kubernetes, NEWEST.minor());
    ensure!(
        !refused.status.success() && said.contains("kubernetes.version: ") && said.contains(&reason),
        "a cluster document for another Kubernetes ended with {}: {said}",
        refused.status
    );
    ensure!(
        !cluster.bootstrap.root().join("etc/halite").exists(),
        "the refused bootstrap left something in /etc/halite"
    );
    cluster.bootstrap(&document())?;
    Ok(cluster)
}

fn as_kubeadm(cluster: &Cluster) -> Result<Counts> {
    kubeadm::compare(cluster, &OLDER)
}

fn added_node(cluster: &Cluster) -> Result<Counts> {
    cluster.add_worker()?;
    cluster.wait_for_pods(Duration::from_secs(120))?;
    for (name, host) in [(cluster::BOOTSTRAP, &cluster.bootstrap), (WORKER, &cluster.worker)] {
        of_release(cluster, name, host)?;
    }
    nothing_to_do(cluster)?;
    nothing_to_do(cluster)?;
    Ok(Counts::ONE)
}

/// Whether everything of Kubernetes on a host is of the recorded release.
fn of_release(cluster: &Cluster, name: &str, host: &Host) -> Result<()> {
    let node: Value = serde_json::from_str(&cluster.kubectl(&["get", "node", name, "-o", "json"])?)?;
    let kubelet = &node["status"]["nodeInfo"]["kubeletVersion"];
    ensure!(kubelet == OLDER.kubernetes, "the kubelet of {name} is {kubelet}, not {}", OLDER.kubernetes);
    let bare = OLDER.kubernetes.trim_start_matches('v');
    for package in ["kubelet", "kubeadm", "kubectl"] {
        let installed = host.run(&["dpkg-query", "-W", "-f=${Version}", package])?;
        ensure!(installed.starts_with(&format!("{bare}-")), "{name} has {package} {installed}");
    }
    let field = format!("--field-selector=spec.nodeName={name}");
    let pods: Value = serde_json::from_str(&cluster.kubectl(&["get", "pods", "-A", &field, "-o", "json"])?)?;
    let images: Vec<&str> = pods["items"]
        .as_array()
        .context("no list of pods")?
        .iter()
        .flat_map(|pod| pod["spec"]["containers"].as_array().into_iter().flatten())
        .filter_map(|container| container["image"].as_str())
        .filter(|image| image.starts_with("registry.k8s.io/kube-"))
        .collect();
    ensure!(!images.is_empty(), "no pod of Kubernetes runs on {name}");
    let others: Vec<&&str> = images.iter().filter(|image| !image.ends_with(OLDER.kubernetes)).collect();
    ensure!(others.is_empty(), "on {name} run {others:?}");
    // Not only what runs: nothing of the other release was brought to the host.
    let there = host.run(&["ctr", "-n", "k8s.io", "images", "list", "-q"])?;
    ensure!(!there.contains(NEWEST.kubernetes), "{name} has images of {}:\n{there}", NEWEST.kubernetes);
    ensure!(
        there.contains(&format!("pause:{}", OLDER.pause)),
        "{name} lacks the pause image of its release:\n{there}"
    );
    Ok(())
}

/// A highstate of every host and of the API that finds nothing to change.
fn nothing_to_do(cluster: &Cluster) -> Result<()> {
    let changed = highstate(cluster, &[])?.changed;
    ensure!(changed.is_empty(), "a highstate changed something: {changed:?}");
    Ok(())
}
