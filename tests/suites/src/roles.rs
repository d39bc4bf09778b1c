//! A worker that becomes a control plane with a member of etcd, and a worker again, while a client writes.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::{CTL, Cluster, WORKER};
use halite_lab::wait;
use serde_json::Value;

use crate::checks::refused;
use crate::cluster::{STAYING, ensure_servers};
use crate::ha::while_written;
use crate::test::{Counts, Test};
use crate::vip;

pub(super) const FULL: &[Test<Cluster>] = &[Test {
    name: "roles: a worker becomes a control plane while a client writes, and a worker again",
    run: there_and_back,
}];

/// Limit of the gap between two writes: three times the aim for a host that is lost.
const GAP: Duration = Duration::from_secs(15);
/// Limit for the host to have nothing to do: a kubelet may renew its certificate first.
const QUIET: Duration = Duration::from_secs(240);

const PLANE: &str = "control-plane,etcd,worker";
const LABEL: &str = "node-role.kubernetes.io/control-plane";

/// What a worker has nothing of.
const LEFT: &[&str] = &[
    "! ls -A /etc/kubernetes/manifests | grep .",
    "! pgrep -x 'kube-apiserver|kube-controller|kube-scheduler|etcd|keepalived'",
    "! find /etc/kubernetes /etc/halite -name '*.key' ! -path '/etc/halite/minion/*' | grep -E 'ca.key|sa.key|etcd|operator|apiserver'",
    "! ls /etc/kubernetes | grep -E 'admin.conf|manager.conf|scheduler.conf'",
    "! test -e /var/lib/etcd/member && ! test -e /var/lib/halite/etcd-member.json && ls -d /var/lib/etcd/member.removed-*",
    "! test -e /root/.kube/config && ! test -e /etc/halite/operator && ! test -e /etc/halite/masters",
    "! test -e /var/lib/halite/master && ! systemctl --quiet is-active halite-master",
    "! test -e /etc/keepalived/check-apiserver && ! systemctl --quiet is-enabled keepalived",
    "! ss -Hltn | grep -E ':(6443|2379|2380|2381|4550|10257|10259) '",
];

fn node(cluster: &Cluster) -> Result<Value> {
    let text = cluster.kubectl(&["get", "node", WORKER, "-o", "json"])?;
    Ok(serde_json::from_str(&text)?)
}

/// What the firewall of the worker lets in and out.
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
    let gap = record.longest_gap();
    println!(
        "  {} writes acknowledged, longest gap {:.1} s",
        record.acknowledged().len(),
        gap.length.as_secs_f64()
    );
    ensure!(
        gap.length <= GAP,
        "a gap of {:?}: {:?}",
        gap.length,
        gap.errors
    );

    for check in LEFT {
        worker
            .sh(check)
            .with_context(|| format!("on {WORKER}: {check}"))?;
    }
    let now = firewall(cluster)?;
    let differ: Vec<&String> = now.symmetric_difference(&open).collect();
    ensure!(
        differ.is_empty(),
        "the firewall is not as it was: {differ:#?}"
    );
    worker.run(&[
        "grep",
        "-q",
        "server: https://api.demo.internal:6443$",
        "/etc/kubernetes/kubelet.conf",
    ])?;
    let status = first.run(&[CTL, "etcd", "status"])?;
    ensure!(status.starts_with("1 member, none may fail\n"), "{status}");
    let now = node(cluster)?;
    ensure!(now["metadata"]["labels"][LABEL].is_null(), "{now}");
    ensure!(
        (now["metadata"]["uid"].clone(), pod(cluster)?) == before,
        "the node or its pod was made again: {now}"
    );
    wait::until("a highstate with nothing to do", QUIET, || {
        let planned = first.output(&[CTL, "highstate", "--test", "--exit-code"])?;
        ensure!(
            planned.status.success(),
            "{}",
            String::from_utf8_lossy(&planned.stdout)
        );
        Ok(())
    })
}

/// Two members vote, the worker's own API server serves its kubelet, and its node takes pods.
fn has_a_control_plane(cluster: &Cluster) -> Result<()> {
    let status = cluster.bootstrap.run(&[CTL, "etcd", "status"])?;
    ensure!(status.starts_with("2 members, none may fail\n"), "{status}");
    let own = format!("https://{}:6443", cluster.worker.control_plane_address());
    let ask = format!(
        "curl -sS --fail --max-time 10 --noproxy '*' --cacert /etc/kubernetes/pki/ca.crt {own}/readyz && \
         grep -q 'server: {own}$' /etc/kubernetes/kubelet.conf"
    );
    cluster.worker.sh(&ask)?;
    let node = node(cluster)?;
    ensure!(
        !node["metadata"]["labels"][LABEL].is_null() && node["spec"]["taints"].is_null(),
        "{node}"
    );
    Ok(())
}
