//! Hosts with Debian 13 in a cluster whose first host has Debian 12: they join, and replace others.

use anyhow::{Result, ensure};
use halite_lab::base::Debian;
use halite_lab::cluster::{CLUSTER, Cluster, ISO_DIRECTORY};
use halite_lab::host::Host;
use halite_lab::layout::{HA, Layout};
use halite_lab::progress::Board;
use halite_lab::{Lab, cluster, wait};
use halite_upstream::prepare;
use halite_upstream::versions::{MIXED, NEWEST, Release};

use crate::checks::nothing_to_do;
use crate::cluster::{PODS, nothing_left};
use crate::ha::{GAP, at_the_vip, is_complete, wait_until_lost};
use crate::site::Site;
use crate::test::{Counts, Test, cases, sequence};
use crate::versions::runs;

/// The name of its own lab.
const LAB: &str = "debian";

/// The hosts that have Debian 13 from the start: a control plane and the worker.
const NEWER: [&str; 2] = ["cp-2", "worker-1"];

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
        name: "debian: nothing tried to leave",
        run: nothing_left,
    },
];

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

fn make(lab: &str, layout: &Layout, release: &Release) -> Result<Cluster> {
    let iso_directory = prepare::iso_directory_of(release, &Board::plain())?;
    let cache = halite_lab::cache();
    let lab = Lab::new(lab, &Debian::Bookworm.root(&cache))?;
    lab.down()?;
    let carried = [(iso_directory.as_path(), ISO_DIRECTORY)];
    let newer = Debian::Trixie.root(&cache);
    let cluster = cluster::boot_mixed(lab, layout, &carried, &newer, &NEWER)?;
    // In nftables mode `nft` of Debian 12 crashes on sets of Debian 13.
    let document = CLUSTER.replace("kubeProxy:\n", "kubeProxy:\n  mode: iptables\n");
    cluster.bootstrap(&document)?;
    for group in layout.joins {
        cluster.join(group)?;
    }
    cluster.wait_for_pods(PODS)?;
    Ok(cluster)
}

fn like_the_others(cluster: &Cluster) -> Result<Counts> {
    are_complete(cluster, &NEWER)
}

fn replaces(cluster: &Cluster) -> Result<Counts> {
    let name = [REPLACED.to_owned()];
    let written = at_the_vip(cluster, &cluster.bootstrap, "debian", || {
        cluster.lab.power_off(&name, true)?;
        wait_until_lost(cluster, REPLACED)?;
        cluster
            .lab
            .rebase(REPLACED, &Debian::Trixie.root(&halite_lab::cache()))?;
        cluster.replace(REPLACED).map(drop)
    })?;
    written.check("a control plane is replaced", GAP)?;
    are_complete(cluster, &[&NEWER[..], &[REPLACED]].concat())
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
