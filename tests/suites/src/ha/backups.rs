//! Backups on the standbys: made without the master, reported to it, and started.

use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use halite_api::{BackupHost, BackupList, ClusterStatus, VerifiedBackup};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::wait;
use serde_json::Value;

use super::BACK;
use super::standbys::{STANDBYS, wait_for_followers};
use crate::checks::refused;
use crate::ctl_answer::{self, in_any_case};
use crate::test::Counts;

const DIRECTORY: &str = "/var/lib/halite/backup";
/// The unit that makes a backup of this host.
pub(super) const UNIT: &str = "halite-backup.service";
const VERIFY: &str = "halite-backup-verify.service";

/// The newest backup on a host.
fn newest(host: &Host) -> Result<PathBuf> {
    let list: BackupList = ctl_answer::of(host, &["backup", "list", DIRECTORY])?;
    let newest = list.backups.last();
    let newest = newest.with_context(|| format!("no backup on {}", host.spec.name))?;
    ensure!(newest.problem.is_none(), "{list:?}");
    Ok(host.file(&format!("{DIRECTORY}/{}", newest.backup)))
}

/// Passes at once to the master what a minion would report within half a minute.
fn report(first: &Host, name: &str) -> Result<()> {
    // A minion may pause for ten seconds before it calls a master that was off.
    wait::until("the minion to answer", BACK, || {
        first.run(&["ctl", "grains", name]).map(drop)
    })
}

/// The row of a host among those with backups in the status of the master.
fn row(first: &Host, name: &str) -> Result<BackupHost> {
    let (_, status): (_, ClusterStatus) = in_any_case(first, &["status"])?;
    let mut hosts = status.backups.iter().flat_map(|backups| &backups.hosts);
    let own = hosts.find(|host| host.host == name);
    own.cloned()
        .with_context(|| format!("{name} is not in {:?}", status.backups))
}

/// The problems in the status of the master that name a host's verification.
fn unverified(first: &Host, name: &str) -> Result<Vec<String>> {
    let (_, status): (_, ClusterStatus) = in_any_case(first, &["status"])?;
    let text = format!("on {name} is not verified");
    let mut problems = status.problems;
    problems.retain(|problem| problem.contains(&text));
    Ok(problems)
}

/// Each standby makes a complete backup while no master runs; the master learns of it afterwards.
pub(super) fn of_standbys(cluster: &Cluster) -> Result<Counts> {
    let first = &cluster.bootstrap;
    first.run(&["systemctl", "stop", "halite-master"])?;
    let made = STANDBYS.iter().try_for_each(|name| {
        let host = cluster.host(name)?;
        host.run(&["systemctl", "is-enabled", "halite-backup.timer"])?;
        host.run(&["systemctl", "start", UNIT])?;
        let file = newest(host)?;
        let text = fs::read(&file)?;
        let mut lines = text.split(|byte| *byte == b'\n');
        let header: Value = serde_json::from_slice(lines.nth(1).context("no header")?)?;
        ensure!(header["etcd"]["member"] == *name, "{header}");
        ensure!(
            header["etcd"]["keys"]["count"].as_u64() > Some(100),
            "{header}"
        );
        // Without a name: the directory of the last run.
        let verified: VerifiedBackup = ctl_answer::of(host, &["backup", "verify"])?;
        ensure!(verified.files > Some(10), "{verified:?}");
        // Only its master could answer this; the timer's command does not need it.
        refused(host, &["ctl", "backup", "create"], &["master"])
    });
    first.run(&["systemctl", "start", "halite-master"])?;
    made?;
    wait_for_followers(first, &STANDBYS)?;
    for name in STANDBYS {
        report(first, name)?;
        wait::until("the report of the standby's backup", BACK, || {
            let row = row(first, name)?;
            ensure!(row.newest.is_some(), "{row:?}");
            Ok(())
        })?;
    }
    Ok(Counts::ONE)
}

/// The weekly run starts an etcd, and leaves nothing behind; a changed byte is a problem that the
/// status names until there is a good backup again.
pub(super) fn started(cluster: &Cluster) -> Result<Counts> {
    let (first, host) = (&cluster.bootstrap, cluster.host("cp-2")?);
    host.run(&["systemctl", "start", UNIT])?;
    host.run(&["systemctl", "start", VERIFY])?;
    host.sh("! ls -d /var/lib/halite/backup-trial-*")?;
    host.sh("! pgrep -f '[b]ackup-trial-'")?;
    report(first, "cp-2")?;
    wait::until("the keys that were counted", BACK, || {
        let row = row(first, "cp-2")?;
        ensure!(row.keys > Some(100), "{row:?}");
        Ok(())
    })?;

    let path = newest(host)?;
    flip(&path)?;
    let failed = host.output(&["systemctl", "start", VERIFY])?;
    ensure!(!failed.status.success(), "a changed byte was not found");
    report(first, "cp-2")?;
    wait::until("the status to name the changed backup", BACK, || {
        let found = unverified(first, "cp-2")?;
        let named = found.iter().any(|text| text.contains("its digest differs"));
        ensure!(named, "{found:?}");
        Ok(())
    })?;
    fs::remove_file(&path)?;
    host.run(&["systemctl", "start", UNIT, VERIFY])?;
    report(first, "cp-2")?;
    wait::until("the status to be good again", BACK, || {
        let found = unverified(first, "cp-2")?;
        ensure!(found.is_empty(), "{found:?}");
        Ok(())
    })?;
    Ok(Counts::ONE)
}

/// Changes one byte in the middle of a file.
pub(super) fn flip(path: &Path) -> Result<()> {
    let mut file = fs::File::options().read(true).write(true).open(path)?;
    let middle = file.metadata()?.len() / 2;
    let mut byte = [0];
    file.seek(SeekFrom::Start(middle))?;
    file.read_exact(&mut byte)?;
    byte[0] ^= 1;
    file.seek(SeekFrom::Start(middle))?;
    Ok(file.write_all(&byte)?)
}
