//! A host that had another pod network, like one left by `kubeadm reset`.

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::Cluster;

use crate::bare::remove_worker;
use crate::cluster::{STAYING, across_nodes, ensure_servers};
use crate::health;
use crate::test::Counts;

/// A configuration before flannel's by its name, and one after it.
const FILES: [&str; 2] = [
    "/etc/cni/net.d/05-old.conflist",
    "/etc/cni/net.d/87-old.conflist",
];
const CONFIGURATION: &str = r#"{"cniVersion":"0.3.1","name":"old","plugins":[{"type":"bridge","bridge":"cni0",
"isGateway":true,"ipam":{"type":"host-local","subnet":"10.244.0.0/24"}}]}"#;
/// Interfaces with addresses of that network.
const INTERFACES: &str = "ip link add cni0 type bridge && ip addr add 10.244.0.1/24 dev cni0 && \
                          ip link add flannel.1 type vxlan id 1 dstport 8472 dev eth1";

pub(super) fn are_refused(cluster: &Cluster) -> Result<Counts> {
    let (first, worker) = (&cluster.bootstrap, &cluster.worker);
    remove_worker(cluster)?;
    std::fs::create_dir_all(worker.file("/etc/cni/net.d"))?;
    for file in FILES {
        std::fs::write(worker.file(file), CONFIGURATION)?;
    }
    worker.sh(INTERFACES)?;
    let line = cluster.declare_worker()?;
    cluster.enrol_worker(&line)?;

    let add = cluster.add_command();
    let output = first.output(&add)?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(1),
        "it was not refused: {said}"
    );
    let found = "other-pod-network: another pod network left its configuration";
    for part in [found, FILES[0], FILES[1], "cni0 flannel.1"] {
        ensure!(said.contains(part), "{part:?} is not in {said}");
    }
    worker.sh("! test -e /etc/apt/sources.list.d/halite.list")?;
    // The remedy, verbatim.
    let remedy = said
        .lines()
        .find_map(|line| line.trim().strip_prefix("run: rm "));
    let remedy = remedy.with_context(|| format!("no remedy is in {said}"))?;
    worker.sh(&format!("rm {remedy}"))?;
    ensure!(
        first.show(&add)?.success(),
        "it is still refused after the remedy"
    );
    // The present network is the cluster's.
    ensure!(first.show(&add)?.success(), "it is refused when repeated");
    ensure_servers(cluster, STAYING)?;
    across_nodes(cluster, STAYING)?;
    health::is_well(cluster)?;
    Ok(Counts::ONE)
}
