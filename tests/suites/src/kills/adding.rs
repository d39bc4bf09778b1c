//! Kills while a host is added. The worker is removed from the cluster and comes back as a bare
//! host, so that the final cluster is the initial one, and the machine needs no room for a third
//! host.

use std::fs;

use anyhow::{Context as _, Result};
use halite_lab::cluster;
use halite_lab::cluster::{BOOTSTRAP, CTL, Cluster, WORKER};

use super::super::repair;
use super::commands::{RepeatedCommand, Repetition};
use super::moments::{Kill, MakingHost, Moment, Progress, Victim, series};
use super::series::{case, interrupt, numbered};
use super::{jobs, moments, registered};
use crate::health;
use crate::test::Case;

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

/// The kill of the default run.
pub(super) const USUAL: Kill = Kill {
    moment: Moment::File("usr/bin/containerd"),
    victim: Victim::Minion,
};

/// A test of the usual kill, and of each series of the others.
pub(super) fn tests() -> Vec<Case<Cluster>> {
    let usual = format!("kills: boundary of ctl node add, {USUAL}");
    let mut all = vec![case(usual, vec![USUAL], run)];
    let others = series(&KILLS, &[USUAL]);
    all.extend(numbered("kills: boundaries of ctl node add", others, run));
    all
}

/// Adds a bare host, interrupts the commands at these kills, runs them again, and checks the
/// cluster. Returns the kills whose moment was missed.
fn run(cluster: &Cluster, kills: &[Kill]) -> Result<Vec<Kill>> {
    let (first, worker) = (&cluster.bootstrap, &cluster.worker);
    let pods = bare_worker(cluster)?;
    let newest = jobs::newest(first)?;
    let making = |commands| {
        let ready = registered::master_answers;
        MakingHost::new(&cluster.lab, (first, worker), commands, ready)
    };
    // The first moment is one of a command that only declares the host.
    let declared = kills.partition_point(|kill| kill.moment == Moment::Declared);
    let (declaring, adding) = kills.split_at(declared);
    if !declaring.is_empty() {
        let line = cluster.declare_command();
        let command = RepeatedCommand::start(first, line, Repetition::Always)?;
        let mut declare = making(vec![command]);
        interrupt(&mut declare, declaring)?;
        declare.succeed()?;
    }
    let enrol = ["sh", "-c", &cluster.declare_worker()?].map(str::to_owned);
    let mut add = making(vec![
        RepeatedCommand::start(worker, enrol.to_vec(), Repetition::AfterFailure)?,
        RepeatedCommand::start(first, cluster.add_command(), Repetition::Always)?,
    ]);
    let missed = interrupt(&mut add, adding)?;
    add.succeed()?;
    registered::once(first, &[BOOTSTRAP, WORKER])?;
    repair::settled(cluster, pods)?;
    repair::quiet(cluster)?;
    jobs::sound(&cluster.hosts(), &newest)?;
    Ok(missed)
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
