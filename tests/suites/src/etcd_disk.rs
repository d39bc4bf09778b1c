//! A small file system under the data of a host's member of etcd.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::{CTL, Cluster};
use halite_lab::host::Host;
use halite_lab::wait;

use crate::health;

/// The directory with the data of a member.
pub(crate) const DATA: &str = "/var/lib/etcd";
/// The space in MiB before it is filled: etcd may take two further segments of its log, of 64 MiB
/// each, at its start.
pub(crate) const ROOM: u32 = 192;

/// Limit for etcd to exit when it is stopped.
const END: Duration = Duration::from_secs(90);
/// Limit for `ctl health` to name the disk.
const NAMED: Duration = Duration::from_secs(60);

/// Stops etcd, if it runs, on a host whose kubelet, which would restart it, is stopped.
const STOP: &str = "systemctl stop kubelet && { pkill -TERM -x etcd || true; }";

/// Does something while the member of etcd on a host is stopped.
pub(crate) fn without_etcd<T>(host: &Host, act: impl FnOnce() -> Result<T>) -> Result<T> {
    let stopped = host
        .sh(STOP)
        .and_then(|_| wait::until("etcd to stop", END, || host.sh("! pgrep -x etcd").map(drop)));
    let done = stopped.and_then(|()| act());
    host.run(&["systemctl", "start", "kubelet"])?;
    done
}

/// `ctl health` and `ctl status` show the full disk of that host, and the remedy.
pub(crate) fn is_named(cluster: &Cluster, host: &Host) -> Result<()> {
    let name = &host.spec.name;
    let text = format!("MiB are free on the file system of {DATA} on {name}");
    let remedy = format!("free space there, or make it larger, on {name}");
    wait::until("the health to name the disk", NAMED, || {
        let (code, health) = health::health(cluster)?;
        let found = health::finding(&health, "etcd-disk");
        let found = found.with_context(|| format!("not found: {health:#?}"))?;
        let advice = found.remedy.as_deref().unwrap_or_default();
        ensure!(
            code == Some(1) && found.message.contains(&text) && advice.contains(&remedy),
            "exit code {code:?}: {found:#?}"
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
