//! The file system with the data of one etcd member is full: that member stops, the others
//! continue, and once there is space it comes back by itself, with all acknowledged data.

use std::time::Duration;

use anyhow::{Context as _, Result};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::wait;

use super::losses::{GAP, at_the_vip, wait_for_one_holder};
use super::{BACK, etcdctl, is_complete, leader, same_content};
use crate::checks::nothing_to_do;
use crate::etcd_disk::{DATA, ROOM, is_named, without_etcd};
use crate::small_disk::SmallDisk;
use crate::test::Counts;

/// Limit for the member to stop on the full file system.
const ENDED: Duration = Duration::from_secs(300);
/// Limit for it to be back: the kubelet waits up to five minutes before it restarts a program that
/// exited several times.
const MEMBER_BACK: Duration = Duration::from_secs(360);

/// A large object, which exists before it is replaced.
const CREATE: &str = "kubectl -n default delete configmap halite-test-large --ignore-not-found && \
    kubectl -n default create configmap halite-test-large";
/// Replaces it with most of a MiB of other content: etcd has space for small ones in the current
/// segment of its log.
const REPLACE: &str = "cd /root && head -c 700000 /dev/urandom | base64 -w0 > halite-test-large && \
    kubectl -n default create configmap halite-test-large --from-file=content=halite-test-large --dry-run=client -o yaml | \
    kubectl replace --request-timeout=30s -f -";
const REMOVE: &str =
    "kubectl -n default delete configmap halite-test-large && rm /root/halite-test-large";

/// Moves the data of the leading member to a small file system, fills that while a client writes,
/// and moves them back.
pub(super) fn of_the_leader(cluster: &Cluster) -> Result<Counts> {
    wait::until("all hosts to serve", BACK, || is_complete(cluster))?;
    // The free pages of its database would be usable space.
    cluster.bootstrap.run(&["ctl", "etcd", "defrag"])?;
    let host = leader::leading(cluster, None)?;
    println!("  {} leads", host.spec.name);
    let disk = without_etcd(host, || SmallDisk::over(host, DATA, ROOM))?;
    let outcome = is_back(cluster, host).and_then(|()| while_full(cluster, host, &disk));
    // The tests after this one need the data on their own file system, including everything stored
    // since.
    without_etcd(host, || disk.remove())?;
    outcome?;
    is_back(cluster, host).context("with the data moved back")?;
    wait_for_one_holder(cluster)?;
    nothing_to_do(&cluster.bootstrap)?;
    Ok(Counts::ONE)
}

fn while_full(cluster: &Cluster, host: &Host, disk: &SmallDisk) -> Result<()> {
    let name = host.spec.name.as_str();
    // Another one leads since its data were moved.
    leader::lead(cluster, name)?;
    let planes = cluster.control_planes();
    let mut others = planes.iter().filter(|plane| plane.spec.name != name);
    let other = others.next().context("no other control plane")?;
    other.sh(CREATE)?;
    let measured = at_the_vip(cluster, other, "full-disk", || {
        let pid = host.run(&["pgrep", "-x", "etcd"])?;
        disk.fill()?;
        let ended = until_it_ends(other, host, pid.trim());
        let outcome = ended.and_then(|()| others_continue(cluster, host));
        disk.make_room()?;
        outcome?;
        is_back(cluster, host).context("with space again")
    })?;
    measured.check("a full disk under the leader of etcd", GAP)?;
    other.sh(REMOVE).map(drop)
}

/// Replaces the large object on another host until the member of the host has stopped.
fn until_it_ends(other: &Host, host: &Host, pid: &str) -> Result<()> {
    let has_ended = format!("test ! -e /proc/{pid}");
    wait::until("the member to end", ENDED, || {
        // One may fail, when the leader stops.
        let replaced = other.sh(REPLACE);
        let ended = host.sh(&has_ended).map(drop);
        ended.with_context(|| format!("it runs; the last write: {replaced:?}"))
    })
}

/// Another member leads, the health names the disk, and the API accepts writes.
fn others_continue(cluster: &Cluster, host: &Host) -> Result<()> {
    let next = leader::leading(cluster, Some(&host.spec.name))?;
    println!("  {} leads in its place", next.spec.name);
    is_named(cluster, host)?;
    next.sh(REPLACE)
        .map(drop)
        .context("the others do not continue")
}

/// The member answers, all hosts serve, and all members have the same content.
fn is_back(cluster: &Cluster, host: &Host) -> Result<()> {
    wait::until("the member to be back", MEMBER_BACK, || {
        etcdctl(cluster, host, &["endpoint", "status"])?;
        is_complete(cluster)
    })?;
    same_content(cluster)
}
