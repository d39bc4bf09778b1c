//! Hosts with Debian 13: they join a cluster whose first host has Debian 12, and replace others;
//! and all hosts of another cluster have it.

use std::fs;

use anyhow::{Result, ensure};
use halite_lab::base::Debian;
use halite_lab::cluster::{CLUSTER, Cluster, ISO_DIRECTORY, WORKER};
use halite_lab::host::Host;
use halite_lab::layout::{HA, Layout, TWO};
use halite_lab::progress::Board;
use halite_lab::{Lab, cluster, wait};
use halite_upstream::prepare;
use halite_upstream::versions::{MIXED, NEWEST, Release};

use crate::checks::nothing_to_do;
use crate::cluster::{PODS, STAYING, across_nodes, ensure_servers, nothing_left};
use crate::ha::{GAP, at_the_vip, from_the_router, is_complete, wait_until_lost};
use crate::repair::highstate;
use crate::site::Site;
use crate::test::{Counts, Test, cases, sequence};
use crate::versions::runs;

/// The name of its own lab.
const LAB: &str = "debian";
/// The name of the lab in which all hosts have Debian 13.
const TRIXIE: &str = "trixie";

/// The hosts that have Debian 13 from the start: a control plane and the worker.
const NEWER: [&str; 2] = ["cp-2", WORKER];

/// The host that gets Debian 13 when it is replaced.
const REPLACED: &str = "cp-3";

const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "debian: a control plane and a worker with Debian 13 are like the others",
        run: like_the_others,
    },
    Test {
        name: "debian: a control plane with Debian 13 replaces one with Debian 12, and no write is lost",
        run: replaces,
    },
    Test {
        name: "debian: a worker with Debian 12 replaces one with Debian 13, and the other way round",
        run: worker_replaces,
    },
    Test {
        name: "debian: nothing tried to leave",
        run: nothing_left,
    },
];

/// The tests of a cluster in which all hosts have Debian 13.
const ALL_NEWER: &[Test<Cluster>] = &[
    Test {
        name: "debian: pods on a first host and a worker with Debian 13 reach each other, Services and names",
        run: reached,
    },
    Test {
        name: "debian: another highstate changes nothing on a first host and a worker with Debian 13",
        run: unchanged,
    },
    Test {
        name: "debian: nothing tried to leave a first host with Debian 13",
        run: nothing_left,
    },
];

/// The preflight refuses a first host with Debian 13, because not every bundle has packages for it.
/// That of the test has.
const ALLOWED: [&str; 2] = ["--ignore-preflight", "operating-system"];

/// The site with hosts of both releases.
pub(super) fn site() -> Site {
    Site {
        lab: LAB.to_owned(),
        made: "debian: hosts with Debian 13 join a cluster with Debian 12",
        layout: &HA,
        release: MIXED,
        make,
        tests: sequence(cases(TESTS)),
    }
}

/// The site whose hosts all have Debian 13.
pub(super) fn newer_site() -> Site {
    Site {
        lab: TRIXIE.to_owned(),
        made: "debian: bootstrap and node add with Debian 13",
        layout: &TWO,
        release: MIXED,
        make: make_newer,
        tests: sequence(cases(ALL_NEWER)),
    }
}

fn make(lab: &str, layout: &Layout, release: &Release) -> Result<Cluster> {
    let cluster = booted(lab, layout, release, &NEWER)?;
    cluster.bootstrap(&document())?;
    joined(cluster, layout)
}

fn make_newer(lab: &str, layout: &Layout, release: &Release) -> Result<Cluster> {
    let cluster = booted(lab, layout, release, &layout.names())?;
    let first = &cluster.bootstrap;
    fs::write(first.file("/root/cluster.yaml"), document())?;
    let mut install = cluster::install();
    install.extend(ALLOWED.map(str::to_owned));
    ensure!(first.show(&install)?.success(), "bootstrap failed");
    joined(cluster, layout)
}

/// Boots the bare hosts of a layout; those of these names have Debian 13.
fn booted(lab: &str, layout: &Layout, release: &Release, newer: &[&str]) -> Result<Cluster> {
    let iso_directory = prepare::iso_directory_of(release, &Board::plain())?;
    let cache = halite_lab::cache();
    let lab = Lab::new(lab, &Debian::Bookworm.root(&cache))?;
    lab.down()?;
    let carried = [(iso_directory.as_path(), ISO_DIRECTORY)];
    cluster::boot_mixed(lab, layout, &carried, &Debian::Trixie.root(&cache), newer)
}

/// The cluster document. In nftables mode `nft` of Debian 12 crashes on sets that `nft` of Debian
/// 13 has made. The former is on hosts with Debian 12 and in the lab's image of kube-proxy, and
/// firewalld uses the latter on hosts with Debian 13.
fn document() -> String {
    CLUSTER.replace("kubeProxy:\n", "kubeProxy:\n  mode: iptables\n")
}

/// Adds the other hosts of the layout, and waits for the pods.
fn joined(cluster: Cluster, layout: &Layout) -> Result<Cluster> {
    for group in layout.joins {
        cluster.join(group)?;
    }
    cluster.wait_for_pods(PODS)?;
    Ok(cluster)
}

fn reached(cluster: &Cluster) -> Result<Counts> {
    ensure_servers(cluster, STAYING)?;
    across_nodes(cluster, STAYING)?;
    Ok(Counts::ONE)
}

fn unchanged(cluster: &Cluster) -> Result<Counts> {
    are_complete(cluster, &TWO.names())?;
    let changed = highstate(cluster, &[])?.changed;
    ensure!(
        changed.is_empty(),
        "a highstate changed something: {changed:?}"
    );
    Ok(Counts::ONE)
}

fn like_the_others(cluster: &Cluster) -> Result<Counts> {
    are_complete(cluster, &NEWER)
}

fn replaces(cluster: &Cluster) -> Result<Counts> {
    let written = at_the_vip(cluster, &cluster.bootstrap, "debian", || {
        replace(cluster, REPLACED, Debian::Trixie)
    })?;
    written.check("a control plane is replaced", GAP)?;
    are_complete(cluster, &[&NEWER[..], &[REPLACED]].concat())
}

/// The worker, which has Debian 13, is replaced by one with Debian 12, and that one again by one
/// with Debian 13, while a client on the lab's router writes.
fn worker_replaces(cluster: &Cluster) -> Result<Counts> {
    let all = [&NEWER[..], &[REPLACED]].concat();
    let written = from_the_router(cluster, &cluster.bootstrap, "workers", || {
        replace(cluster, WORKER, Debian::Bookworm)?;
        are_complete(cluster, &[NEWER[0], REPLACED])?;
        replace(cluster, WORKER, Debian::Trixie)?;
        are_complete(cluster, &all).map(drop)
    })?;
    written.check("a worker is replaced twice", GAP)?;
    Ok(Counts::ONE)
}

/// A host is lost with its disks, and is replaced by one with this Debian.
fn replace(cluster: &Cluster, name: &str, debian: Debian) -> Result<()> {
    cluster.lab.power_off(&[name.to_owned()], true)?;
    wait_until_lost(cluster, name)?;
    let base = debian.root(&halite_lab::cache());
    cluster.lab.rebase(name, &base)?;
    cluster.replace(name).map(drop)
}

/// All hosts serve, have the bundle's Kubernetes and packages, and these ones Debian 13; nothing is
/// left to do.
fn are_complete(cluster: &Cluster, newer: &[&str]) -> Result<Counts> {
    wait::until("all hosts to serve", PODS, || is_complete(cluster))?;
    cluster.wait_for_pods(PODS)?;
    for host in cluster.hosts() {
        let name = host.spec.name.as_str();
        let wanted = if newer.contains(&name) { "13" } else { "12" };
        ensure!(
            version(host)? == wanted,
            "{name} has Debian {}",
            version(host)?
        );
        wait::until("the release on a host", PODS, || {
            runs(cluster, host, &NEWEST)
        })?;
    }
    nothing_to_do(&cluster.bootstrap)?;
    wait::until("a status without problems", PODS, || {
        cluster.bootstrap.run(&["ctl", "status"]).map(drop)
    })?;
    Ok(Counts::ONE)
}

/// The version of a host's Debian.
fn version(host: &Host) -> Result<String> {
    let said = host.sh(". /etc/os-release && echo \"$VERSION_ID\"")?;
    Ok(said.trim().to_owned())
}
