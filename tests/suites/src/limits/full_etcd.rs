//! The file system with the data of etcd is full: etcd ends, `ctl` says why although the API is away, and with room
//! again the cluster takes writes by itself, and has all that was acknowledged.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::Cluster;

use super::{large_object, repair};
use crate::etcd_disk::{DATA, ROOM, is_named, without_etcd};
use crate::ha::while_written;
use crate::small_disk::SmallDisk;
use crate::test::Counts;
use crate::{etcd, health};

/// Limit for writes to be taken again: the kubelet waits up to five minutes before it starts a program again that
/// has ended several times.
const BACK: Duration = Duration::from_secs(360);

/// Moves etcd's data to a small file system, fills it, and moves them back.
pub(super) fn goes_on(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    health::is_well(cluster)?;
    let disk = without_etcd(host, || SmallDisk::over(host, DATA, ROOM))?;
    let outcome = etcd::serves(cluster).and_then(|()| while_full(cluster, &disk));
    // The tests after this one need etcd on its own file system, with what was stored since.
    without_etcd(host, || disk.remove())?;
    outcome?;
    health::is_well(cluster)?;
    // What lost its lease has ended, and is started again.
    repair::settled(cluster, repair::pods(cluster)?)?;
    repair::quiet(cluster).context("with the data of etcd where they were")?;
    Ok(Counts::ONE)
}

fn while_full(cluster: &Cluster, disk: &SmallDisk) -> Result<()> {
    let record = while_written(cluster, &cluster.bootstrap, "full-disk", || {
        disk.fill()?;
        // An etcd that has ended cannot say why: any error is a refusal.
        let refused = large_object::until_refused(cluster, "");
        let named = refused.and_then(|_| is_named(cluster, &cluster.bootstrap));
        disk.make_room()?;
        named?;
        large_object::until_taken(cluster, BACK)
    })?;
    println!("  {}", record.summary());
    let gap = record.longest_gap();
    ensure!(
        !gap.errors.is_empty(),
        "no write failed: the disk was not full"
    );
    large_object::remove(cluster)
}
