//! The API without a virtual address: through a proxy on each node without a control plane.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::{Cluster, DOCUMENT};
use halite_lab::wait;

use super::losses::wait_for_one_holder;
use super::{BACK, is_complete, losses};
use crate::test::Counts;

/// The lines of the document with the address, and without it.
pub(super) const HELD: &str = "  vip: 10.10.0.100\n  keepalived: true\n";
pub(super) const NONE: &str = "  endpoint: api.demo.internal\n";

/// From the address to the proxies, a loss of each API server in turn, and back.
pub(super) fn lead_to_those_that_answer(cluster: &Cluster) -> Result<Counts> {
    with_proxies(cluster, losses::of_proxies)
}

/// Does something on the cluster while it has proxies instead of the virtual address.
///
/// # Errors
/// The action fails, or the name of the API does not resolve to the proxies, or not back.
pub fn with_proxies<T>(cluster: &Cluster, run: impl FnOnce(&Cluster) -> Result<T>) -> Result<T> {
    let document = fs::read_to_string(cluster.bootstrap.file(DOCUMENT))?;
    ensure!(document.contains(HELD), "the document has no address");
    declare(cluster, &document.replace(HELD, NONE))?;
    let result = leads_to(cluster).and_then(|address| {
        ensure!(address == "127.0.0.1", "the name resolves to {address}");
        run(cluster)
    });
    declare(cluster, &document)?;
    wait_for_one_holder(cluster)?;
    ensure!(
        leads_to(cluster)? == "10.10.0.100",
        "the name does not resolve to the address again"
    );
    let left = cluster.worker.sh("systemctl is-active haproxy || true")?;
    ensure!(left.trim() == "inactive", "haproxy is {left}");
    result
}

/// Makes this the cluster document, and applies it to all hosts.
pub(super) fn declare(cluster: &Cluster, document: &str) -> Result<()> {
    fs::write(cluster.bootstrap.file(DOCUMENT), document)?;
    cluster.bootstrap.run(&["ctl", "highstate"])?;
    wait::until("all nodes to be Ready", BACK, || is_complete(cluster))
}

/// The address to which the API's name resolves on the worker.
pub(super) fn leads_to(cluster: &Cluster) -> Result<String> {
    let line = cluster
        .worker
        .run(&["getent", "ahostsv4", "api.demo.internal"])?;
    let address = line.split_whitespace().next();
    Ok(address.context("the name does not resolve")?.to_owned())
}
