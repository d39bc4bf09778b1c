//! Kills while a host is added. The worker is removed from the cluster and comes back as a bare
//! host, so that the final cluster is the initial one, and the machine needs no room for a third
//! host.

use std::fs;
use std::process::ExitStatus;

use anyhow::{Context as _, Result};
use halite_lab::cluster;
use halite_lab::cluster::{BOOTSTRAP, CTL, Cluster, WORKER};

use super::super::repair;
use super::moments::{Kill, Moment, Progress, Victim};
use super::{ended, jobs, moments, registered, spawn};
use crate::health;

/// The moments of `enrol.sh` and of `halite.orchestrate.add_node`. Every state module that the new
/// host uses has one. A victim is left out if its death cannot be distinguished from the one at the
/// previous moment.
pub const KILLS: [(Moment, &[Victim]); 16] = {
    use Moment::{Declared, File, Job};
    use Progress::{Returned, Started, Stored};
    use Victim::{Master, Minion, Power};
    [
        (Declared, &[Master]),
        (
            File("var/lib/halite/minion/identity.key"),
            &[Minion, Master, Power],
        ),
        (File("var/lib/halite/minion/identity.crt"), &[Power, Minion]),
        (Job(0, Started), &[Master, Minion, Power]),
        // file, pkgrepo
        (File("etc/apt/sources.list.d/halite.list"), &[Minion, Power]),
        // pkg: in the middle of unpacking
        (File("usr/bin/containerd"), &[Power, Master, Minion]),
        // sysctl
        (File("etc/sysctl.d/zz-halite.conf"), &[Minion]),
        // firewalld
        (
            File("etc/firewalld/policies/halite-host.xml"),
            &[Power, Minion],
        ),
        (Job(0, Returned), &[Master, Minion, Power]),
        (Job(0, Stored), &[Minion, Master]),
        // service
        (File("etc/containerd/config.toml"), &[Power, Minion]),
        // image
        (
            File("var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots/1"),
            &[Master, Power, Minion],
        ),
        // x509
        (
            File("var/lib/kubelet/pki/kubelet-client-halite.pem"),
            &[Minion, Master, Power],
        ),
        // kubeconfig
        (File("etc/kubernetes/kubelet.conf"), &[Power, Minion]),
        (Job(2, Stored), &[Master, Power]),
        (Job(3, Started), &[Minion, Power]),
    ]
};

/// Adds a bare host, kills the victim at the moment, runs the same command again, and checks the
/// cluster. Returns the status of the first command.
pub fn one(cluster: &Cluster, kill: Kill) -> Result<ExitStatus> {
    let pods = bare_worker(cluster)?;
    let newest = jobs::newest(&cluster.bootstrap)?;
    let status = interrupted(cluster, kill)?;
    registered::master_answers(&cluster.bootstrap)?;
    if kill.moment == Moment::Declared {
        cluster.add_worker()?;
    } else {
        let line: Vec<String> = cluster.add_command();
        cluster
            .bootstrap
            .run(&line)
            .with_context(|| format!("after the first had ended with {status}"))?;
    }
    registered::once(&cluster.bootstrap, &[BOOTSTRAP, WORKER])?;
    repair::settled(cluster, pods)?;
    repair::quiet(cluster)?;
    jobs::sound(&cluster.hosts(), &newest)?;
    Ok(status)
}

/// Removes the worker from the cluster and boots it as a bare host. Returns the number of pods to
/// expect when it is back.
fn bare_worker(cluster: &Cluster) -> Result<usize> {
    registered::master_answers(&cluster.bootstrap)?;
    // Counted in the same way as at the end.
    let running = "--field-selector=status.phase!=Succeeded";
    let pods = registered::items(&cluster.bootstrap, &["get", "pods", "-A", running])?;
    // Pods that no controller recreates.
    let lost = pods.iter().filter(|pod| {
        pod["spec"]["nodeName"] == WORKER && pod["metadata"]["ownerReferences"].is_null()
    });
    let stay = pods.len() - lost.count();
    cluster.worker.destroy()?;
    cluster.kubectl(&["delete", "node", WORKER, "--ignore-not-found"])?;
    let there = format!("--field-selector=spec.nodeName={WORKER}");
    cluster.kubectl(&[
        "delete",
        "pods",
        "-A",
        &there,
        "--force",
        "--grace-period=0",
    ])?;
    if registered::keys(&cluster.bootstrap)?
        .iter()
        .any(|key| key.minion == WORKER)
    {
        let name = cluster_name(cluster)?;
        cluster
            .bootstrap
            .run(&[CTL, "key", "delete", WORKER, "--force", "--cluster", &name])?;
    }
    let document = moments::document(&cluster.bootstrap);
    if document.exists() {
        fs::remove_file(&document)
            .with_context(|| format!("cannot remove {}", document.display()))?;
    }
    repair::highstate(cluster, &[]).context("without the worker")?;
    cluster::boot_worker(&cluster.lab)?;
    Ok(stay)
}

fn cluster_name(cluster: &Cluster) -> Result<String> {
    let status = health::status(cluster)?;
    Ok(status.cluster)
}

/// Starts to add the worker, kills the victim at the moment, and runs the printed command to its
/// end.
fn interrupted(cluster: &Cluster, kill: Kill) -> Result<ExitStatus> {
    let (bootstrap, worker) = (&cluster.bootstrap, &cluster.worker);
    if kill.moment == Moment::Declared {
        let mut declare = spawn(bootstrap, &cluster.declare_command())?;
        moments::wait_for(kill.moment, bootstrap, worker, &mut declare)?;
        moments::strike(kill.victim, &cluster.lab, bootstrap, worker)?;
        return ended(&mut declare);
    }
    let line = cluster.declare_worker()?;
    let mut enrol = spawn(worker, &["sh".to_owned(), "-c".to_owned(), line.clone()])?;
    let mut add = spawn(bootstrap, &cluster.add_command())?;
    moments::wait_for(kill.moment, bootstrap, worker, &mut add)?;
    moments::strike(kill.victim, &cluster.lab, bootstrap, worker)?;
    if !ended(&mut enrol)?.success() {
        registered::master_answers(&cluster.bootstrap)?;
        cluster
            .enrol_worker(&line)
            .context("when it was run again")?;
    }
    ended(&mut add)
}
