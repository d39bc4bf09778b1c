//! Power cuts of a whole host. Afterwards the operator only switches it on.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use halite_lab::cluster::{BOOTSTRAP, Cluster, WORKER};
use halite_lab::host::Host;
use halite_lab::{command, wait};
use serde_json::Value;

use super::super::repair;
use crate::health;
use crate::test::Counts;

/// Limit from power-on to Ready: etcd, API server, network, all pods.
const BACK: Duration = Duration::from_secs(360);

/// Cuts the worker's power.
pub fn worker(cluster: &Cluster) -> Result<Counts> {
    comes_back(cluster, &cluster.worker, WORKER)
}

/// Cuts the power of the bootstrap host, on which everything else depends.
pub fn bootstrap(cluster: &Cluster) -> Result<Counts> {
    comes_back(cluster, &cluster.bootstrap, BOOTSTRAP)
}

fn comes_back(cluster: &Cluster, host: &Host, name: &str) -> Result<Counts> {
    while_off(cluster, host, name, || Ok(()))?;
    repair::quiet(cluster)?;
    Ok(Counts::ONE)
}

/// Cuts the power of a host, does something while it is off, switches it on, and waits until it has
/// come back by itself.
///
/// # Errors
/// The action fails, or the host does not come back.
pub(crate) fn while_off(
    cluster: &Cluster,
    host: &Host,
    name: &str,
    act: impl FnOnce() -> Result<()>,
) -> Result<()> {
    repair::answering(cluster)?;
    let pods = repair::pods(cluster)?;
    repair::settled(cluster, pods)?;
    host.power_cut()?;
    let cut = now()?;
    let outcome = act();
    // Also after a failure: the tests after this one need the host.
    host.boot(&cluster.lab.router)?;
    outcome?;
    // The API may still show the state before the cut: trust it once the kubelet has renewed its
    // lease, and the containers have been started, after the cut.
    wait::until(&format!("{name} to come back"), BACK, || {
        back(cluster, name, &cut)
    })?;
    repair::settled(cluster, pods)?;
    repair::answering(cluster)?;
    health::all_answer(cluster)
}

/// The current time in the API's form, to the second: `2026-01-02T03:04:05`. Texts of that form
/// compare as times.
fn now() -> Result<String> {
    Ok(command::run("date", &["-u", "+%FT%T"])?.trim().to_owned())
}

fn seconds(time: &str) -> &str {
    time.split(['.', 'Z']).next().unwrap_or_default()
}

fn back(cluster: &Cluster, name: &str, cut: &str) -> Result<()> {
    let lease = [
        "get",
        "lease",
        name,
        "-n",
        "kube-node-lease",
        "-o",
        "jsonpath={.spec.renewTime}",
    ];
    let renewed = cluster.kubectl(&lease)?;
    ensure!(
        seconds(&renewed) > cut,
        "the lease of {name} was renewed last at {renewed}"
    );
    // The containers of a completed pod are not started again.
    let selector = format!("--field-selector=spec.nodeName={name},status.phase!=Succeeded");
    let list: Value =
        serde_json::from_str(&cluster.kubectl(&["get", "pods", "-A", &selector, "-o", "json"])?)?;
    for pod in list["items"].as_array().context("no list of pods")? {
        let containers = pod["status"]["containerStatuses"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        ensure!(
            !containers.is_empty(),
            "{} has no container",
            pod["metadata"]["name"]
        );
        for container in containers {
            let started = container["state"]["running"]["startedAt"]
                .as_str()
                .unwrap_or_default();
            let name = &container["name"];
            ensure!(
                seconds(started) >= cut,
                "{name} of {} was started {started:?}",
                pod["metadata"]["name"]
            );
        }
    }
    Ok(())
}
