//! Control planes that die for good in the middle of a command about them, while a client writes: the command waits
//! for the host, says so, and is ended; another one goes on without the host.

use anyhow::{Result, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::wait;

use super::fewer::as_before;
use super::leaving::{GAP, enrolled_again, wait_until_lost};
use super::losses::at_the_vip;
use super::stalls::{end_the_wait, failed_without_its_host};
use super::standbys::STANDBYS;
use super::{BACK, is_complete};
use crate::interrupted::Running;
use crate::test::Counts;
use crate::{etcd, guide};

/// The roles of a further control plane.
const ROLES: &str = "control-plane,etcd";
/// The page and the heading of the commands that take a control plane out.
const LEAVES: [&str; 2] = ["high-availability.md", "## A control plane leaves"];

/// A new control plane dies when its member has joined as a learner. It is replaced.
pub(super) fn while_added(cluster: &Cluster) -> Result<Counts> {
    let first = &cluster.bootstrap;
    let name = STANDBYS[1];
    let add = enrolled_again(cluster, name, ROLES)?;
    let measured = at_the_vip(cluster, first, "dies-added", || {
        let running = Running::start(first, &add)?;
        dies(cluster, running, "learner", name)?;
        cluster.replace(name)?;
        wait::until("three control planes", BACK, || is_complete(cluster))
    })?;
    measured.check("a control plane dies while it is added", GAP)?;
    as_before(cluster)
}

/// A control plane dies while it leaves, when its pods are evicted. It is removed as a dead one, and added again.
pub(super) fn while_removed(cluster: &Cluster) -> Result<Counts> {
    let first = &cluster.bootstrap;
    let name = STANDBYS[0];
    let [page, heading] = LEAVES;
    // The host of the guide has the same name.
    let command = |with: &str| {
        let begin = format!("ctl node remove {name} {with}");
        guide::command(page, heading, &begin)
    };
    let (alive, dead) = (command("--force")?, command("--dead")?);
    let measured = at_the_vip(cluster, first, "dies-removed", || {
        let running = Running::start(first, &alive)?;
        dies(cluster, running, "drained", name)?;
        let said = first.run(&dead)?;
        println!("  {}", said.trim().replace('\n', "\n  "));
        etcd::status(first, "2 members, none may fail")?;
        let nodes = cluster.kubectl(&["get", "nodes", "-o", "name"])?;
        ensure!(!nodes.contains(name), "{nodes}");
        cluster.lab.power_on(&[name.to_owned()])?;
        cluster.join(&[name])?;
        wait::until("three control planes", BACK, || is_complete(cluster))
    })?;
    measured.check("a control plane dies while it is removed", GAP)?;
    as_before(cluster)
}

/// Destroys a host when a step of a command has ended. The command waits for the host until it is ended as its line
/// says, or ends by itself, and has failed.
pub(super) fn dies(cluster: &Cluster, mut running: Running, step: &str, name: &str) -> Result<()> {
    let first = &cluster.bootstrap;
    running.wait_for(step, || Ok(()))?;
    cluster.lab.power_off(&[name.to_owned()], true)?;
    let away = [
        format!("{name} is not connected"),
        format!("{name} disconnected"),
    ];
    let line = running.wait_for_any(&away)?;
    println!("  {}", line.trim());
    if line.contains(": waiting for ") {
        end_the_wait(first, &line)?;
    }
    failed_without_its_host(running)?;
    // A host that was there a moment ago may not be taken for a dead one.
    wait_until_lost(cluster, name)
}
