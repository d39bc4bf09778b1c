//! The file system with the data of etcd is full: etcd stops, `ctl` gives the reason although the
//! API is unavailable, and once there is space the cluster accepts writes by itself, and has all
//! acknowledged data.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::Cluster;

use super::{large_object, repair};
use crate::etcd_disk::{DATA, ROOM, is_named, without_etcd};
use crate::ha::while_written;
use crate::small_disk::SmallDisk;
use crate::test::Counts;
use crate::{etcd, health};

/// Limit until writes are accepted again: the kubelet waits up to five minutes before it restarts a
/// program that exited several times.
const BACK: Duration = Duration::from_secs(360);

/// Moves etcd's data to a small file system, fills it, and moves them back.
pub(super) fn loses_no_write(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    health::is_well(cluster)?;
    let disk = without_etcd(host, || SmallDisk::over(host, DATA, ROOM))?;
    let outcome = etcd::serves(cluster).and_then(|()| while_full(cluster, &disk));
    // The tests after this one need etcd on its own file system, including everything stored since.
    without_etcd(host, || disk.remove())?;
    outcome?;
    health::is_well(cluster)?;
    // Programs that lost their lease have exited, and are restarted.
    repair::settled(cluster, repair::pods(cluster)?)?;
    repair::quiet(cluster).context("with the data of etcd moved back")?;
    Ok(Counts::ONE)
}

fn while_full(cluster: &Cluster, disk: &SmallDisk) -> Result<()> {
    let record = while_written(cluster, &cluster.bootstrap, "full-disk", || {
        disk.fill()?;
        // An etcd that has exited cannot give the reason: any error counts as refused.
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
