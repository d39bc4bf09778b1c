//! The file system of the bundle in use no longer answers: minions answer and the cluster
//! continues, and when it answers again everything else does, too.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd as _;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::{BOOTSTRAP, CTL, Cluster, WORKER};
use halite_lab::wait;
use rustix::io::FdFlags;

use super::{LIMIT, ping, repair};
use crate::test::Counts;

/// Succeeds if a thread of the master waits for a file system.
const WAITING: &str =
    "grep -q '^State:.*D' /proc/$(systemctl show -p MainPID --value halite-master)/task/*/status";

/// Mounts over the bundle a file system whose server never answers.
pub(super) fn stops_no_ping(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    let found = host.sh("ls -d /var/lib/halite/bundles/*/manifest.json | head -n 1")?;
    let bundle = found
        .trim()
        .strip_suffix("/manifest.json")
        .context("the site has no bundle")?;
    let server = mount(cluster, bundle)?;
    let outcome = while_hung(cluster);
    // Without its server every request to the file system fails.
    drop(server);
    host.run(&["umount", "--lazy", bundle])?;
    outcome?;
    wait::until("the minions", LIMIT, || ping(cluster, &[]))?;
    repair::quiet(cluster).context("with the bundle back")?;
    Ok(Counts::ONE)
}

fn while_hung(cluster: &Cluster) -> Result<()> {
    for _ in 0..3 {
        ping(cluster, &[])?;
    }
    // It needs files of the bundle, and waits for them.
    let mut waiting = cluster
        .bootstrap
        .command(&[CTL, "highstate", WORKER, "--timeout", "1m"])?
        .spawn()?;
    let asked = wait::until("the master to wait for the bundle", LIMIT, || {
        cluster.bootstrap.sh(WAITING).map(drop)
    })
    .and_then(|()| {
        (0..3).try_for_each(|_| ping(cluster, &[BOOTSTRAP]).and_then(|()| ping(cluster, &[WORKER])))
    });
    let served = cluster.kubectl(&["get", "nodes"]);
    // Interrupted as by an operator.
    waiting.kill()?;
    waiting.wait()?;
    asked.context("while a highstate waited for the bundle")?;
    let nodes = served?;
    ensure!(nodes.contains(WORKER), "no {WORKER} in: {nodes}");
    Ok(())
}

/// Mounts a FUSE file system over a directory of the bootstrap host. Its server is this process,
/// which reads no request, so each one waits until the returned file is closed.
fn mount(cluster: &Cluster, directory: &str) -> Result<File> {
    let server = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .context("cannot open /dev/fuse")?;
    // mount(8) on the host gets it from its parent.
    rustix::io::fcntl_setfd(&server, FdFlags::empty())?;
    let options = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,allow_other",
        server.as_raw_fd()
    );
    let status = cluster
        .bootstrap
        .command(&[
            "mount",
            "-i",
            "-t",
            "fuse",
            "-o",
            &options,
            "halite-test",
            directory,
        ])?
        .status()?;
    rustix::io::fcntl_setfd(&server, FdFlags::CLOEXEC)?;
    ensure!(status.success(), "mount ended with {status}");
    Ok(server)
}
