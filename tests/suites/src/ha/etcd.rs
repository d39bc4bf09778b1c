//! Work on etcd by `ctl`: free pages are given back, and the last member makes a cluster again.

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::wait;
use serde_json::Value;

use super::{BACK, is_complete, same_content};
use crate::guide;
use crate::test::Counts;

/// Runs `ctl etcd` on the first host, with the answer as JSON.
fn ctl_etcd(cluster: &Cluster, words: &[&str]) -> Result<Value> {
    let command = [&["ctl", "etcd"], words, &["-o", "json"]].concat();
    let text = cluster.bootstrap.run(&command)?;
    serde_json::from_str(&text).with_context(|| format!("ctl etcd {}: {text}", words.join(" ")))
}

/// The bytes in use and the size of each member's database.
fn databases(cluster: &Cluster) -> Result<Vec<(u64, u64)>> {
    let status = ctl_etcd(cluster, &["status"])?;
    let members = status["members"].as_array().context("no members")?;
    let number = |member: &Value, key: &str| member[key].as_u64().context("no size");
    (members.iter())
        .map(|member| Ok((number(member, "dbInUse")?, number(member, "dbSize")?)))
        .collect()
}

/// Free pages of each member are given back, one member after the other.
pub(super) fn defragmented(cluster: &Cluster) -> Result<Counts> {
    let unknown = cluster
        .bootstrap
        .output(&["ctl", "etcd", "defrag", "--member", "absent"])?;
    ensure!(!unknown.status.success(), "an unknown member was accepted");
    ctl_etcd(cluster, &["defrag", "--member", "cp-2"])?;
    let done = ctl_etcd(cluster, &["defrag"])?;
    ensure!(done["retcode"] == 0, "{done}");
    for (in_use, size) in databases(cluster)? {
        // It is written to in the meantime.
        ensure!(
            size < 2 * in_use.max(1 << 20),
            "{in_use} bytes of {size} are in use"
        );
    }
    is_complete(cluster)?;
    Ok(Counts::ONE)
}

/// Two of three members are gone with their disks: the third one makes a cluster with all that it
/// has, and the others are replaced.
pub(super) fn recovered(cluster: &Cluster) -> Result<Counts> {
    let first = &cluster.bootstrap;
    // The hosts of the guide have the same names.
    let heading = "## One member of etcd is left";
    let recover = guide::command("disaster.md", heading, "ctl etcd recover")?;
    let output = first.output(&recover)?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    ensure!(
        !output.status.success() && said.contains("etcd has a quorum"),
        "{said}"
    );
    cluster.kubectl(&["create", "configmap", "before-the-loss", "-n", "default"])?;
    let lost: Vec<String> = (cluster.control_planes().iter())
        .skip(1)
        .map(|host| host.spec.name.clone())
        .collect();
    cluster.lab.power_off(&lost, true)?;
    let said = first.run(&recover)?;
    ensure!(said.contains("serves alone"), "{said}");
    wait::until("the API on the last member", BACK, || {
        let get = ["get", "configmap", "before-the-loss", "-n", "default"];
        cluster.kubectl(&get).map(drop)
    })?;
    let manifest = std::fs::read_to_string(first.file("/etc/kubernetes/manifests/etcd.yaml"))?;
    ensure!(
        !manifest.contains("force-new-cluster"),
        "etcd would forget its members at each start"
    );
    for name in &lost {
        guide::replace(cluster, first, heading, name)?;
    }
    wait::until("all members to serve", BACK, || is_complete(cluster))?;
    same_content(cluster)?;
    cluster.kubectl(&["delete", "configmap", "before-the-loss", "-n", "default"])?;
    Ok(Counts::ONE)
}
