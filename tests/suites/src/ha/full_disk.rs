//! The file system under one member of etcd is full: the others take the writes, `ctl health` names
//! the member, and with room again it serves.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::wait;

use super::losses::{KILLED, NAMESPACE, Way, under_writes, wait_for_one_holder};
use super::{BACK, is_complete, same_content};
use crate::health;
use crate::test::Counts;

const DATA: &str = "/var/lib/etcd";
/// The data's own file system, while a small one is over it.
const ASIDE: &str = "/root/halite-test-etcd";
/// The name by which the small one is found among the mounts.
const SMALL: &str = "halite-test";

/// Ends etcd. The kubelet would start it again.
const STOP: &str = "systemctl stop kubelet; pkill -x etcd || true; \
                    for n in $(seq 300); do pgrep -x etcd >/dev/null || break; sleep 0.1; done; \
                    test -z \"$(pgrep -x etcd)\"";

/// Limit for the disk to be full while etcd writes on it.
const FILLED: Duration = Duration::from_secs(30);

pub(super) fn costs_no_write(cluster: &Cluster) -> Result<Counts> {
    let holder = wait_for_one_holder(cluster)?;
    let first = &cluster.bootstrap.spec.name;
    let planes = cluster.control_planes();
    let mut others = planes
        .iter()
        .filter(|host| ![&holder, first].contains(&&host.spec.name));
    let host = others.next().context("no other control plane")?;
    // Free pages would take the writes for a while.
    let defragment = ["ctl", "etcd", "defrag", "--member", &host.spec.name];
    cluster.bootstrap.run(&defragment)?;
    let outcome = to_small(host)
        .and_then(|()| wait::until("the member on another disk", BACK, || is_complete(cluster)))
        .and_then(|()| filled(cluster, host));
    // The tests after this one need the data where they were.
    let back = from_small(host);
    outcome?;
    back?;
    wait::until("the member where it was", BACK, || is_complete(cluster))?;
    same_content(cluster)?;
    Ok(Counts::ONE)
}

/// Puts a file system of its own over the data, with a copy of them. Mounts are shared on the host: what
/// is mounted over the data must not be mounted over their other place too.
fn to_small(host: &Host) -> Result<()> {
    host.sh(&format!(
        "set -e; {STOP}; mkdir -p {ASIDE}; mount --bind {DATA} {ASIDE}; mount --make-private {ASIDE}; \
         mount -t tmpfs -o size=2g,mode=$(stat -c %a {DATA}) {SMALL} {DATA}; \
         chown --reference={ASIDE} {DATA}; cp -a {ASIDE}/. {DATA}; touch {ASIDE}.copied; systemctl start kubelet"
    ))
    .map(drop)
}

/// Undoes as much of [`to_small`] as was done, with what was written since.
fn from_small(host: &Host) -> Result<()> {
    host.sh(&format!(
        "trap 'systemctl start kubelet' EXIT; set -e; \
         if grep -q '^{SMALL} {DATA} ' /proc/mounts; then {STOP}; rm -f {DATA}/fill; \
         if test -e {ASIDE}.copied; then find {ASIDE} -mindepth 1 -delete; cp -a {DATA}/. {ASIDE}; fi; \
         umount {DATA}; fi; if mountpoint -q {ASIDE}; then umount {ASIDE}; fi; \
         rm -rf --one-file-system {ASIDE} {ASIDE}.copied"
    ))
    .map(drop)
}

/// Fills the member's disk under a loop of writes, and makes room.
fn filled(cluster: &Cluster, host: &Host) -> Result<()> {
    let measured = under_writes(cluster, Way::Vip, "full-disk", |_| {
        wait::until("a full disk", FILLED, || fill(host))?;
        let named = grow(cluster).and_then(|()| is_named(cluster, host));
        host.sh(&format!(
            "mount -o remount,size=2g {DATA} && rm -f {DATA}/fill"
        ))?;
        named
    })?;
    measured.check("full-disk", KILLED)?;
    wait::until("the member with room again", BACK, || is_complete(cluster))?;
    same_content(cluster)
}

/// Leaves no room: the file system becomes as small as its content, and what is left is filled.
fn fill(host: &Host) -> Result<()> {
    host.sh(&format!(
        "mount -o remount,size=$(df --output=used -k {DATA} | tail -n 1 | tr -d ' ')k {DATA} && \
         ! dd if=/dev/zero of={DATA}/fill bs=4k 2>/dev/null"
    ))
    .map(drop)
}

/// Writes what no free page of a database has room for, and removes it.
fn grow(cluster: &Cluster) -> Result<()> {
    let file = "/root/halite-test-large";
    fs::write(cluster.bootstrap.file(file), "x".repeat(900 << 10))?;
    let from = format!("--from-file={file}");
    for n in 0..4 {
        let name = format!("large-{n}");
        cluster.kubectl(&["create", "configmap", &name, "-n", NAMESPACE, &from])?;
        cluster.kubectl(&["delete", "configmap", &name, "-n", NAMESPACE])?;
    }
    fs::remove_file(cluster.bootstrap.file(file))?;
    Ok(())
}

/// Waits until `ctl health` names the member.
fn is_named(cluster: &Cluster, host: &Host) -> Result<()> {
    let name = host.spec.name.as_str();
    wait::until("the health to name the member", BACK, || {
        let (code, health) = health::document(cluster, &["health"])?;
        let finding = health::finding(&health, "etcd-members");
        let finding = finding.with_context(|| format!("not found: {health:#}"))?;
        ensure!(code == Some(1), "exit code {code:?}: {health:#}");
        ensure!(finding["host"] == name, "another member: {finding}");
        Ok(())
    })
}
