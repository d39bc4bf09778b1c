//! The outcomes of the interrupted commands: each is checked, and the previous state restored.

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::wait;
use serde_json::Value;

use super::super::leaving::{self, has_gone};
use super::super::standbys::{STANDBYS, wait_for_followers};
use super::super::{BACK, is_complete, losses};

const INFRA: &str = "node-role.kubernetes.io/infra";
/// The annotation of a pod whose manifest is on its host.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// The worker has its further role, and loses it again.
pub(super) fn roles(cluster: &Cluster) -> Result<()> {
    let text = cluster.kubectl(&["get", "node", "worker-1", "-o", "json"])?;
    let node: Value = serde_json::from_str(&text)?;
    ensure!(
        !node["metadata"]["labels"][INFRA].is_null(),
        "worker-1 has no label of its new role"
    );
    let back = ["ctl", "node", "roles", "worker-1", "worker"];
    cluster.bootstrap.run(&back).map(drop)
}

/// Nothing of Halite is left on the host, the cluster has forgotten it, and it joins again.
pub(super) fn removed(cluster: &Cluster, name: &str) -> Result<()> {
    has_gone(cluster, name)?;
    cluster.join(&[name])?;
    joined(cluster, name)
}

/// The cluster has forgotten a host that is off and has no disks, and a new one of that name joins.
pub(super) fn removed_dead(cluster: &Cluster, name: &str) -> Result<()> {
    wait::until("the host to be forgotten", BACK, || {
        let nodes = cluster.kubectl(&["get", "nodes", "-o", "name"])?;
        ensure!(!nodes.contains(name), "{nodes}");
        let keys = cluster.bootstrap.run(&["ctl", "key", "list"])?;
        ensure!(!keys.contains(name), "{keys}");
        Ok(())
    })?;
    cluster.lab.power_on(&[name.to_owned()])?;
    cluster.join(&[name])?;
    joined(cluster, name)
}

/// The node is unschedulable, and has only pods of DaemonSets and static pods; it is made
/// schedulable again.
pub(super) fn drained(cluster: &Cluster, name: &str) -> Result<()> {
    wait::until(&format!("{name} to be drained"), BACK, || {
        let text = cluster.kubectl(&["get", "node", name, "-o", "json"])?;
        let node: Value = serde_json::from_str(&text)?;
        ensure!(
            node["spec"]["unschedulable"] == true,
            "{name} takes pods: {}",
            node["spec"]
        );
        let of_node = format!("--field-selector=spec.nodeName={name}");
        let text = cluster.kubectl(&["get", "pods", "-A", &of_node, "-o", "json"])?;
        let list: Value = serde_json::from_str(&text)?;
        let mut pods = list["items"].as_array().into_iter().flatten();
        let left = pods.find(|pod| !stays(pod));
        ensure!(
            left.is_none(),
            "{name} has {}",
            left.unwrap_or(&Value::Null)["metadata"]
        );
        Ok(())
    })?;
    let back = ["ctl", "node", "uncordon", name];
    cluster.bootstrap.run(&back).map(drop)
}

/// Returns whether a drain leaves a pod alone.
fn stays(pod: &Value) -> bool {
    let owners = pod["metadata"]["ownerReferences"].as_array();
    let mut owners = owners.into_iter().flatten();
    owners.any(|owner| owner["kind"] == "DaemonSet")
        || !pod["metadata"]["annotations"][MIRROR].is_null()
}

/// The host is back in its previous state.
pub(super) fn joined(cluster: &Cluster, name: &str) -> Result<()> {
    wait::until(&format!("{name} to be back"), BACK, || is_complete(cluster))?;
    losses::wait_for_one_holder(cluster)?;
    wait_for_followers(&cluster.bootstrap, &STANDBYS).map(drop)
}

/// The host has left and is enrolled again: `add`, which follows, restores its previous state.
pub(super) fn enrolled_again(cluster: &Cluster, name: &str, add: &str) -> Result<()> {
    let roles = add.rsplit_once(' ').map_or(add, |(_, roles)| roles);
    let words = leaving::enrolled_again(cluster, name, roles)?.join(" ");
    ensure!(words == format!("ctl {add}"), "the lab adds it by {words}");
    Ok(())
}

/// The last member serves, and the lost ones are replaced.
pub(super) fn recovered(cluster: &Cluster) -> Result<()> {
    wait::until("the API on the last member", BACK, || {
        cluster.kubectl(&["get", "nodes"]).map(drop)
    })?;
    let manifest = cluster
        .bootstrap
        .file("/etc/kubernetes/manifests/etcd.yaml");
    let manifest = std::fs::read_to_string(manifest).context("the manifest of etcd")?;
    ensure!(
        !manifest.contains("force-new-cluster"),
        "etcd would forget its members at each start"
    );
    STANDBYS
        .iter()
        .try_for_each(|name| cluster.replace(name).map(drop))
}
