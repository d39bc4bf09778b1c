//! Programs that read their client certificate only when they start use a renewed one.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::wait;

use super::answer::highstate;
use super::{quiet, wait_ready};
use crate::test::Counts;

/// Programs and the kubeconfigs that contain their certificates.
pub(super) const HOLDERS: [(&str, &str); 2] = [
    (
        "kube-controller-manager",
        "/etc/kubernetes/controller-manager.conf",
    ),
    ("kube-scheduler", "/etc/kubernetes/scheduler.conf"),
];

/// Programs that reload their certificates by themselves, and must not be restarted.
const OTHERS: [&str; 2] = ["kube-apiserver", "etcd"];

/// Limit for the kubelet to restart a program.
const LIMIT: Duration = Duration::from_secs(180);

/// A program's process on the bootstrap host.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) id: u32,
    /// Seconds since the epoch, as the difference of two rounded times: it may vary by one second
    /// between readings.
    started: u64,
}

impl Process {
    /// Returns whether it may have read a file that was changed at `written`, within a second.
    pub(super) fn may_have_read(&self, written: u64) -> bool {
        self.started + 1 >= written
    }
}

/// Damages the certificates in both kubeconfigs, repairs them, and compares the start of each
/// program with the time of its file.
pub(super) fn taken_up(cluster: &Cluster) -> Result<Counts> {
    let before = others(cluster)?;
    let mut old = Vec::new();
    for (name, _) in HOLDERS {
        old.push(process(cluster, name)?.id);
    }
    for (_, file) in HOLDERS {
        let cut = "s/(client-certificate-data: .{200}).*/\\1/";
        cluster.bootstrap.run(&["sed", "-E", "-i", cut, file])?;
    }
    let answer = highstate(cluster, &[])?;
    for ((name, file), old) in HOLDERS.into_iter().zip(old) {
        ensure!(
            answer
                .changed
                .iter()
                .any(|tag| tag.ends_with(&format!("[{name}-ready]"))),
            "{name} was not restarted: {:#?}",
            answer.changed
        );
        wait::until(&format!("{name} with its new certificate"), LIMIT, || {
            let new = process(cluster, name)?;
            let written = modified(cluster, file)?;
            // The times alone are not conclusive: the old process may seem as new as the file.
            if new.id == old || !new.may_have_read(written) {
                bail!("{new:?} is the old process, or older than {file} ({written})");
            }
            Ok(())
        })?;
    }
    let after = others(cluster)?;
    ensure!(before == after, "{OTHERS:?}: was {before:?}, is {after:?}");
    wait_ready::settled(cluster, wait_ready::pods(cluster)?)?;
    quiet(cluster)?;
    Ok(Counts::ONE)
}

/// The process ids of the programs that must not be restarted.
pub(super) fn others(cluster: &Cluster) -> Result<Vec<u32>> {
    OTHERS
        .iter()
        .map(|name| Ok(process(cluster, name)?.id))
        .collect()
}

/// The one process of this name.
pub(super) fn process(cluster: &Cluster, name: &str) -> Result<Process> {
    let line = format!(
        "for p in $(ps -eo pid=,comm= | awk -v n={name:.15} '$2 == n {{print $1}}'); do\n\
         echo $p $(( $(date +%s) - $(ps -o etimes= -p $p) )); done"
    );
    let text = cluster.bootstrap.sh(&line)?;
    let mut lines = text.lines();
    let (Some(only), None) = (lines.next(), lines.next()) else {
        bail!("not one process {name}: {text:?}");
    };
    let (id, started) = only.split_once(' ').context("no start time")?;
    Ok(Process {
        id: id.parse()?,
        started: started.trim().parse()?,
    })
}

/// The time of a file's last change, in seconds since the epoch.
pub(super) fn modified(cluster: &Cluster, file: &str) -> Result<u64> {
    let text = cluster.bootstrap.run(&["stat", "-c", "%Y", file])?;
    Ok(text.trim().parse()?)
}
