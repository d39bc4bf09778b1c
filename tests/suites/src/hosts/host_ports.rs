//! Host ports of running pods while firewalld changes.

use anyhow::{Result, ensure};
use halite_lab::cluster::{CTL, Cluster, WORKER};
use halite_lab::wait;
use halite_upstream::LAB_POD;
use serde_json::json;

use crate::cluster::{PODS, PORT, delete};
use crate::guide::{no_own_states, own_states};
use crate::test::Counts;

/// The pod, and its port on the host.
const POD: &str = "at-a-host-port";
const HOST_PORT: u16 = 8081;
/// Its manifest on the first host.
const FILE: &str = "/root/at-a-host-port.json";
/// A zone of the operator, for which the minion reloads firewalld.
const ZONE: &str = "halite-test";
const OWN: &str =
    "own-zone:\n  firewalld.zone:\n    - name: halite-test\n    - ports: [8443/tcp]\n";

pub(super) fn stay(cluster: &Cluster) -> Result<Counts> {
    let (first, worker) = (&cluster.bootstrap, &cluster.worker);
    let container = json!({"name": "server", "image": LAB_POD, "args": ["serve", format!("--http-port={PORT}")],
        "ports": [{"containerPort": PORT, "hostPort": HOST_PORT}]});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": POD},
        "spec": {"nodeName": WORKER, "terminationGracePeriodSeconds": 1, "containers": [container]}});
    std::fs::write(first.file(FILE), pod.to_string())?;
    cluster.kubectl(&["apply", "-f", FILE])?;
    cluster.wait_for_pods(PODS)?;
    reached(cluster).map_err(|error| error.context("before firewalld changes"))?;

    worker.run(&["firewall-cmd", "--reload"])?;
    let reloaded = reached(cluster).map_err(|error| error.context("after a reload"));
    own_states(cluster, OWN)?;
    let applied = first.run(&[CTL, "highstate", WORKER]);
    no_own_states(cluster)?;
    let zone = worker.run(&["firewall-cmd", "--get-zones"])?;
    let outcome = reloaded.and(applied.map(drop)).and_then(|()| {
        ensure!(zone.contains(ZONE), "the zone was not made: {zone}");
        reached(cluster).map_err(|error| error.context("after a new zone"))
    });
    worker.sh(&format!(
        "firewall-cmd --permanent --delete-zone={ZONE} && firewall-cmd --reload"
    ))?;
    delete(cluster, &["pod", POD])?;
    outcome?;
    // The pod's rules are removed with it.
    wait::until("the rules of the pod to be gone", PODS, || {
        worker
            .sh(&format!("! nft list ruleset | grep -w {HOST_PORT}"))
            .map(drop)
    })?;
    Ok(Counts::ONE)
}

/// The other host reaches the pod at the worker's port, with a new connection.
fn reached(cluster: &Cluster) -> Result<()> {
    let address = cluster.worker.control_plane_address();
    let connect = format!("timeout 2 bash -c '</dev/tcp/{address}/{HOST_PORT}'");
    // A packet can get lost, but missing rules do not come back.
    let again = format!("{connect} || {connect} || {connect}");
    cluster.bootstrap.sh(&again).map(drop)
}
