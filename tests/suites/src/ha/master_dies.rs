//! The master's host is lost permanently in the middle of an addition and of a removal. A standby
//! becomes the master, replaces the host, and finishes the command.

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::wait;

use super::retiring::retire;
use super::standbys::{STANDBYS, nothing_to_do, wait_for_followers, wait_until_noticed};
use super::{BACK, is_complete, same_content};
use crate::bare::wait_until_bare;
use crate::interrupted::Running;
use crate::test::Counts;

/// The roles of the host that is added and removed. The members of etcd stay, so that they keep
/// their quorum when one is lost.
const ROLES: &str = "worker";

/// In the middle of an addition: the new host has its container runtime, and no kubelet.
pub(super) fn while_added(cluster: &Cluster) -> Result<Counts> {
    let (first, worker) = (&cluster.bootstrap, cluster.worker.spec.name.as_str());
    let remove = removal(worker);
    first.run(&remove)?;
    wait_until_bare(&cluster.worker)?;
    let add = cluster.enrol(&[worker], ROLES)?;
    loses_its_master(cluster, &add, "containerd")?;
    let next = cluster.host(STANDBYS[0])?;
    // The run has been lost or continues: the same command starts or joins it.
    ensure!(next.show(&add)?.success(), "{worker} is not added");
    is_as_before(cluster)
}

/// In the middle of a removal: the pods have left, and the host still has everything of Halite.
pub(super) fn while_removed(cluster: &Cluster) -> Result<Counts> {
    let worker = cluster.worker.spec.name.as_str();
    let remove = removal(worker);
    loses_its_master(cluster, &remove, "drained")?;
    let next = cluster.host(STANDBYS[0])?;
    let nodes = || cluster.kubectl_on(STANDBYS[0], &["get", "nodes", "-o", "name"]);
    // It may have continued by itself to the end.
    let again = next.output(&remove)?;
    let left = nodes()?;
    ensure!(
        !left.contains(worker),
        "{worker} still exists after {}: {left}",
        again.status
    );
    wait_until_bare(&cluster.worker)?;
    cluster.add_on(next, &[worker], ROLES)?;
    is_as_before(cluster)
}

fn removal(name: &str) -> Vec<String> {
    let words = [
        "ctl",
        "node",
        "remove",
        name,
        "--force",
        "--cluster",
        "demo",
    ];
    words.map(str::to_owned).to_vec()
}

/// Destroys the master's host when a step of a command there has ended, and replaces it from a
/// standby.
fn loses_its_master(cluster: &Cluster, command: &[String], step: &str) -> Result<()> {
    let (first, next) = (&cluster.bootstrap, cluster.host(STANDBYS[0])?);
    wait_for_followers(first, &STANDBYS)?;
    let mut running = Running::start(first, command)?;
    running.wait_for(step, || Ok(()))?;
    let name = first.spec.name.clone();
    cluster.lab.power_off(std::slice::from_ref(&name), true)?;
    let (status, _) = running.ended(|| Ok(()))?;
    ensure!(!status.success(), "ctl outlived its host");
    wait_until_noticed(next)?;
    let printed = cluster.replace_on(next, &name);
    printed.context("the master's host is not replaced")?;
    wait_for_followers(next, &[name.as_str(), STANDBYS[1]]).map(drop)
}

/// All hosts serve, and the master moves back to the first one.
fn is_as_before(cluster: &Cluster) -> Result<Counts> {
    let (first, next) = (&cluster.bootstrap, cluster.host(STANDBYS[0])?);
    wait::until("all hosts to serve", BACK, || is_complete(cluster))?;
    same_content(cluster)?;
    let name = first.spec.name.as_str();
    retire(next, &[STANDBYS[0], "--to", name, "--keep"])?;
    wait_for_followers(first, &STANDBYS)?;
    nothing_to_do(first, &["cp-1", "cp-2", "cp-3", "worker-1", "master"])?;
    Ok(Counts::ONE)
}
