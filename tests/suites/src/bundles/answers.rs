//! The bundle that the cluster was made from, and the answers of `ctl` about bundles.

use anyhow::{Context as _, Result};
use halite_lab::cluster::{CTL, Cluster};
use serde_json::Value;

/// The version of the bundle that the cluster was made from.
pub(super) const FIRST: &str = env!("CARGO_PKG_VERSION");

/// Runs `ctl` on the bootstrap host and parses the document that it prints.
pub(super) fn ctl(cluster: &Cluster, args: &[&str]) -> Result<Value> {
    let all = [&[CTL, "-o", "json"], args].concat();
    let text = cluster.bootstrap.run(&all)?;
    serde_json::from_str(&text)
        .with_context(|| format!("ctl {} printed no JSON: {text}", args.join(" ")))
}
