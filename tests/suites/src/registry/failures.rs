//! Failures of a server of bundles, each undone on drop.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::wait;

/// nginx configuration for a slow server, so that a transfer can be interrupted: nginx's own limit
/// for each connection.
const SLOW: &str = "/etc/nginx/conf.d/halite-lab-slow.conf";

/// Makes a host serve slowly; undone on drop.
pub(super) struct Slow<'a>(&'a Host);

impl<'a> Slow<'a> {
    pub(super) fn new(host: &'a Host) -> Result<Self> {
        fs::write(host.file(SLOW), "limit_rate 3m;\n")?;
        let slow = Self(host);
        host.sh("systemctl reload nginx")?;
        Ok(slow)
    }
}

impl Drop for Slow<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.0.file(SLOW));
        let _ = self.0.sh("systemctl restart nginx");
    }
}

/// A host whose server is stopped; undone on drop.
pub(super) struct Dead<'a>(&'a Host);

impl<'a> Dead<'a> {
    pub(super) fn new(host: &'a Host) -> Result<Self> {
        let dead = Self(host);
        host.sh("systemctl kill --signal=KILL nginx")?;
        wait::promptly("nginx to be gone", Duration::from_secs(15), || {
            match host.sh("pgrep -x nginx || true") {
                Ok(text) if text.trim().is_empty() => Ok(()),
                other => Err(anyhow!("{other:?}")),
            }
        })?;
        Ok(dead)
    }
}

impl Drop for Dead<'_> {
    fn drop(&mut self) {
        let _ = self
            .0
            .sh("systemctl reset-failed nginx; systemctl start nginx");
    }
}

/// A host whose server's packets are dropped without an answer; undone on drop.
pub(super) struct Silent<'a>(&'a Host);

impl<'a> Silent<'a> {
    pub(super) fn new(host: &'a Host) -> Result<Self> {
        let silent = Self(host);
        host.sh(
            "nft add table inet halite_lab && nft 'add chain inet halite_lab in { type filter hook input priority -300; }' && \
             nft add rule inet halite_lab in tcp dport 4551 drop",
        )?;
        Ok(silent)
    }
}

impl Drop for Silent<'_> {
    fn drop(&mut self) {
        let _ = self.0.sh("nft delete table inet halite_lab");
    }
}

/// Makes the worker use the first host's server before its own; undone on drop.
pub(super) struct Swapped {
    file: PathBuf,
    text: String,
}

impl Swapped {
    pub(super) fn new(cluster: &Cluster) -> Result<Self> {
        let (first, own) = (
            cluster.bootstrap.control_plane_address(),
            cluster.worker.control_plane_address(),
        );
        let file = cluster
            .worker
            .file("/etc/containerd/certs.d/_default/hosts.toml");
        let text = fs::read_to_string(&file)?;
        let swapped = text
            .replace(&first, "FIRST")
            .replace(&own, &first)
            .replace("FIRST", &own);
        ensure!(swapped != text, "{text}");
        fs::write(&file, swapped)?;
        Ok(Self { file, text })
    }
}

impl Drop for Swapped {
    fn drop(&mut self) {
        let _ = fs::write(&self.file, &self.text);
    }
}
