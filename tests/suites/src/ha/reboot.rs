//! A planned reboot: the address leaves first, and the host recovers its previous state.

use std::time::Duration;

use anyhow::{Error, Result, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::wait;
use serde_json::Value;

use super::losses::{ApiPath, Measured, under_writes, wait_for_one_holder};
use super::{BACK, is_complete, same_content};
use crate::reboots::reboot;
use crate::test::Counts;

/// Limit of the gap: three times the aim of a planned move. A run in which the machine was held up
/// is repeated.
const PLANNED: Duration = Duration::from_secs(3);

const EMPTY: &str = "--delete-emptydir-data";

/// The end of the message about a host that has the address again.
const TAKEN_BACK: &str = "took the address back";

pub(super) fn of_the_holder(cluster: &Cluster) -> Result<Counts> {
    Measured::check_of("reboot", PLANNED, || {
        let measured = of_another_holder(cluster);
        let taken_back = |error: &Error| error.to_string().ends_with(TAKEN_BACK);
        if measured.as_ref().err().is_some_and(taken_back) {
            // A holder whose API server is slow for two seconds gives the address up by itself. A
            // host that takes it back would do so each time.
            println!("  reboot: again, {}", TAKEN_BACK);
            wait::until("all hosts to serve", BACK, || is_complete(cluster))?;
            return of_another_holder(cluster);
        }
        measured
    })?;
    Ok(Counts::ONE)
}

/// Reboots the control plane that holds the address, by `ctl`. That is not the first host, on which
/// the command runs.
///
/// # Errors
/// An acknowledged write is missing, or the host does not recover its previous state.
pub fn of_another_holder(cluster: &Cluster) -> Result<Measured> {
    let first = cluster.bootstrap.spec.name.as_str();
    if wait_for_one_holder(cluster)? == first {
        // The command runs there. A host that comes back does not take the address again.
        cluster
            .bootstrap
            .run(&["systemctl", "restart", "keepalived"])?;
        wait::until("another holder", BACK, || {
            let holder = wait_for_one_holder(cluster)?;
            ensure!(holder != first, "{holder} holds it");
            Ok(())
        })?;
    }
    let mut lost = String::new();
    let measured = under_writes(cluster, ApiPath::Vip, "reboot", |holder| {
        lost.clone_from(&holder.spec.name);
        reboot(cluster, holder, EMPTY)
    })?;
    let holder = wait_for_one_holder(cluster)?;
    ensure!(holder != lost, "{lost} {TAKEN_BACK}");
    is_as_before(cluster, &lost)?;
    Ok(measured)
}

/// Reboots the last control plane, by `ctl`, while the worker writes through its proxy.
///
/// # Errors
/// An acknowledged write is missing, or the host does not recover its previous state.
pub fn behind_the_proxy(cluster: &Cluster) -> Result<Measured> {
    let mut lost = String::new();
    let measured = under_writes(cluster, ApiPath::Proxy, "reboot-proxy", |host| {
        lost.clone_from(&host.spec.name);
        reboot(cluster, host, EMPTY)
    })?;
    is_as_before(cluster, &lost)?;
    Ok(measured)
}

/// Waits until all hosts serve, and the one that rebooted is schedulable.
fn is_as_before(cluster: &Cluster, lost: &str) -> Result<()> {
    wait::until("all hosts to serve", BACK, || is_complete(cluster))?;
    let node = cluster.kubectl(&["get", "node", lost, "-o", "json"])?;
    let node: Value = serde_json::from_str(&node)?;
    ensure!(
        node["spec"]["unschedulable"].is_null()
            && node["metadata"]["annotations"]["halite/maintenance"].is_null(),
        "{lost} is unschedulable: {}",
        node["spec"]
    );
    same_content(cluster)
}
