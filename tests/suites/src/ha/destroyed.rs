//! The destruction of a cluster that has standbys of the master, and of one with a host that is
//! off.

use anyhow::{Result, ensure};
use halite_lab::cluster::{CLUSTER, Cluster};
use halite_lab::host::Host;
use halite_lab::layout::HA;
use halite_lab::wait;

use super::leaving::wait_until_lost;
use super::standbys::{STANDBYS, wait_for_followers};
use super::{BACK, is_complete};
use crate::bare::{has_no_packages_or_data, is_bare, wait_until_bare};
use crate::checks::refused;
use crate::destroy::{DESTROY, killed_and_repeated};
use crate::test::Counts;

/// The host that is off: a control plane, a member and a standby.
const OFF: &str = "cp-3";

/// Killed in the middle and repeated: nothing is left on any host, including those of the standbys,
/// and the hosts form a cluster again.
pub(super) fn with_standbys(cluster: &Cluster) -> Result<Counts> {
    wait_for_followers(&cluster.bootstrap, &STANDBYS)?;
    killed_and_repeated(cluster)?;
    for host in cluster.hosts() {
        is_gone(cluster, host)?;
    }
    made_again(cluster)?;
    Ok(Counts::ONE)
}

/// A host that is off is named in a refusal. When it is skipped, the output names it and the files
/// that stay there; the others are bare.
pub(super) fn with_a_host_off(cluster: &Cluster) -> Result<Counts> {
    let (first, off) = (&cluster.bootstrap, cluster.host(OFF)?);
    wait_for_followers(first, &STANDBYS)?;
    let name = [OFF.to_owned()];
    cluster.lab.power_off(&name, false)?;
    wait_until_lost(cluster, OFF)?;
    refused(
        first,
        &DESTROY,
        &[format!("not connected: {OFF}").as_str(), "--skip-offline"],
    )?;
    cluster.kubectl(&["get", "nodes"])?;
    let further = ["--skip-offline", "--packages", "--wipe-data"];
    let output = first.output(&[&DESTROY[..], &further].concat())?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    println!("  {}", said.trim().replace('\n', "\n  "));
    ensure!(output.status.code() == Some(0), "{}", output.status);
    for part in [
        format!("{OFF} is not connected: what Halite put there stays"),
        "Halite is completely removed from the other hosts of demo".to_owned(),
    ] {
        ensure!(said.contains(&part), "{part} is not in: {said}");
    }
    ensure!(
        !said.contains("ctl highstate"),
        "a remedy that does not work: {said}"
    );
    for host in cluster.hosts() {
        if host.spec.name != OFF {
            is_gone(cluster, host)?;
        }
    }
    // Those files stay until its disk is erased.
    cluster.lab.power_on(&name)?;
    off.sh("test -e /usr/local/bin/halite-minion && test -e /etc/kubernetes/manifests/etcd.yaml")?;
    cluster.lab.power_off(&name, true)?;
    cluster.lab.power_on(&name)?;
    made_again(cluster)?;
    Ok(Counts::ONE)
}

/// Neither Halite nor packages and data are left on a host.
fn is_gone(cluster: &Cluster, host: &Host) -> Result<()> {
    wait_until_bare(host)?;
    let others = (cluster.hosts().iter())
        .map(|other| other.spec.name.clone())
        .filter(|name| *name != host.spec.name)
        .chain(["api[.]demo".to_owned()])
        .collect::<Vec<_>>()
        .join("|");
    is_bare(host, &others)?;
    has_no_packages_or_data(host)
}

/// Makes a cluster of the bare hosts, like the first time.
pub(super) fn made_again(cluster: &Cluster) -> Result<()> {
    cluster.bootstrap(CLUSTER)?;
    for group in HA.joins {
        cluster.join(group)?;
    }
    wait::until("all hosts to serve", BACK, || is_complete(cluster))?;
    cluster.wait_for_pods(BACK)?;
    wait_for_followers(&cluster.bootstrap, &STANDBYS).map(drop)
}
