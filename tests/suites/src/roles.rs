//! A worker that becomes a control plane with a member of etcd, and a worker again, while a client
//! writes.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use halite_lab::cluster::{CTL, Cluster, WORKER};
use halite_lab::wait;
use serde_json::Value;

use crate::bare::has_no_control_plane;
use crate::checks::{nothing_to_do, refused};
use crate::cluster::{STAYING, ensure_servers};
use crate::ha::while_written;
use crate::test::{Counts, Test};
use crate::{etcd, vip};

/// An additional test of `--full`.
pub(super) const TESTS: &[Test<Cluster>] = &[Test {
    name: "roles: a worker becomes a control plane while a client writes, and a worker again",
    run: there_and_back,
}];

/// Limit of the gap between two writes, the same as in the suite `ha`. An election of etcd or a
/// request without an answer takes less on any machine.
const GAP: Duration = Duration::from_secs(30);

const PLANE: &str = "control-plane,etcd,worker";
const LABEL: &str = "node-role.kubernetes.io/control-plane";

fn node(cluster: &Cluster) -> Result<Value> {
    let text = cluster.kubectl(&["get", "node", WORKER, "-o", "json"])?;
    Ok(serde_json::from_str(&text)?)
}

/// The traffic that the firewall of the worker lets in and out.
fn firewall(cluster: &Cluster) -> Result<BTreeSet<String>> {
    let text = (cluster.worker).run(&["firewall-cmd", "--list-all-policies"])?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// The pod that stays on the worker.
fn pod(cluster: &Cluster) -> Result<String> {
    let name = format!("{STAYING}-{WORKER}");
    cluster.kubectl(&["get", "pod", &name, "-o", "jsonpath={.metadata.uid}"])
}

fn there_and_back(cluster: &Cluster) -> Result<Counts> {
    vip::without_one(cluster, || changed_and_back(cluster))?;
    Ok(Counts::ONE)
}

fn changed_and_back(cluster: &Cluster) -> Result<()> {
    let (first, worker) = (&cluster.bootstrap, &cluster.worker);
    ensure_servers(cluster, STAYING)?;
    let before = (node(cluster)?["metadata"]["uid"].clone(), pod(cluster)?);
    let open = firewall(cluster)?;
    let record = while_written(cluster, first, "roles", || {
        first.run(&[CTL, "node", "roles", WORKER, PLANE])?;
        has_a_control_plane(cluster)?;
        ensure!(
            firewall(cluster)? != open,
            "nothing was opened for a control plane"
        );
        let back = [CTL, "node", "roles", WORKER, "worker"];
        refused(first, &back, &["it takes --force --cluster demo", "CAs"])?;
        has_a_control_plane(cluster)?;
        let forced = [&back[..], &["--force", "--cluster", "demo"]].concat();
        first.run(&forced).map(drop)
    })?;
    println!("  {}", record.summary());
    let gap = record.longest_gap();
    ensure!(
        gap.length <= GAP,
        "a gap of {:?}: {:?}",
        gap.length,
        gap.errors
    );

    has_no_control_plane(worker)?;
    let now = firewall(cluster)?;
    let differ: Vec<&String> = now.symmetric_difference(&open).collect();
    ensure!(differ.is_empty(), "the firewall has changed: {differ:#?}");
    etcd::status(first, "1 member, none may fail")?;
    let now = node(cluster)?;
    ensure!(now["metadata"]["labels"][LABEL].is_null(), "{now}");
    ensure!(
        (now["metadata"]["uid"].clone(), pod(cluster)?) == before,
        "the node or its pod was recreated: {now}"
    );
    nothing_to_do(first)
}

/// Two members vote, the worker's own API server serves its kubelet, and its node is schedulable.
fn has_a_control_plane(cluster: &Cluster) -> Result<()> {
    etcd::status(&cluster.bootstrap, "2 members, none may fail")?;
    let own = format!("https://{}:6443", cluster.worker.control_plane_address());
    let ask = format!(
        "curl -sS --fail --max-time 10 --noproxy '*' --cacert /etc/kubernetes/pki/ca.crt {own}/readyz && \
         grep -q 'server: {own}$' /etc/kubernetes/kubelet.conf"
    );
    // It is ready while etcd answers it, within the same time.
    wait::until("the worker's API server to serve", etcd::ANSWER, || {
        cluster.worker.sh(&ask).map(drop)
    })?;
    let node = node(cluster)?;
    ensure!(
        !node["metadata"]["labels"][LABEL].is_null() && node["spec"]["taints"].is_null(),
        "{node}"
    );
    Ok(())
}
