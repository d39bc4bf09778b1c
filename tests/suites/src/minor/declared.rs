//! The declarations of an operator before the upgrade: an addon, a chart of the bundle, and own
//! states.

use std::fs;

use anyhow::{Result, ensure};
use halite_lab::cluster::Cluster;
use halite_upstream::chart;

use crate::bundles::chart as running_chart;
use crate::checks::nothing_to_do;
use crate::declare::declare;
use crate::repair::highstate;
use crate::{addons, guide};

/// The file of the own states, and its content.
const FILE: &str = "/etc/halite-upgraded";
const CONTENT: &str = "kept through the upgrade";

/// Declares them, and applies them on all hosts.
///
/// # Errors
/// One does not work.
pub(super) fn install(cluster: &Cluster) -> Result<()> {
    declare(cluster, "addons", "{metricsServer: true}")?;
    declare(cluster, "charts", &format!("[{}]", chart::NAME))?;
    declare(cluster, "custom", &format!("{{text: {CONTENT}}}"))?;
    let sls = format!("{FILE}:\n  file.managed:\n    - contents: '{{{{ pillar.custom.text }}}}'\n");
    guide::own_states(cluster, &sls)?;
    highstate(cluster, &[])?;
    works(cluster)?;
    nothing_to_do(&cluster.bootstrap)
}

/// Removes the file of the own states on the worker, for the upgrade to make it again. Returns its
/// path.
///
/// # Errors
/// It does not exist.
pub(super) fn lose_own_file(cluster: &Cluster) -> Result<&'static str> {
    fs::remove_file(cluster.worker.file(FILE))?;
    Ok(FILE)
}

/// Checks that nodes and pods have metrics, that the chart's pods answer with the declared value, and
/// that each host has the file of the own states.
///
/// # Errors
/// The first that does not work.
pub(super) fn works(cluster: &Cluster) -> Result<()> {
    addons::measured(cluster)?;
    running_chart::answers(cluster)?;
    for host in cluster.hosts() {
        let text = host.run(&["cat", FILE])?;
        ensure!(text.trim() == CONTENT, "{}: {text:?}", host.spec.name);
    }
    Ok(())
}
