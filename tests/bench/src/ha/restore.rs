//! A restore of a cluster with a large etcd, on one bare host.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use halite_api::{MadeBackup, from_text};
use halite_lab::cluster::{CTL, Cluster, INSTALL};

use super::Table;

/// Relative to the bootstrap of one host.
const RESTORE: f64 = 2.0;
/// The written data: this many objects of this many bytes, 100 MB in base64.
const OBJECTS: usize = 110;
const BYTES: usize = 690_000;
const FILE: &str = "/root/restored.halite-backup";

/// Fills etcd, backs it up, destroys all hosts, and restores the first of them.
pub(super) fn measure(cluster: &Cluster, one: Duration, table: &mut Table) -> Result<()> {
    let first = &cluster.bootstrap;
    let fill = format!(
        "set -e; for n in $(seq {OBJECTS}); do head -c {BYTES} /dev/urandom | base64 -w0 > /root/blob; \
         kubectl -n default create configmap blob-$n --from-file=/root/blob >/dev/null; done; rm /root/blob; mkdir -p /root/backups"
    );
    first.sh(&fill).context("cannot fill etcd")?;
    let made = first.run(&[
        "ctl",
        "backup",
        "create",
        "--out",
        "/root/backups",
        "-o",
        "json",
    ])?;
    let made: MadeBackup = from_text(&made)?;
    let backup = fs::read(first.file(&made.path))?;
    ensure!(
        backup.len() > 100_000_000,
        "the backup has only {} bytes",
        backup.len()
    );

    let all: Vec<String> = (cluster.hosts().iter())
        .map(|host| host.spec.name.clone())
        .collect();
    cluster.lab.power_off(&all, true)?;
    cluster
        .lab
        .power_on(std::slice::from_ref(&first.spec.name))?;
    fs::write(first.file(FILE), &backup)?;
    let words = [
        &INSTALL[..],
        &["--restore", FILE, "--ca-hash", &made.ca_hash, "--yes"],
    ]
    .concat();
    let start = Instant::now();
    if !first.show(&words)?.success() {
        bail!("the restore failed; again: {}", words.join(" "));
    }
    let time = start.elapsed();
    let back = first.sh("kubectl -n default get configmap -o name | grep -c /blob-")?;
    ensure!(
        back.trim() == OBJECTS.to_string(),
        "{back} objects are back"
    );
    first.run(&[CTL, "etcd", "status"])?;
    table.against(
        "restore of 100 MB on one host, to the API",
        time,
        ("bootstrap", one),
        RESTORE,
    );
    Ok(())
}
