//! The data of etcd is lost: the host is refused and nothing on it is changed, an etcd that is
//! started without it serves nothing, and once the data is restored everything works again.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::{BOOTSTRAP, CTL, Cluster};
use halite_lab::host::Host;
use halite_lab::wait;
use serde_json::Value;

use super::answer::highstate;
use super::one_cycle::quiet;
use super::wait_ready;
use crate::test::Counts;

/// Limit for etcd to stop, and for the status to show it.
const LIMIT: Duration = Duration::from_secs(270);

/// Limit for the kubelet to restart a pod, and the API server after some failures: it waits up to
/// five minutes, and the program needs time to start.
const BACK: Duration = Duration::from_secs(420);

const MANIFEST: &str = "/etc/kubernetes/manifests/etcd.yaml";
const ASIDE: &str = "/root/halite-test-etcd.yaml";
/// The last message of an etcd that should be a member of an existing cluster, and has no data.
const REFUSAL: &str = "cannot fetch cluster info from peer urls";
const LOGS: &str = "/var/log/pods/kube-system_etcd-*/etcd/*.log";
const LOG: &str = "ls /var/lib/etcd/member/wal/*.wal";

/// Removes the data, lets every command refuse, and restores it.
pub fn refused(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    wait_ready::answering(cluster)?;
    let pods = wait_ready::pods(cluster)?;
    wait_ready::settled(cluster, pods)?;
    host.sh(&format!("cat /var/lib/halite/etcd-member.json && {LOG}"))
        .context("a member that runs is recorded")?;
    let before = objects(cluster)?;

    stop(host)?;
    host.sh("mv /var/lib/etcd/member /var/lib/etcd/member.away")?;
    let outcome = while_lost(cluster).and_then(|()| alone(cluster));
    // Whatever failed: the tests after this one need the data.
    stop(host)?;
    host.sh(
        "cd /var/lib/etcd && test -d member.away && rm -rf member && mv -T member.away member",
    )?;
    highstate(cluster, &[BOOTSTRAP]).context("with the data restored")?;
    outcome?;

    // The kubelet has restarted the API server, and waits longer each time.
    wait::until("the API server", BACK, || {
        cluster.kubectl(&["get", "--raw", "/readyz"]).map(drop)
    })?;
    wait_ready::settled(cluster, pods)?;
    quiet(cluster).context("after the data came back")?;
    ensure!(
        objects(cluster)? == before,
        "workloads or Secrets have changed"
    );
    Ok(Counts::ONE)
}

/// Removes the manifest and waits until etcd has stopped.
fn stop(host: &Host) -> Result<()> {
    host.sh(&format!("test ! -e {MANIFEST} || mv {MANIFEST} {ASIDE}"))?;
    wait::until("etcd to stop", LIMIT, || {
        host.sh("! pgrep -x etcd").map(drop)
    })
}

fn while_lost(cluster: &Cluster) -> Result<()> {
    let host = &cluster.bootstrap;
    host.sh("echo '# damaged' >> /etc/kubernetes/pki/etcd/ca.crt")?;
    let there = state(host)?;
    for command in [
        &["highstate", BOOTSTRAP][..],
        &["highstate", BOOTSTRAP, "--test"],
    ] {
        let output = host.output(&[&[CTL], command].concat())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        ensure!(
            !output.status.success(),
            "ctl {command:?} succeeded without etcd's data: {text}"
        );
        for part in [
            "its data is gone: /var/lib/etcd contains member.away",
            "mv -T /var/lib/etcd/member.away /var/lib/etcd/member",
        ] {
            ensure!(text.contains(part), "no `{part}` in: {text}");
        }
        let now = state(host)?;
        ensure!(
            now == there,
            "ctl {command:?} changed the host:\n{there}\nis now\n{now}"
        );
    }
    wait::until("the status to show the loss", LIMIT, || {
        let output = host.output(&[CTL, "status"])?;
        let status = String::from_utf8_lossy(&output.stdout).into_owned();
        let text = format!("the etcd member on {BOOTSTRAP} has lost its data");
        if status.contains(&text) {
            Ok(())
        } else {
            Err(anyhow::Error::msg(status))
        }
    })?;
    Ok(())
}

/// Lets the kubelet start etcd without its data, as after a restart of the host: no empty etcd
/// serves.
fn alone(cluster: &Cluster) -> Result<()> {
    let host = &cluster.bootstrap;
    // A kubelet that has just stopped the same pod does not start it for minutes while the API is
    // unavailable.
    host.sh(&format!(
        "systemctl stop kubelet && cp -p {ASIDE} {MANIFEST} && systemctl start kubelet"
    ))?;
    wait::until("etcd to refuse its empty directory", BACK, || {
        host.sh(&format!("grep -l '{REFUSAL}' {LOGS}")).map(drop)
    })?;
    host.sh(&format!("! {LOG}"))
        .context("etcd has started a log without its data")?;
    ensure!(
        cluster.kubectl(&["get", "--raw", "/readyz"]).is_err(),
        "the API server is ready without etcd's data"
    );
    Ok(())
}

/// The part of the host that a highstate would repair.
fn state(host: &Host) -> Result<String> {
    host.sh(&format!(
        "ls /var/lib/etcd; sha256sum /etc/kubernetes/pki/etcd/ca.crt; ls {MANIFEST} 2>&1 || true"
    ))
}

/// The names of workloads and Secrets.
fn objects(cluster: &Cluster) -> Result<Vec<String>> {
    let list = cluster.kubectl(&["get", "deployments,daemonsets,secrets", "-A", "-o", "json"])?;
    let list: Value = serde_json::from_str(&list).context("kubectl did not print JSON")?;
    let items = list["items"].as_array().context("no list of objects")?;
    let name = |item: &Value| {
        format!(
            "{} {}/{} {}",
            item["kind"],
            item["metadata"]["namespace"],
            item["metadata"]["name"],
            item["metadata"]["uid"]
        )
    };
    Ok(items.iter().map(name).collect())
}
