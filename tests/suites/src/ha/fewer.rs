//! Fewer control planes: one of three becomes a worker, or two leave, and then there are three
//! again; in the end one is left. A client writes to the virtual address all the time.

use anyhow::{Result, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::wait;
use serde_json::Value;

use super::leaving::{MASTER, has_gone, has_gone_as_seen_on};
use super::losses::{GAP, VIP, at_the_vip, wait_for_one_holder};
use super::retiring::retire;
use super::standbys::{STANDBYS, nothing_to_do, wait_for_followers};
use super::{BACK, is_complete, same_content};
use crate::bare::{has_no_control_plane, wait_until_bare};
use crate::checks::refused;
use crate::test::Counts;
use crate::{etcd, firewall};

const CONFIRMED: [&str; 3] = ["--force", "--cluster", "demo"];

/// The last control plane becomes a worker and a control plane again.
pub(super) fn as_a_worker(cluster: &Cluster) -> Result<Counts> {
    worker_for_a_while(cluster, STANDBYS)
}

/// The former master's host does the same, and keeps nothing of the master in that time: no key of
/// a CA, no store, no document.
pub(super) fn former_master_as_a_worker(cluster: &Cluster) -> Result<Counts> {
    let [former, other] = STANDBYS;
    (cluster.host(former)?).sh("test -e /var/lib/halite/master/store.db")?;
    worker_for_a_while(cluster, [other, former])
}

/// The second of these hosts becomes a worker and a control plane again: its node stays, and the
/// others hold the address and the votes.
fn worker_for_a_while(cluster: &Cluster, [other, name]: [&'static str; 2]) -> Result<Counts> {
    let first = &cluster.bootstrap;
    let host = cluster.host(name)?;
    let uid = || -> Result<Value> {
        let node = cluster.kubectl(&["get", "node", name, "-o", "json"])?;
        let node: Value = serde_json::from_str(&node)?;
        Ok(node["metadata"]["uid"].clone())
    };
    let before = uid()?;
    let roles = |roles: &'static str| ["ctl", "node", "roles", name, roles];
    let worker = roles("worker");
    refused(first, &worker, &["it takes --force --cluster demo"])?;
    let measured = at_the_vip(cluster, first, "fewer", || {
        first.run(&[&worker[..], &CONFIRMED].concat())?;
        has_no_control_plane(host)?;
        etcd::status(first, "2 members, none may fail")?;
        wait_for_followers(first, &[other])?;
        first.run(&roles("control-plane,etcd"))?;
        wait::until("three control planes", BACK, || is_complete(cluster))
    })?;
    measured.check("a control plane is a worker for a while", GAP)?;
    ensure!(uid()? == before, "the node was recreated");
    as_before(cluster)
}

/// Two of three control planes leave one after the other, and join again with one command. At no
/// moment is a port open that the roles do not open.
pub(super) fn one_and_three_again(cluster: &Cluster) -> Result<Counts> {
    let first = &cluster.bootstrap;
    let measured = firewall::during(cluster, VIP, &MASTER, &STANDBYS, || {
        at_the_vip(cluster, first, "one", || one_and_three(cluster))
    })?;
    measured.check("three control planes, one, and three", GAP)?;
    as_before(cluster)
}

fn one_and_three(cluster: &Cluster) -> Result<()> {
    let first = &cluster.bootstrap;
    for (name, left) in [
        (STANDBYS[1], "2 members, none may fail"),
        (STANDBYS[0], "1 member, none may fail"),
    ] {
        let remove = ["ctl", "node", "remove", name];
        first.run(&[&remove[..], &CONFIRMED].concat())?;
        has_gone(cluster, name)?;
        etcd::status(first, left)?;
    }
    cluster.join(&STANDBYS)?;
    wait::until("three control planes", BACK, || is_complete(cluster))
}

/// The second to last control plane leaves: the first host has left before, and the second one has
/// the master. The rest serves, and no highstate has anything to do.
pub(super) fn one_is_left(cluster: &Cluster) -> Result<Counts> {
    let left = without_the_first(cluster)?;
    wait_for_followers(left, &[STANDBYS[1]])?;
    let measured = at_the_vip(cluster, left, "one-left", || {
        remove_the_third(cluster, left)
    })?;
    measured.check("one control plane is left", GAP)?;
    let holder = wait_for_one_holder(cluster)?;
    ensure!(holder == left.spec.name, "{holder} has the virtual address");
    nothing_to_do(left, &[&left.spec.name, "worker-1", "master"])?;
    Ok(Counts::ONE)
}

/// The last remaining control plane of three, the second one, as [`one_is_left`] leaves it.
pub(super) fn the_one_left(cluster: &Cluster) -> Result<&Host> {
    let left = without_the_first(cluster)?;
    if has_ctl(cluster.host(STANDBYS[1])?) {
        remove_the_third(cluster, left)?;
    }
    Ok(left)
}

/// The host that has the master after the first one has left. A previous test has done that, unless
/// it belongs to another part of the run.
fn without_the_first(cluster: &Cluster) -> Result<&Host> {
    let first = &cluster.bootstrap;
    if has_ctl(first) {
        retire(first, &[&["--to", STANDBYS[0]][..], &CONFIRMED].concat())?;
        wait_until_bare(first)?;
    }
    cluster.host(STANDBYS[0])
}

fn remove_the_third(cluster: &Cluster, left: &Host) -> Result<()> {
    let name = STANDBYS[1];
    let remove = ["ctl", "node", "remove", name];
    left.run(&[&remove[..], &CONFIRMED].concat())?;
    has_gone_as_seen_on(cluster, left, name)?;
    etcd::status(left, "1 member, none may fail").map(drop)
}

/// Returns whether the host belongs to the cluster.
fn has_ctl(host: &Host) -> bool {
    host.file("/usr/local/bin/ctl").exists()
}

/// One host holds the address, both standbys follow, and no highstate has anything to do.
pub(super) fn as_before(cluster: &Cluster) -> Result<Counts> {
    let first = &cluster.bootstrap;
    wait_for_one_holder(cluster)?;
    wait_for_followers(first, &STANDBYS)?;
    same_content(cluster)?;
    nothing_to_do(first, &["cp-1", "cp-2", "cp-3", "worker-1", "master"])?;
    Ok(Counts::ONE)
}
