//! etcd that is not a static pod: a member as a service of the host, on the cluster that the
//! previous suite has made again; a member on a dedicated host; and an etcd outside of the cluster,
//! with which the cluster is made once more.

mod dedicated;
mod external;
mod service;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::{CLUSTER, CTL, Cluster, DOCUMENT};
use halite_lab::host::Host;
use halite_lab::wait;

use crate::test::Test;

pub(super) use self::service::document;

/// Limit for the API to answer after etcd was away: the kubelet may wait five minutes before it
/// restarts an API server.
const BACK: Duration = Duration::from_secs(360);

/// Limit for each member of etcd to answer `ctl etcd status`, which gives it two seconds each time.
pub(crate) const ANSWER: Duration = Duration::from_secs(90);

pub(super) const TESTS: &[Test<Cluster>] = &[Test {
    name: "etcd: a host service is repaired, and an unknown flag is rolled back",
    run: service::repaired,
}];

/// Further placements, after the others.
pub(super) const PLACEMENTS: &[Test<Cluster>] = &[
    Test {
        name: "etcd: a member becomes a static pod, and a service again, and keeps its data",
        run: service::changed,
    },
    Test {
        name: "etcd: a dedicated host takes over the first host's member, and serves the cluster alone",
        run: dedicated::holds,
    },
    Test {
        name: "etcd: an external etcd serves the cluster",
        run: external::holds,
    },
];

/// The lab's cluster document with a section about etcd.
fn with(section: &str) -> String {
    format!("{CLUSTER}{section}")
}

/// Removes everything of Halite from both hosts, if there is a cluster; packages and images stay.
fn destroy(cluster: &Cluster) -> Result<()> {
    if cluster.bootstrap.file("/etc/halite").exists() {
        let line = [
            CTL,
            "destroy",
            "--force",
            "--cluster",
            "demo",
            "--wipe-data",
        ];
        cluster.bootstrap.run(&line).context("ctl destroy")?;
    }
    for host in [&cluster.bootstrap, &cluster.worker] {
        crate::bare::wait_until_bare(host)?;
    }
    Ok(())
}

/// Waits until the API serves.
pub(crate) fn serves(cluster: &Cluster) -> Result<()> {
    wait::until("the API server", BACK, || {
        cluster.kubectl(&["get", "--raw", "/readyz"]).map(drop)
    })
}

/// Waits until `ctl etcd status` begins with this line; returns the whole output. A member that has
/// just joined or restarted may be silent at first.
pub(crate) fn status(host: &Host, line: &str) -> Result<String> {
    wait::until(line, ANSWER, || {
        let status = host.run(&[CTL, "etcd", "status"])?;
        ensure!(status.lines().next() == Some(line), "{status}");
        Ok(status)
    })
}

/// kubeadm's view of the cluster.
fn cluster_configuration(cluster: &Cluster) -> Result<String> {
    let path = "jsonpath={.data.ClusterConfiguration}";
    let object = ["get", "configmap", "kubeadm-config", "-n", "kube-system"];
    cluster.kubectl(&[&object[..], &["-o", path]].concat())
}

/// Changes the cluster document on the first host; returns the previous one.
fn declare(host: &Host, change: impl FnOnce(&str) -> String) -> Result<String> {
    let file = host.file(DOCUMENT);
    let before = std::fs::read_to_string(&file)?;
    std::fs::write(&file, change(&before))?;
    Ok(before)
}
