//! The API without a virtual address: through a proxy on each node without a control plane.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::{Cluster, DOCUMENT};
use halite_lab::wait;

use super::losses::{Way, kill, under_writes, wait_for_one_holder};
use super::{BACK, is_complete};
use crate::test::Counts;

/// The lines of the document with the address, and those without.
const HELD: &str = "  vip: 10.10.0.100\n  keepalived: true\n";
const NONE: &str = "  endpoint: api.demo.internal\n";
/// Limit of the gap: three times the target of the bench.
const KILLED: Duration = Duration::from_secs(3);

/// From the address to the proxies, a loss of each API server in turn, and back.
pub(super) fn lead_to_those_that_answer(cluster: &Cluster) -> Result<Counts> {
    let document = fs::read_to_string(cluster.bootstrap.file(DOCUMENT))?;
    ensure!(document.contains(HELD), "the document has no address");
    declare(cluster, &document.replace(HELD, NONE))?;
    let result = under_losses(cluster);
    declare(cluster, &document)?;
    wait_for_one_holder(cluster)?;
    ensure!(
        leads_to(cluster)? == "10.10.0.100",
        "the name does not lead back"
    );
    let left = cluster.worker.sh("systemctl is-active haproxy || true")?;
    ensure!(left.trim() == "inactive", "haproxy is {left}");
    result
}

fn declare(cluster: &Cluster, document: &str) -> Result<()> {
    fs::write(cluster.bootstrap.file(DOCUMENT), document)?;
    cluster.bootstrap.run(&["ctl", "highstate"])?;
    wait::until("all nodes to be Ready", BACK, || is_complete(cluster))
}

/// The address to which the API's name leads on the worker.
fn leads_to(cluster: &Cluster) -> Result<String> {
    let line = cluster
        .worker
        .run(&["getent", "ahostsv4", "api.demo.internal"])?;
    let address = line.split_whitespace().next();
    Ok(address.context("the name leads nowhere")?.to_owned())
}

fn under_losses(cluster: &Cluster) -> Result<Counts> {
    ensure!(
        leads_to(cluster)? == "127.0.0.1",
        "the name leads elsewhere"
    );
    for host in cluster.control_planes() {
        let prefix = format!("proxy-{}", host.spec.name);
        under_writes(cluster, Way::Proxy, &prefix, KILLED, |_| {
            kill(host, "kube-apiserver")
        })?;
        wait::until("the API server to be back", BACK, || is_complete(cluster))?;
    }
    Ok(Counts::ONE)
}
