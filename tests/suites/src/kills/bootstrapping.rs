//! Kills while the first host of a site is bootstrapped, in a separate lab.

use std::fs;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context as _, Result};
use halite_lab::cluster::{BOOTSTRAP, CLUSTER, Cluster};
use halite_lab::{Lab, cluster};

use super::moments::{Kill, Moment, Progress, Victim};
use super::{ended, jobs, moments, registered, spawn};
use crate::checks::nothing_to_do;

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
        (
            File("etc/kubernetes/manifests/kube-apiserver.yaml"),
            &[Power, Minion],
        ),
        (File("etc/kubernetes/admin.conf"), &[Master]),
        // By then the master itself is working, on objects.
        (Job(4, Stored), &[Master, Power]),
        (Job(5, Started), &[Minion, Power]),
    ]
};

/// Bootstraps a bare host, kills the victim at the moment, runs the same command again, and checks
/// that the result is a cluster of one host. Returns the status of the first command.
pub fn one(cluster: &Cluster, kill: Kill) -> Result<ExitStatus> {
    let iso_directory = cluster
        .bootstrap
        .spec
        .read_only
        .first()
        .context("there is no bundle on the bootstrap host")?;
    let lab = Lab::new(LAB, &halite_lab::cache().join("base-root"))?;
    lab.down()?;
    let status = in_lab(&lab, &iso_directory.0, kill)
        .with_context(|| format!("the host is kept: cargo lab status --lab {LAB}"))?;
    lab.down()?;
    Ok(status)
}

fn in_lab(lab: &Lab, iso_directory: &Path, kill: Kill) -> Result<ExitStatus> {
    let host = cluster::boot_bootstrap(lab, iso_directory)?;
    fs::write(host.file("root/cluster.yaml"), CLUSTER)?;
    let line = cluster::install();
    let mut first = spawn(&host, &line)?;
    moments::wait_for(kill.moment, &host, &host, &mut first)?;
    moments::strike(kill.victim, lab, &host, &host)?;
    let status = ended(&mut first)?;
    host.run(&line)
        .with_context(|| format!("after the first had ended with {status}"))?;
    registered::once(&host, &[BOOTSTRAP])?;
    cluster::wait_for_pods(&host, PODS)?;
    // A certificate that the kubelet renews in its first minute would make one more highstate
    // change something.
    nothing_to_do(&host)?;
    jobs::sound(&[&host], "")?;
    Ok(status)
}
