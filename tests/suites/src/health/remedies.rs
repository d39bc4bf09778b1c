//! Damages whose check prints a command: the test takes the command from the printed remedy, runs
//! it, and the finding is gone. `docs/dev/remedies.md` names the test of each check.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use halite_api::HealthFinding;
use halite_lab::cluster::{BOOTSTRAP, CTL, Cluster, DOCUMENT, WORKER};
use halite_lab::host::Host;
use halite_lab::wait;

use super::{LIMIT, findings, health, is_well};
use crate::declare::declare;
use crate::test::Counts;

/// A mistake, below any key of the document.
const MISTAKE: &str = "misteak";
/// A directory without a backup, and the one that the cluster document declares. The master sees no
/// home directory.
const EMPTY: &str = "/srv/no-backups";
const BACKUPS: &str = "/var/lib/halite/backup";

/// Waits until a check has a finding with these words.
pub(super) fn found(cluster: &Cluster, check: &str, words: &str) -> Result<HealthFinding> {
    wait::until(&format!("{check} to report {words:?}"), LIMIT, || {
        let (_, health) = health(cluster)?;
        let found = findings(&health, check).into_iter();
        let mut found = found.filter(|finding| finding.message.contains(words));
        let first = found.next();
        first.with_context(|| format!("{words:?} is not found: {health:#?}"))
    })
}

/// Waits until a check has no finding.
pub(super) fn is_gone(cluster: &Cluster, check: &str) -> Result<()> {
    wait::until(&format!("{check} to have no finding"), LIMIT, || {
        let (_, health) = health(cluster)?;
        let found = findings(&health, check);
        ensure!(found.is_empty(), "{found:#?}");
        Ok(())
    })
}

/// The command between backquotes with this start, in a finding's remedy, or in its message if that
/// has the remedy.
pub(super) fn command(finding: &HealthFinding, start: &str) -> Result<String> {
    let text = finding.remedy.as_deref().unwrap_or(&finding.message);
    let mut commands = text.split('`').skip(1).step_by(2);
    let own = commands.find(|command| command.starts_with(start));
    own.map(str::to_owned)
        .with_context(|| format!("no command {start:?} in: {text}"))
}

pub(super) fn documents(cluster: &Cluster) -> Result<Counts> {
    is_well(cluster)?;
    let file = cluster.bootstrap.file(DOCUMENT);
    let before = fs::read_to_string(&file)?;
    let tried = warned_and_refused(cluster);
    fs::write(&file, before)?;
    tried?;
    for check in ["declaration", "declaration-warnings"] {
        is_gone(cluster, check)?;
    }
    is_well(cluster)?;
    Ok(Counts {
        passed: 2,
        failed: 0,
    })
}

fn warned_and_refused(cluster: &Cluster) -> Result<()> {
    let host = &cluster.bootstrap;
    declare(cluster, "backup", "{copies: 3}")?;
    let words = "3 hosts should hold a backup";
    let finding = found(cluster, "declaration-warnings", words)?;
    shows(host, &command(&finding, "ctl config validate")?, words)?;
    declare(cluster, MISTAKE, "1")?;
    let finding = found(cluster, "declaration", MISTAKE)?;
    ensure!(finding.message.contains("cluster.yaml:"), "{finding:?}");
    shows(host, &command(&finding, "ctl config validate")?, MISTAKE)
}

/// Runs a command that only shows something, whatever its exit code is.
fn shows(host: &Host, command: &str, words: &str) -> Result<()> {
    let output = host.output(&["sh", "-c", command])?;
    let said =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    let said = said.concat();
    ensure!(said.contains(words), "no {words:?} in `{command}`: {said}");
    Ok(())
}

pub(super) fn minion(cluster: &Cluster) -> Result<Counts> {
    is_well(cluster)?;
    let worker = &cluster.worker;
    worker.run(&["systemctl", "stop", "halite-minion"])?;
    let tried = found(cluster, "minions", WORKER).and_then(|finding| {
        let status = command(&finding, "systemctl status halite-minion")?;
        shows(worker, &status, "inactive")?;
        worker.sh(&command(&finding, "systemctl start halite-minion")?)
    });
    // The tests after this one need it.
    worker.run(&["systemctl", "start", "halite-minion"])?;
    tried?;
    is_gone(cluster, "minions")?;
    is_well(cluster)?;
    Ok(Counts::ONE)
}

/// A file system over a directory of Halite is refused.
pub(super) fn highstate(cluster: &Cluster) -> Result<Counts> {
    const DIRECTORY: &str = "/etc/containerd/certs.d";
    is_well(cluster)?;
    let (host, worker) = (&cluster.bootstrap, &cluster.worker);
    worker.run(&["mount", "-t", "tmpfs", "halite-test", DIRECTORY])?;
    let failed = host.output(&[CTL, "highstate", WORKER]);
    let finding = found(cluster, "highstate", "failed");
    worker.run(&["umount", DIRECTORY])?;
    ensure!(
        !failed?.status.success(),
        "a highstate with a mount over {DIRECTORY} succeeded"
    );
    let finding = finding?;
    ensure!(
        finding.host.as_deref() == Some(WORKER),
        "another host: {finding:?}"
    );
    host.sh(&command(&finding, "ctl highstate")?)?;
    is_gone(cluster, "highstate")?;
    is_well(cluster)?;
    Ok(Counts::ONE)
}

/// The replicas of a cordoned node start again on the other one.
pub(super) fn crowded_dns(cluster: &Cluster) -> Result<Counts> {
    is_well(cluster)?;
    let node = format!("spec.nodeName={WORKER}");
    let delete = [
        "-n",
        "kube-system",
        "delete",
        "pods",
        "-l",
        "k8s-app=kube-dns",
    ];
    cluster.kubectl(&["cordon", WORKER])?;
    let tried = cluster
        .kubectl(&[&delete[..], &["--field-selector", &node]].concat())
        .and_then(|_| {
            let words = format!("all replicas of the cluster's DNS are on {BOOTSTRAP}");
            found(cluster, "dns-spread", &words)
        });
    cluster.kubectl(&["uncordon", WORKER])?;
    let command = command(&tried?, "kubectl -n kube-system delete pod")?;
    cluster.bootstrap.sh(&command)?;
    is_gone(cluster, "dns-spread")?;
    is_well(cluster)?;
    Ok(Counts::ONE)
}

/// An empty directory of backups, and then the newest backup of the declared one with other bytes.
pub(super) fn backups(cluster: &Cluster) -> Result<Counts> {
    is_well(cluster)?;
    let file = cluster.bootstrap.file(DOCUMENT);
    let before = fs::read_to_string(&file)?;
    let tried = first_backup(cluster);
    fs::write(&file, before)?;
    cluster.bootstrap.run(&["rm", "-rf", EMPTY])?;
    tried?;
    damaged_backup(cluster)?;
    is_well(cluster)?;
    Ok(Counts {
        passed: 2,
        failed: 0,
    })
}

fn first_backup(cluster: &Cluster) -> Result<()> {
    let host = &cluster.bootstrap;
    host.run(&["mkdir", "-p", EMPTY])?;
    declare(cluster, "backup", &format!("{{directory: {EMPTY}}}"))?;
    let finding = found(cluster, "backup-first", "there is no backup of the cluster")?;
    host.sh(&command(&finding, "ctl backup create")?)?;
    is_gone(cluster, "backup-first")
}

fn damaged_backup(cluster: &Cluster) -> Result<()> {
    const MAKE: &str = "halite-backup.service";
    const VERIFY: &str = "halite-backup-verify.service";
    let host = &cluster.bootstrap;
    // Runs of other tests count towards the limit of starts, too.
    host.sh(&format!("systemctl reset-failed {MAKE} {VERIFY} || true"))?;
    host.run(&["systemctl", "start", MAKE])?;
    let newest = host.sh(&format!("ls -t {BACKUPS}/*.halite-backup | head -n 1"))?;
    let newest = newest.trim();
    host.sh(&format!(
        "printf 'other bytes' | dd of={newest} bs=1 seek=$(($(stat -c %s {newest}) / 2)) conv=notrunc status=none"
    ))?;
    let verified = host.output(&["systemctl", "start", VERIFY])?;
    let tried = found_damage(cluster, verified.status.success());
    host.run(&["rm", newest])?;
    tried
}

/// The remedy makes another backup and verifies that one; the damaged one is still there.
fn found_damage(cluster: &Cluster, is_verified: bool) -> Result<()> {
    ensure!(!is_verified, "a damaged backup was verified");
    let host = &cluster.bootstrap;
    // A minion reports results within half a minute, and when its grains are requested.
    host.run(&[CTL, "grains", BOOTSTRAP])?;
    let finding = found(cluster, "backup-verified", "is not verified")?;
    host.sh(&command(&finding, "systemctl start halite-backup ")?)?;
    host.run(&[CTL, "grains", BOOTSTRAP])?;
    is_gone(cluster, "backup-verified")
}

/// The node controller notices it after its grace period.
pub(super) fn kubelet(cluster: &Cluster) -> Result<Counts> {
    is_well(cluster)?;
    let worker = &cluster.worker;
    worker.run(&["systemctl", "stop", "kubelet"])?;
    let tried = found(cluster, "nodes", &format!("{WORKER} is not Ready")).and_then(|finding| {
        let journal = command(&finding, "journalctl -u kubelet")?;
        worker.sh(&format!("{journal} --no-pager -n 1"))?;
        let describe = command(&finding, "kubectl describe node")?;
        shows(&cluster.bootstrap, &describe, "NodeStatusUnknown")?;
        let highstate = command(&finding, "ctl highstate")?;
        cluster.bootstrap.sh(&highstate)
    });
    if tried.is_err() {
        worker.run(&["systemctl", "start", "kubelet"])?;
    }
    tried?;
    is_gone(cluster, "nodes")?;
    is_well(cluster)?;
    Ok(Counts::ONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_found_in_the_remedy_or_in_the_message() {
        let finding = |message: &str, remedy: Option<&str>| HealthFinding {
            message: message.to_owned(),
            host: None,
            remedy: remedy.map(str::to_owned),
        };
        let own = finding(
            "x",
            Some("is `a` on? `ctl status` shows it, `ctl start` starts it"),
        );
        assert_eq!(command(&own, "ctl start").unwrap(), "ctl start");
        let other = finding("late: `ctl backup create` makes one", None);
        assert_eq!(command(&other, "ctl backup").unwrap(), "ctl backup create");
        let error = command(&other, "ctl start").unwrap_err().to_string();
        assert!(error.contains("no command \"ctl start\""), "{error}");
    }
}
