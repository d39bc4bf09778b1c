//! The store's file system is full: nothing can be changed and `ctl` says why, the cluster goes on,
//! and with room again so does Halite.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::{CTL, Cluster};
use halite_lab::wait;

use super::{ping, repair};
use crate::test::Counts;

const STORE: &str = "/var/lib/halite/master";
const ASIDE: &str = "/root/halite-test-store";

/// Limit for the master to answer after a start.
const START: Duration = Duration::from_secs(90);

/// Moves the store to a small file system, fills it, and moves it back.
pub(super) fn goes_on(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    host.sh(&format!(
        "systemctl stop halite-master && rm -rf {ASIDE} && cp -a {STORE} {ASIDE} && \
         size=$(( $(du -sk {STORE} | cut -f1) + 32768 )) && \
         mount -t tmpfs -o size=${{size}}k,mode=$(stat -c %a {STORE}) halite-test {STORE} && \
         chown --reference={ASIDE} {STORE} && cp -a {ASIDE}/. {STORE} && systemctl start halite-master"
    ))?;
    let outcome = answering(cluster).and_then(|()| while_full(cluster));
    // The tests after this one need the store on its own file system, with what was stored since.
    host.sh(&format!(
        "systemctl stop halite-master; rm -f {STORE}/fill; rm -rf {ASIDE} && cp -a {STORE} {ASIDE} && umount {STORE} && \
         find {STORE} -mindepth 1 -delete && cp -a {ASIDE}/. {STORE} && rm -rf {ASIDE} && systemctl start halite-master"
    ))?;
    outcome?;
    answering(cluster)?;
    repair::quiet(cluster).context("with the store where it was")?;
    Ok(Counts::ONE)
}

fn answering(cluster: &Cluster) -> Result<()> {
    wait::until("the minions", START, || ping(cluster, &[]))
}

fn while_full(cluster: &Cluster) -> Result<()> {
    let host = &cluster.bootstrap;
    host.sh(&format!(
        "! dd if=/dev/zero of={STORE}/fill bs=64k 2>/dev/null; ! sh -c 'echo x >> {STORE}/fill' 2>/dev/null"
    ))?;
    let output = host.output(&[CTL, "highstate"])?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    ensure!(
        !output.status.success() && text.contains("the master's store has no room"),
        "ctl highstate ended with {}: {text}",
        output.status
    );
    let status = host.output(&[CTL, "status"])?;
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    ensure!(
        status.contains("0 MiB are free on the file system"),
        "ctl status does not say it: {status}"
    );
    // The cluster takes changes.
    cluster.kubectl(&["create", "configmap", "halite-test-full"])?;
    cluster.kubectl(&["delete", "configmap", "halite-test-full"])?;
    host.run(&["rm", &format!("{STORE}/fill")])?;
    repair::quiet(cluster).context("with room again, the master not restarted")
}
