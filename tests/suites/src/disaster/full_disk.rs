//! The file system of the backups is full: a backup fails and gives the reason, no truncated file
//! has the name of a backup, and the good ones stay.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_api::VerifiedBackup;
use halite_lab::cluster::{BOOTSTRAP, CTL, Cluster};
use halite_lab::host::Host;
use halite_lab::wait;

use super::{UNIT, names};
use crate::checks::refused;
use crate::small_disk::SmallDisk;
use crate::test::Counts;
use crate::{ctl_answer, health};

const DECLARED: &str = "/var/lib/halite/backup";
/// The space in MiB before it is filled: enough for a backup without its snapshot, and less than it
/// leaves for others.
const ROOM: u32 = 192;
/// Limit for the status to show a run.
const REPORTED: Duration = Duration::from_secs(90);
const CREATE: [&str; 3] = [CTL, "backup", "create"];

/// Mounts a small disk over the declared directory, fills it, and unmounts it.
pub(super) fn keeps_the_good(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    // Runs of other tests count towards the limit of starts, too.
    host.sh(&format!("systemctl reset-failed {UNIT} || true"))?;
    host.run(&["systemctl", "start", UNIT])?;
    warns(cluster, &[])?;
    let disk = SmallDisk::over(host, DECLARED, ROOM)?;
    let outcome = while_full(cluster, &disk);
    // It would retry after a minute.
    host.sh(&format!(
        "systemctl stop {UNIT}; systemctl reset-failed {UNIT} || true"
    ))?;
    disk.remove()?;
    outcome?;
    host.run(&["systemctl", "start", UNIT])
        .context("with space again")?;
    warns(cluster, &[])?;
    Ok(Counts::ONE)
}

fn while_full(cluster: &Cluster, disk: &SmallDisk) -> Result<()> {
    let host = &cluster.bootstrap;
    let good = names(host)?;
    let cannot = format!("cannot make a backup in {DECLARED}: ");
    // It is noticed before etcd's snapshot is written.
    refused(host, &CREATE, &[&cannot, "make room"])?;
    are_there(host, &good)?;
    disk.fill()?;
    refused(host, &CREATE, &[&cannot, "No space left on device"])?;
    are_there(host, &good)?;
    let started = host.output(&["systemctl", "start", UNIT])?;
    ensure!(!started.status.success(), "{UNIT} did not fail");
    are_there(host, &good)?;
    warns(
        cluster,
        &[BOOTSTRAP, &cannot, "systemctl start halite-backup"],
    )
}

/// The good backups exist, the newest can be read completely, and there is nothing else.
fn are_there(host: &Host, good: &[String]) -> Result<()> {
    let now = names(host)?;
    ensure!(now == good, "{good:?} is now {now:?}");
    let verified: VerifiedBackup = ctl_answer::of(host, &["backup", "verify"])?;
    ensure!(verified.files > Some(10), "{verified:?}");
    let partial = format!("! ls -A {DECLARED} | grep '[.]new$'");
    host.sh(&partial).map(drop)
}

/// Waits until `ctl health` has a warning about the last run with these parts; without parts, no
/// warning.
fn warns(cluster: &Cluster, parts: &[&str]) -> Result<()> {
    // A minion reads the results every half minute, and when its grains are requested.
    cluster.bootstrap.run(&[CTL, "grains", BOOTSTRAP])?;
    let what = format!("the health to report {parts:?} about the last backup");
    wait::until(&what, REPORTED, || {
        let (_, health) = health::health(cluster)?;
        let found = health::finding(&health, "backup-run");
        let message = found.as_ref().map(|found| found.message.as_str());
        let is_so = match message {
            None => parts.is_empty(),
            Some(said) => !parts.is_empty() && parts.iter().all(|part| said.contains(part)),
        };
        ensure!(is_so, "it says {message:?}");
        Ok(())
    })
}
