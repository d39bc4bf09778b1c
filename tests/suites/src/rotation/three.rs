//! CAs of three control planes are replaced one host after the other, while clients write through
//! the virtual address.

use anyhow::{Result, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::wait;

use super::{CA, old_has_left, old_is_refused, page, rotate, settled, under_writes};
use crate::cluster::{PODS, nothing_left};
use crate::ha::{GAP, STANDBYS, at_the_vip, is_complete, wait_for_followers};
use crate::lifetimes::is_served;
use crate::test::{Counts, Test};

pub(super) const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "rotation: the CA of Kubernetes is replaced on three control planes, and no client is refused",
        run: kubernetes,
    },
    Test {
        name: "rotation: the CA of etcd is replaced on three control planes, and no write is lost",
        run: etcd,
    },
    Test {
        name: "rotation: another highstate changes nothing on three control planes",
        run: settled,
    },
    Test {
        name: "rotation: nothing tried to leave three control planes",
        run: nothing_left,
    },
];

/// Certificates of the CA of Kubernetes on each host, and those of a control plane.
pub(super) const OF_HOSTS: &[&str] = &["/var/lib/kubelet/pki/kubelet-client-current.pem"];
pub(super) const OF_CONTROL_PLANES: &[&str] = &[
    "/etc/kubernetes/pki/apiserver.crt",
    "/etc/kubernetes/pki/apiserver-kubelet-client.crt",
];
/// The CA of etcd, and its certificates on a control plane.
pub(super) const ETCD_CA: &str = "/etc/kubernetes/pki/etcd/ca.crt";
pub(super) const OF_ETCD: &[&str] = &[
    "/etc/kubernetes/pki/etcd/server.crt",
    "/etc/kubernetes/pki/etcd/peer.crt",
    "/etc/kubernetes/pki/apiserver-etcd-client.crt",
];

/// Checks that a CA has signed certificates of a host.
pub(super) fn verify(host: &Host, ca: &str, files: &[&str]) -> Result<()> {
    host.run(&[&["openssl", "verify", "-CAfile", ca], files].concat())?;
    Ok(())
}

/// All control planes serve, and the standbys follow the master.
fn is_whole(cluster: &Cluster) -> Result<()> {
    wait::until("all hosts to serve", PODS, || is_complete(cluster))?;
    wait_for_followers(&cluster.bootstrap, &STANDBYS)?;
    Ok(())
}

fn kubernetes(cluster: &Cluster) -> Result<Counts> {
    is_whole(cluster)?;
    let (time, notes) = under_writes(cluster, |host| page::ROTATE.run(host).map(drop))?;
    println!("  the guide's commands took {} s", time.as_secs());
    notes.check(cluster)?;
    old_is_refused(&cluster.bootstrap)?;
    old_has_left(cluster)?;
    is_whole(cluster)?;
    for host in cluster.hosts() {
        verify(host, CA, OF_HOSTS)?;
    }
    for host in cluster.control_planes() {
        verify(host, CA, OF_CONTROL_PLANES)?;
        is_served(host)?;
    }
    Ok(Counts::ONE)
}

fn etcd(cluster: &Cluster) -> Result<Counts> {
    let first = &cluster.bootstrap;
    let before = first.run(&["cat", ETCD_CA])?;
    let measured = at_the_vip(cluster, first, "etcd-ca", || rotate(first, "etcd", &[]))?;
    measured.check("the CA of etcd is replaced", GAP)?;
    is_whole(cluster)?;
    let new = first.run(&["cat", ETCD_CA])?;
    let number = new.matches("BEGIN").count();
    ensure!(before != new && number == 1, "{number} in {ETCD_CA}: {new}");
    for host in cluster.control_planes() {
        let own = host.run(&["cat", ETCD_CA])?;
        ensure!(own == new, "{}: {own}", host.spec.name);
        verify(host, ETCD_CA, OF_ETCD)?;
    }
    Ok(Counts::ONE)
}
