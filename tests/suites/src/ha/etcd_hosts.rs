//! Three dedicated etcd hosts behind one control plane: the hosts of the site form such a cluster,
//! lose a member permanently while a client writes, replace it, and form the cluster of the site
//! again.

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::{CLUSTER, CTL, Cluster};
use halite_lab::host::Host;
use halite_lab::wait;

use super::BACK;
use super::destroyed::made_again;
use super::leaving::wait_until_lost;
use super::while_written;
use crate::bare::wait_until_bare;
use crate::checks::nothing_to_do;
use crate::destroy::DESTROY;
use crate::etcd;
use crate::test::Counts;

const SECTION: &str = "etcd: {placement: dedicated, mode: host-service}\n";
/// The hosts of etcd.
const MEMBERS: [&str; 3] = ["cp-2", "cp-3", "worker-1"];
/// The first line of `ctl etcd status` when all of them serve.
const WHOLE: &str = "3 members, 1 may fail";
/// The same while one of them is lost.
const DEGRADED: &str = "3 members, 2 of them serve, none may fail";

pub(super) fn hold_the_cluster(cluster: &Cluster) -> Result<Counts> {
    end(cluster)?;
    cluster.bootstrap(&format!("{CLUSTER}{SECTION}"))?;
    cluster.kubectl(&["create", "configmap", "kept", "--from-literal=by=etcd"])?;
    cluster
        .add(&MEMBERS, "etcd")
        .context("three hosts of etcd")?;
    is_whole(cluster)?;
    nothing_to_do(&cluster.bootstrap)?;

    let (first, lost) = (&cluster.bootstrap, MEMBERS[1]);
    while_written(cluster, first, "etcd-host", || {
        cluster.lab.power_off(&[lost.to_owned()], true)?;
        wait_until_lost(cluster, lost)?;
        wait::until(DEGRADED, BACK, || {
            // The command fails, because there is a problem.
            let said = first.output(&[CTL, "etcd", "status"])?.stdout;
            let said = String::from_utf8_lossy(&said).into_owned();
            ensure!(said.lines().next() == Some(DEGRADED), "{said}");
            Ok(())
        })?;
        cluster.replace(lost).map(drop)
    })?;
    is_whole(cluster)?;
    nothing_to_do(first)?;

    end(cluster)?;
    made_again(cluster)?;
    Ok(Counts::ONE)
}

/// The members are on the three hosts, where nothing else runs, and have the data that predate
/// their joining.
fn is_whole(cluster: &Cluster) -> Result<()> {
    let first = &cluster.bootstrap;
    let status = etcd::status(first, WHOLE)?;
    for name in MEMBERS {
        ensure!(status.contains(name), "{name} is not a member: {status}");
        let host: &Host = cluster.host(name)?;
        host.sh(
            "systemctl --quiet is-active etcd && ! pgrep -x kubelet && ! test -e /etc/kubernetes/manifests",
        )?;
    }
    first.sh("! pgrep -x etcd && ! test -e /var/lib/etcd/member")?;
    etcd::serves(cluster)?;
    let kept = ["get", "configmap", "kept", "-o", "jsonpath={.data.by}"];
    let kept = cluster.kubectl(&kept)?;
    ensure!(kept == "etcd", "the data were not transferred: {kept}");
    first.run(&[CTL, "backup", "create"]).map(drop)
}

/// Removes everything of Halite from all hosts.
fn end(cluster: &Cluster) -> Result<()> {
    let further = ["--packages", "--wipe-data"];
    cluster
        .bootstrap
        .run(&[&DESTROY[..], &further].concat())
        .context("ctl destroy")?;
    for host in cluster.hosts() {
        wait_until_bare(host)?;
    }
    Ok(())
}
