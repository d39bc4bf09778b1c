//! All control planes are lost with their disks: one bare host restores a backup, and the others
//! join again. The host that restores need not be the one that founded the cluster.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::wait;

use super::fewer::the_one_left;
use super::leaving::MASTER;
use super::losses::{VIP, wait_for_one_holder};
use super::standbys::{STANDBYS, nothing_to_do, wait_for_followers};
use super::{BACK, is_complete, same_content};
use crate::disaster::restoring;
use crate::test::Counts;
use crate::{etcd, firewall, guide};

/// The heading of the guide about such a loss.
const HEADING: &str = "## The first host, or all control planes, are lost";

/// The first host is made again from the backup while the others are off; objects, a Secret and the
/// worker with its pod come back without a command, and then the others are added with the words
/// that declared them. While they join, no port is open that the roles do not open.
pub(super) fn restored(cluster: &Cluster) -> Result<Counts> {
    let first = &cluster.bootstrap;
    wait::until("all hosts to serve", BACK, || is_complete(cluster))?;
    wait_for_followers(first, &STANDBYS)?;
    let kept = restoring::back_up(cluster)?;
    let planes: Vec<String> = (cluster.control_planes().iter())
        .map(|host| host.spec.name.clone())
        .collect();
    let (own, others) = planes.split_first().context("no control plane")?;
    cluster.lab.power_off(&planes, true)?;
    cluster.lab.power_on(std::slice::from_ref(own))?;
    kept.carry(first)?;
    kept.restore(first)?;
    kept.came_back(cluster)?;
    cluster.lab.power_on(others)?;
    // The worker's firewall still has the previous entries.
    let changed = [STANDBYS[0], STANDBYS[1], cluster.worker.spec.name.as_str()];
    firewall::during(cluster, VIP, &MASTER, &changed, || {
        guide::add(cluster, first, HEADING, &STANDBYS)?;
        wait::until("all hosts to serve again", BACK, || is_complete(cluster))
    })?;
    wait_for_one_holder(cluster)?;
    wait_for_followers(first, &STANDBYS)?;
    guide::run(first, HEADING, "ctl health")?;
    kept.continues(cluster)?;
    same_content(cluster)?;
    nothing_to_do(first, &["cp-1", "cp-2", "cp-3", "worker-1", "master"])?;
    Ok(Counts::ONE)
}

/// The first host has left permanently, and the only control plane is lost with its disks. It is
/// restored in place of the first host, and keeps the declaration in its document.
pub(super) fn restored_without_the_first_host(cluster: &Cluster) -> Result<Counts> {
    let name = the_one_left(cluster)?.spec.name.clone();
    let left = cluster.managed_from(&name)?;
    let host = &left.bootstrap;
    let document = host.file(&format!("/etc/halite/nodes/{name}.yaml"));
    let before = fs::read_to_string(&document)?;
    ensure!(
        !before.contains("bootstrap"),
        "the first host is here: {before}"
    );
    fs::write(
        &document,
        format!("{before}labels: {{example.com/site: north}}\n"),
    )?;
    host.run(&["ctl", "highstate", &name])?;
    let kept = restoring::back_up(&left)?;
    cluster.lab.power_off(std::slice::from_ref(&name), true)?;
    cluster.lab.power_on(std::slice::from_ref(&name))?;
    kept.carry(host)?;
    kept.restore(host)?;
    kept.came_back(&left)?;
    let restored = fs::read_to_string(&document)?;
    for part in ["example.com/site: north", "bootstrap", "etcd"] {
        ensure!(restored.contains(part), "{part} is missing: {restored}");
    }
    let label = "jsonpath={.metadata.labels.example\\.com/site}";
    let label = left.kubectl(&["get", "node", &name, "-o", label])?;
    ensure!(label == "north", "the node has the label {label:?}");
    let holder = wait_for_one_holder(cluster)?;
    ensure!(holder == name, "{holder} has the virtual address");
    etcd::status(host, "1 member, none may fail")?;
    kept.continues(&left)?;
    nothing_to_do(host, &[&name, "worker-1", "master"])?;
    Ok(Counts::ONE)
}
