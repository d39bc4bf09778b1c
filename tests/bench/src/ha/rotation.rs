//! The rotation of the CA of Kubernetes on three control planes and a worker.

use std::time::Duration;

use anyhow::Result;
use halite_lab::cluster::Cluster;
use halite_suites::rotation;

use super::{Table, seconds};

/// The time of all stages, including the restarts of pods.
const TIME: Duration = Duration::from_secs(360);

/// Rotates the CA while two clients write, and restarts the pods that depend on it.
pub(super) fn measure(cluster: &Cluster, table: &mut Table) -> Result<()> {
    let measured = rotation::timed(cluster)?;
    table.aim(
        "rotation of the CA of Kubernetes with restarts of pods, three control planes and a worker",
        &seconds(measured.time),
        &format!("≤ {} s", TIME.as_secs()),
        measured.time <= TIME,
    );
    table.aim(
        "writes that failed through the virtual address, in the same rotation",
        &measured.failed.to_string(),
        "0",
        measured.failed == 0,
    );
    Ok(())
}
