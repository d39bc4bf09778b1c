//! Claims of volumes that only one host can use.

use anyhow::{Result, ensure};
use halite_lab::cluster::{CTL, Cluster, WORKER};
use halite_lab::wait;

use crate::addons::holds_data;
use crate::checks::refused;
use crate::cluster::PODS;
use crate::declare::declare;
use crate::repair::highstate;
use crate::test::Counts;

/// The part of the message.
const NAMED: &str = "volumes that no other host can use, of the claims default/kept-data";

pub(super) fn are_named(cluster: &Cluster) -> Result<Counts> {
    declare(cluster, "addons", "{localPath: true}")?;
    highstate(cluster, &[])?;
    holds_data(cluster)?;
    let outcome = refuses(cluster);
    cluster.kubectl(&["delete", "-f", "/root/volume.yaml", "--wait=true"])?;
    wait::until("the volume to be removed", PODS, || {
        let left = cluster.kubectl(&["get", "pv", "-o", "name"])?;
        ensure!(left.trim().is_empty(), "{left}");
        Ok(())
    })?;
    declare(cluster, "addons", "")?;
    highstate(cluster, &[])?;
    outcome?;
    Ok(Counts::ONE)
}

fn refuses(cluster: &Cluster) -> Result<()> {
    let first = &cluster.bootstrap;
    let remove = [CTL, "node", "remove", WORKER, "--yes"];
    // With the flag for emptyDir, only the claim blocks the removal.
    let further = ["--delete-emptydir-data"];
    refused(
        first,
        &[&remove[..], &further].concat(),
        &["it takes --force --cluster demo", NAMED],
    )?;
    // The host is not dead, but the possible loss is reported first.
    let replace = [
        CTL,
        "node",
        "replace",
        WORKER,
        "--force",
        "--cluster",
        "demo",
        "--no-wait",
    ];
    refused(first, &replace, &[NAMED])?;
    // Nothing was touched.
    let node = [
        "get",
        "node",
        WORKER,
        "-o",
        "jsonpath={.spec.unschedulable}",
    ];
    let cordoned = cluster.kubectl(&node)?;
    ensure!(cordoned.is_empty(), "{WORKER} is cordoned");
    let still = cluster.kubectl(&["exec", "keeps-data", "--", "cat", "/data/it"])?;
    ensure!(still.trim() == "written by keeps-data", "{still:?}");
    Ok(())
}
