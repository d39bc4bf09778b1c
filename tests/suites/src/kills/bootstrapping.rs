//! Kills while the first host of a site is bootstrapped, in a separate lab.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use halite_lab::cluster::{BOOTSTRAP, CLUSTER, Cluster};
use halite_lab::{Lab, cluster};

use super::commands::Repetition;
use super::moments::{Kill, MakingHost, Moment, Progress, Victim, series};
use super::series::{interrupt, numbered};
use super::{jobs, registered};
use crate::checks::nothing_to_do;
use crate::test::Case;

/// Name of the lab. It is kept after a failure.
const LAB: &str = "cut";

/// Limit for the last pods to start: the kubelet waits up to five minutes before it restarts a
/// program that exited several times.
const PODS: Duration = Duration::from_secs(360);

/// The moments of `ctl bootstrap` and of `halite.orchestrate.bootstrap`.
pub const KILLS: [(Moment, &[Victim]); 14] = {
    use Moment::{File, Job};
    use Progress::{Returned, Started, Stored};
    use Victim::{Master, Minion, Power};
    [
        // The bundle is being extracted from the ISO.
        (
            File(concat!(
                "var/lib/halite/bundles/.",
                env!("CARGO_PKG_VERSION"),
                ".new/manifest.json"
            )),
            &[Power],
        ),
        (File("etc/halite/cluster.yaml"), &[Power]),
        (File("usr/local/bin/halite-master"), &[Power]),
        (File("var/lib/halite/master/store.db"), &[Master, Power]),
        (File("var/lib/halite/minion/identity.crt"), &[Power, Minion]),
        (Job(0, Started), &[Master]),
        (File("usr/bin/containerd"), &[Minion, Power]),
        (Job(0, Returned), &[Minion]),
        // Signed with a CA that is created at its first use.
        (File("etc/kubernetes/pki/etcd/server.crt"), &[Power]),
        (File("etc/kubernetes/manifests/etcd.yaml"), &[Master, Power]),
        (File("etc/kubernetes/admin.conf"), &[Master]),
        (
            File("etc/kubernetes/manifests/kube-apiserver.yaml"),
            &[Power, Minion],
        ),
        // By then the master itself is working, on objects.
        (Job(4, Stored), &[Master, Power]),
        (Job(5, Started), &[Minion, Power]),
    ]
};

/// A test of each series.
pub(super) fn tests() -> Vec<Case<Cluster>> {
    let name = "kills: boundaries of ctl bootstrap";
    numbered(name, series(&KILLS, &[]), run)
}

/// Bootstraps a bare host, interrupts the command at these kills, runs it again, and checks that
/// the result is a cluster of one host. Returns the kills whose moment was missed.
fn run(cluster: &Cluster, kills: &[Kill]) -> Result<Vec<Kill>> {
    let iso_directory = cluster
        .bootstrap
        .spec
        .read_only
        .first()
        .context("there is no bundle on the bootstrap host")?;
    let lab = Lab::new(LAB, &halite_lab::cache().join("base-root"))?;
    lab.down()?;
    let missed = in_lab(&lab, &iso_directory.0, kills)
        .with_context(|| format!("the host is kept: cargo lab status --lab {LAB}"))?;
    lab.down()?;
    Ok(missed)
}

fn in_lab(lab: &Lab, iso_directory: &Path, kills: &[Kill]) -> Result<Vec<Kill>> {
    let host = cluster::boot_bootstrap(lab, iso_directory)?;
    fs::write(host.file("root/cluster.yaml"), CLUSTER)?;
    let mut command = MakingHost::first(lab, &host, cluster::install(), Repetition::Always)?;
    let missed = interrupt(&mut command, kills)?;
    command.succeed()?;
    registered::once(&host, &[BOOTSTRAP])?;
    cluster::wait_for_pods(&host, PODS)?;
    // A certificate that the kubelet renews in its first minute would make one more highstate
    // change something.
    nothing_to_do(&host)?;
    jobs::sound(&[&host], "")?;
    Ok(missed)
}
