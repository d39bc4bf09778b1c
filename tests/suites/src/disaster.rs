//! The first host is lost with its disks: a bare host replaces it from a backup, and the worker
//! comes back without a command.

mod boundaries;
mod full_disk;
pub(crate) mod restoring;
mod store;

use std::fs;

use anyhow::{Context as _, Result, bail, ensure};
use halite_api::{BackupList, EtcdStatus, MadeBackup, VerifiedBackup, from_text};
use halite_lab::cluster::{BOOTSTRAP, CTL, Cluster, DOCUMENT};
use halite_lab::host::Host;
use halite_lab::wait;
use restoring::{BACK, DIRECTORY, KEY, declare, recipient};

use crate::ctl_answer;
use crate::test::{Counts, Test};
use crate::{etcd, guide, repair};

const UNIT: &str = "halite-backup.service";
/// The heading of the guide.
const BACKUPS: &str = "## Backups";

pub(super) use boundaries::numbered;

pub(super) const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "disaster: a backup is made by hand and by the timer's unit, and damage is found",
        run: backups,
    },
    Test {
        name: "disaster: a successful backup is not repeated when an older one cannot be removed",
        run: made_once,
    },
    Test {
        name: "disaster: a full disk under the backups fails them with a warning, and the good ones stay",
        run: full_disk::keeps_the_good,
    },
    Test {
        name: "disaster: a master whose store is damaged stops, and the guide's commands restore its copy",
        run: store::comes_back,
    },
    Test {
        name: "disaster: the first host, lost with its disks, is restored from a backup",
        run: first_host_lost,
    },
];

/// The additional tests of `--full`, before the others.
pub(super) const FULL: &[Test<Cluster>] = &[Test {
    name: "disaster: a backup that is killed at ten moments is never incomplete",
    run: killed_backups,
}];

/// A backup is killed 40 ms later each time. Anything that it leaves with the name of a backup is
/// complete, and a repetition adds one more.
fn killed_backups(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    host.sh(&format!("rm -rf {DIRECTORY} && mkdir {DIRECTORY}"))?;
    let whole = || -> Result<usize> {
        let list: BackupList = ctl_answer::of(host, &["backup", "list", DIRECTORY])?;
        for found in &list.backups {
            verified(host, &format!("{DIRECTORY}/{}", found.backup))?;
        }
        Ok(list.backups.len())
    };
    for moment in 1..=10 {
        let milliseconds = 40 * moment;
        let line =
            format!("timeout -s KILL 0.{milliseconds:03} {CTL} backup create --out {DIRECTORY}");
        host.sh(&format!("{line} >/dev/null 2>&1 || true"))?;
        let before = whole()?;
        restoring::make(host)?;
        let now = whole()?;
        ensure!(
            now == before + 1,
            "killed after {milliseconds} ms and repeated: {before}, then {now} backups"
        );
    }
    host.sh(&format!("rm -rf {DIRECTORY}"))?;
    Ok(Counts {
        passed: 10,
        failed: 0,
    })
}

/// Verifies a backup.
fn verified(host: &Host, path: &str) -> Result<VerifiedBackup> {
    ctl_answer::of(host, &["backup", "verify", path])
}

/// Runs ctl, which must fail; returns its output.
fn refused<S: AsRef<str>>(host: &Host, words: &[S]) -> Result<String> {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    let output = host.output(&words)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    ensure!(!output.status.success(), "{words:?} succeeded: {text}");
    Ok(text)
}

/// Runs a command of the guide about backups, with further words and its answer as JSON.
fn of_the_guide(host: &Host, begin: &str, more: &[&str]) -> Result<String> {
    let mut words = guide::command("disaster.md", BACKUPS, begin)?;
    words.extend(more.iter().chain(&["-o", "json"]).map(ToString::to_string));
    host.run(&words)
}

/// Verifies a backup by the command of the guide that has a key.
fn verified_with_key(host: &Host, path: &str) -> Result<VerifiedBackup> {
    let mut words = guide::command("disaster.md", BACKUPS, "ctl backup verify /")?;
    for (word, own) in words.iter_mut().skip(3).step_by(2).zip([path, KEY]) {
        own.clone_into(word);
    }
    let words: Vec<&str> = words.iter().skip(1).map(String::as_str).collect();
    ctl_answer::of(host, &words)
}

/// Unpacks an unencrypted backup by the line of the guide, which uses no program of Halite.
fn unpacked_without_halite(host: &Host, path: &str) -> Result<()> {
    let line = guide::command("disaster.md", BACKUPS, "tail -n +3")?;
    let line = line.join(" ").replace("FILE", path);
    let place = "/root/unpacked";
    host.sh(&format!(
        "set -e; rm -rf {place}; mkdir {place}; cd {place}; {line}; test -s etcd/snapshot.db; test -s manifest.json; rm -r {place}"
    ))
    .map(drop)
}

fn backups(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    host.sh(&format!(
        "rm -rf {DIRECTORY} /root/copy && mkdir {DIRECTORY}"
    ))?;
    // The timer's unit writes to the declared directory, not encrypted.
    host.run(&["systemctl", "is-enabled", "halite-backup.timer"])?;
    host.run(&["systemctl", "start", UNIT])?;
    let list = of_the_guide(host, "ctl backup list", &[])?;
    let list: BackupList = from_text(&list)?;
    let newest = list.backups.last();
    let newest = newest.context("no backup in the declared directory")?;
    ensure!(
        newest.encrypted == Some(false) && newest.problem.is_none(),
        "{list:?}"
    );
    let answer = of_the_guide(host, "ctl backup verify", &[])?;
    let answer: VerifiedBackup = from_text(&answer)?;
    ensure!(answer.files > Some(10), "{answer:?}");
    host.run(&["systemctl", "start", "halite-backup-verify.service"])?;
    let path = format!("/var/lib/halite/backup/{}", newest.backup);
    unpacked_without_halite(host, &path)?;

    let before = declare(host)?;
    let made = of_the_guide(host, "ctl backup create", &["--out", DIRECTORY]);
    // An encrypted backup cannot be opened here: a new backup's snapshot is started before it is
    // encrypted.
    let encrypted = made.and_then(|made| {
        let made: MadeBackup = from_text(&made)?;
        let started = of_the_guide(host, "ctl backup verify --start", &[&made.path])?;
        let started: VerifiedBackup = from_text(&started)?;
        Ok((made, started))
    });
    fs::write(host.file(DOCUMENT), before)?;
    let (made, started) = encrypted?;
    let started = started.started.context("nothing was started")?;
    ensure!(started.made.is_some() && started.compared, "{started:?}");
    let path = made.path.as_str();
    ensure!(made.encrypted, "{made:?}");
    let bytes = fs::read(host.file(path))?;
    ensure!(
        !bytes.windows(11).any(|part| part == b"PRIVATE KEY"),
        "a key can be read in the encrypted backup"
    );
    // Without the key only the digest is compared; with it, the whole content.
    let without = verified(host, path)?;
    ensure!(without.files.is_none(), "{without:?}");
    restoring::put_key(host)?;
    let with = verified_with_key(host, path)?;
    ensure!(with.files > Some(10), "{with:?}");
    host.run(&["rm", "-f", restoring::FILE])?;
    of_the_guide(host, "ctl backup get", &[path])?;
    ensure!(
        fs::read(host.file(restoring::FILE))? == bytes,
        "the copy differs"
    );

    let mut changed = bytes.clone();
    let middle = changed.len() / 2;
    changed[middle] ^= 1;
    for (content, reason) in [
        (&changed[..], "its digest differs"),
        (&bytes[..middle], "it is cut short"),
    ] {
        fs::write(host.file("/root/copy"), content)?;
        let text = refused(host, &[CTL, "backup", "verify", "/root/copy"])?;
        ensure!(text.contains(reason), "no `{reason}` in: {text}");
    }
    // No leftover of a killed process has the name of a backup.
    host.sh(&format!(
        "timeout -s KILL 0.2 {CTL} backup create --out {DIRECTORY} || true"
    ))?;
    let list: BackupList = ctl_answer::of(host, &["backup", "list", DIRECTORY])?;
    for found in list.backups {
        verified(host, &format!("{DIRECTORY}/{}", found.backup))?;
    }
    Ok(Counts::ONE)
}

/// An old backup that is a mount point cannot be removed. The unit that made the new one fails, and
/// does not make another.
fn made_once(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    let path = host.file(DOCUMENT);
    let before = fs::read_to_string(&path)?;
    let without = before.lines().filter(|line| !line.starts_with("backup:"));
    let mut text: String = without.map(|line| format!("{line}\n")).collect();
    text.insert_str(0, "backup: {keep: 1}\n");
    fs::write(&path, text)?;
    let checked = keeps_one(host);
    fs::write(&path, before)?;
    checked.map(|()| Counts::ONE)
}

fn keeps_one(host: &Host) -> Result<()> {
    let run = || host.output(&["systemctl", "start", UNIT]);
    // Runs of other tests count towards the limit of starts, too.
    host.sh(&format!("systemctl reset-failed {UNIT} || true"))?;
    ensure!(run()?.status.success(), "no backup was made");
    let first = names(host)?;
    let [old] = first.as_slice() else {
        bail!("one backup should be kept, and there are {first:?}");
    };
    let old = format!("/var/lib/halite/backup/{old}");
    host.run(&["mount", "--bind", &old, &old])?;
    let failed = run();
    let properties = "--property=ActiveState,ExecMainStatus,NRestarts";
    let state = host.run(&["systemctl", "show", "--value", properties, UNIT]);
    let second = names(host);
    host.run(&["umount", &old])?;
    ensure!(!failed?.status.success(), "the failure was not reported");
    let state = state?;
    let mut state: Vec<&str> = state.lines().collect();
    state.sort_unstable();
    // Not `activating`, which it is while it waits for its next attempt.
    ensure!(state == ["0", "3", "failed"], "{state:?}");
    let second = second?;
    ensure!(second.len() == 2, "it was not made once: {second:?}");
    ensure!(run()?.status.success(), "the next backup failed");
    let third = names(host)?;
    ensure!(third.len() == 1, "old backups stay: {third:?}");
    Ok(())
}

/// The names of the backups in the declared directory.
fn names(host: &Host) -> Result<Vec<String>> {
    let list: BackupList = ctl_answer::of(host, &["backup", "list"])?;
    Ok(list.backups.into_iter().map(|found| found.backup).collect())
}

fn first_host_lost(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    repair::answering(cluster)?;
    let kept = restoring::back_up(cluster)?;
    let name = [BOOTSTRAP.to_owned()];
    cluster.lab.power_off(&name, true)?;
    cluster.lab.power_on(&name)?;
    kept.carry(host)?;
    let text = refused(host, &restoring::without_key())?;
    ensure!(
        text.contains("--key") && text.contains(recipient()?),
        "{text}"
    );
    kept.restore(host)?;
    kept.came_back(cluster)?;
    cluster.wait_for_pods(BACK)?;
    let again = kept.command()?;
    kept.continues(cluster)?;
    let text = refused(host, &again)?;
    ensure!(text.contains("this host has a cluster"), "{text}");
    // A member that is silent for a moment is only a temporary problem.
    wait::until("etcd without a problem", etcd::ANSWER, || {
        let (_, status): (_, EtcdStatus) = ctl_answer::in_any_case(host, &["etcd", "status"])?;
        ensure!(status.problems.is_empty(), "{status:?}");
        Ok(())
    })?;
    repair::settled(cluster, repair::pods(cluster)?)?;
    repair::quiet(cluster).context("after the restore")?;
    Ok(Counts::ONE)
}
