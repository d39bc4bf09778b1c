//! The permanent retirement of the first host, with the address, the master and its member of etcd.

use std::time::Duration;

use anyhow::Result;
use halite_lab::cluster::Cluster;
use halite_lab::wait;
use halite_suites::ha;
use halite_suites::ha::is_complete;

use super::Table;

/// The longest gap of a write loop through the virtual address.
const GAP: Duration = Duration::from_secs(5);
/// Limit for hosts to be back: a kubelet may wait for five minutes before it restarts a pod that
/// exited several times.
const BACK: Duration = Duration::from_secs(420);

/// Adds the hosts again that the restore on the first one left out, and moves everything off the
/// first one. This is the last measurement: the first host is bare afterwards.
pub(super) fn measure(cluster: &Cluster, table: &mut Table) -> Result<()> {
    let first = &cluster.bootstrap.spec.name;
    let others: Vec<String> = (cluster.hosts().iter())
        .map(|host| host.spec.name.clone())
        .filter(|name| name != first)
        .collect();
    cluster.lab.power_on(&others)?;
    cluster.join(&["cp-2", "cp-3"])?;
    cluster.join(&["worker-1"])?;
    wait::until("all hosts to be back", BACK, || is_complete(cluster))?;
    let measured = ha::first_host_leaves(cluster)?;
    table.gap(
        "longest gap of a write loop, ctl master retire of the first host",
        &measured,
        GAP,
    );
    Ok(())
}
