//! The store's file system is full: nothing can be changed and `ctl` gives the reason, the cluster
//! continues, and once there is space again so does Halite.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::{CTL, Cluster};
use halite_lab::host::Host;
use halite_lab::wait;

use super::{ping, repair};
use crate::small_disk::SmallDisk;
use crate::test::Counts;

const STORE: &str = "/var/lib/halite/master";
/// The space in MiB before it is filled.
const ROOM: u32 = 32;

/// Limit for the master to answer after a start.
const START: Duration = Duration::from_secs(90);

/// Moves the store to a small file system, fills it, and moves it back.
pub(super) fn stops_changes(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    let disk = without_master(host, || SmallDisk::over(host, STORE, ROOM))?;
    let outcome = answering(cluster).and_then(|()| while_full(cluster, &disk));
    // The tests after this one need the store on its own file system, including everything stored
    // since.
    without_master(host, || disk.remove())?;
    outcome?;
    answering(cluster)?;
    repair::quiet(cluster).context("with the store moved back")?;
    Ok(Counts::ONE)
}

/// Does something while the master is stopped.
fn without_master<T>(host: &Host, act: impl FnOnce() -> Result<T>) -> Result<T> {
    host.run(&["systemctl", "stop", "halite-master"])?;
    let done = act();
    host.run(&["systemctl", "start", "halite-master"])?;
    done
}

fn answering(cluster: &Cluster) -> Result<()> {
    wait::until("the minions", START, || ping(cluster, &[]))
}

fn while_full(cluster: &Cluster, disk: &SmallDisk) -> Result<()> {
    let host = &cluster.bootstrap;
    disk.fill()?;
    let output = host.output(&[CTL, "highstate"])?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    ensure!(
        !output.status.success() && text.contains("the master's store is out of space"),
        "ctl highstate ended with {}: {text}",
        output.status
    );
    let status = host.output(&[CTL, "status"])?;
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    ensure!(
        status.contains("0 MiB are free on the file system"),
        "ctl status does not report it: {status}"
    );
    // The cluster accepts changes.
    cluster.kubectl(&["create", "configmap", "halite-test-full"])?;
    cluster.kubectl(&["delete", "configmap", "halite-test-full"])?;
    disk.make_room()?;
    repair::quiet(cluster).context("with space again, the master not restarted")
}
