//! The file system with the data of etcd is full: etcd ends, `ctl` says why although the API is away, and with room
//! again the cluster takes writes by itself, and has all that was acknowledged.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::{BOOTSTRAP, CTL, Cluster};
use halite_lab::host::Host;
use halite_lab::wait;

use super::{large_object, repair};
use crate::ha::while_written;
use crate::small_disk::SmallDisk;
use crate::test::Counts;
use crate::{etcd, health};

const DATA: &str = "/var/lib/etcd";
/// The room in MiB before it is filled: etcd may take two further parts of its log, of 64 MiB each, at its start.
const ROOM: u32 = 192;

/// Limit for etcd to end when it is stopped.
const END: Duration = Duration::from_secs(90);
/// Limit for `ctl health` to name the disk.
const NAMED: Duration = Duration::from_secs(60);
/// Limit for writes to be taken again: the kubelet waits up to five minutes before it starts a program again that
/// has ended several times.
const BACK: Duration = Duration::from_secs(360);

/// Ends etcd where the kubelet that would start it again is stopped.
const STOP: &str = "systemctl stop kubelet && pkill -TERM -x etcd";

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

/// Does something while etcd is stopped.
fn without_etcd<T>(host: &Host, act: impl FnOnce() -> Result<T>) -> Result<T> {
    let stopped = host
        .sh(STOP)
        .and_then(|_| wait::until("etcd to end", END, || host.sh("! pgrep -x etcd").map(drop)));
    let done = stopped.and_then(|()| act());
    host.run(&["systemctl", "start", "kubelet"])?;
    done
}

fn while_full(cluster: &Cluster, disk: &SmallDisk) -> Result<()> {
    let record = while_written(cluster, &cluster.bootstrap, "full-disk", || {
        disk.fill()?;
        let refused = large_object::until_refused(cluster);
        let named = refused.and_then(|_| is_named(cluster));
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

/// `ctl health` and `ctl status` have the disk, and what the operator can do.
fn is_named(cluster: &Cluster) -> Result<()> {
    let text = format!("MiB are free on the file system of {DATA} on {BOOTSTRAP}");
    let remedy = format!("free space there, or make it larger, on {BOOTSTRAP}");
    wait::until("the health to name the disk", NAMED, || {
        let (code, health) = health::document(cluster, &["health"])?;
        let found = health::finding(&health, "etcd-disk");
        let found = found.with_context(|| format!("not found: {health:#}"))?;
        let says = |key: &str, part: &str| {
            let said = found[key].as_str().unwrap_or_default();
            said.contains(part)
        };
        ensure!(
            code == Some(1) && says("message", &text) && says("remedy", &remedy),
            "exit code {code:?}: {found:#}"
        );
        let output = cluster.bootstrap.output(&[CTL, "status"])?;
        let status = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(
            output.status.code() == Some(1) && status.contains(&text) && status.contains(&remedy),
            "ctl status ended with {}: {status}",
            output.status
        );
        Ok(())
    })
}
