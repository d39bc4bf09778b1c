//! Backups of the site registry: made, restored, and reported when they fail.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use halite_api::ClusterStatus;
use halite_lab::cluster::{BOOTSTRAP, CTL, Cluster, WORKER};
use halite_lab::host::Host;
use halite_lab::wait;

use super::{BACKUPS, DATA, NAME, PASSWORD, asked, forget, push, run_pod};
use crate::health;
use crate::repair::{highstate, quiet};
use crate::test::Counts;

/// A minion reads the results of backups every 30 s.
const REPORTED: Duration = Duration::from_secs(90);

pub(super) fn restored(cluster: &Cluster) -> Result<Counts> {
    let (worker, login) = (&cluster.worker, format!("-u ci:{PASSWORD}"));
    let timer = worker.sh("systemctl list-timers --no-pager halite-registry-backup.timer")?;
    ensure!(timer.contains("02:30:00"), "{timer}");
    let digest = |tag: &str| -> Result<String> {
        let head = format!(
            "{login} -I -H 'Accept: application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.v2+json'"
        );
        let (code, text) = asked(
            &cluster.bootstrap,
            &head,
            &format!("/v2/team/app/manifests/{tag}"),
        )?;
        ensure!(code == "200", "{tag}: {code}");
        let line = text.lines().find_map(|line| {
            line.to_ascii_lowercase()
                .strip_prefix("docker-content-digest: ")
                .map(str::to_owned)
        });
        line.map(|digest| digest.trim().to_owned())
            .context("no digest")
    };
    let before = digest("1")?;
    start(worker, "halite-registry-backup.service")?;
    start(worker, "halite-registry-backup.service")?;
    let backups = || -> Result<Vec<String>> {
        Ok(worker
            .sh(&format!("ls {BACKUPS}"))?
            .lines()
            .map(str::to_owned)
            .collect())
    };
    ensure!(backups()?.len() == 2, "{:?}", backups()?);
    start(worker, "halite-registry-backup.service")?;
    ensure!(backups()?.len() == 2, "two are kept: {:?}", backups()?);
    worker.run(&["ctl", "registry", "verify", BACKUPS])?;
    // A disk is lost, and replaced by an empty one.
    worker.sh(&format!("systemctl stop halite-registry && rm -rf {DATA}"))?;
    highstate(cluster, &[])?;
    let (code, _) = asked(&cluster.bootstrap, &login, "/v2/team/app/manifests/1")?;
    ensure!(code == "404", "{code}");
    worker.run(&["ctl", "registry", "restore", BACKUPS, "--yes"])?;
    ensure!(
        digest("1")? == before && digest(&before)? == before,
        "another image came back"
    );
    let image = format!("{NAME}/team/app:1");
    forget(&cluster.bootstrap, &image)?;
    let said = run_pod(cluster, "brought-back", BOOTSTRAP, &image, None)?;
    ensure!(said.trim() == "it runs", "{said:?}");
    // Pushes succeed again.
    push(
        &cluster.bootstrap,
        &format!("{NAME}/team/app:2"),
        &format!("--user ci:{PASSWORD}"),
    )?;
    quiet(cluster)?;
    Ok(Counts {
        passed: 2,
        failed: 0,
    })
}

/// Starts units and waits for their end. systemd refuses the sixth start of a unit within ten
/// seconds, which a fast machine reaches from one test to the next: earlier starts are cleared
/// first.
fn start(host: &Host, units: &str) -> Result<String> {
    host.sh(&format!(
        "systemctl reset-failed {units} || true; systemctl start {units}"
    ))
}

/// As [`problem`], without the half minute that a minion may take until its next check: a request
/// for its grains returns current ones.
fn problem_now(cluster: &Cluster, parts: &[&str]) -> Result<ClusterStatus> {
    cluster.bootstrap.run(&[CTL, "grains", WORKER])?;
    problem(cluster, parts)
}

/// Waits until `ctl status` shows one problem of the registry with each of these parts, and no
/// other; without parts, no problem.
fn problem(cluster: &Cluster, parts: &[&str]) -> Result<ClusterStatus> {
    let what = format!("the status to report {parts:?} about the registry");
    wait::until(&what, REPORTED, || {
        let status = health::status(cluster)?;
        let mut own = status.problems.clone();
        own.retain(|problem| problem.contains("site registry"));
        match own.as_slice() {
            [] if parts.is_empty() => Ok(status),
            [one] if !parts.is_empty() && parts.iter().all(|part| one.contains(part)) => Ok(status),
            _ => Err(anyhow!("{own:?}")),
        }
    })
}

pub(super) fn reported(cluster: &Cluster) -> Result<Counts> {
    let worker = &cluster.worker;
    let newest = || -> Result<String> {
        let all = worker.sh(&format!("ls {BACKUPS}"))?;
        all.lines()
            .last()
            .map(str::to_owned)
            .context("there is no backup")
    };
    let timers = worker.sh("systemctl list-timers --no-pager halite-registry-verify.timer")?;
    ensure!(
        timers.contains("Sun") && timers.contains("02:30:00"),
        "{timers}"
    );
    // Start both at once, as on a Sunday: the second waits for the first.
    start(
        worker,
        "halite-registry-backup.service halite-registry-verify.service",
    )?;
    let last = newest()?;
    cluster.bootstrap.run(&[CTL, "grains", WORKER])?;
    wait::until("the status to show the last backup", REPORTED, || {
        let status = problem(cluster, &[])?;
        let known = status.registry.unwrap_or_default();
        let good = known.host == WORKER
            && known.backup.as_deref() == Some(last.as_str())
            && known.verified.is_some();
        ensure!(good, "{known:?}");
        Ok(())
    })?;
    // The disk for backups is not mounted. systemd has not read this line, and does not mount it.
    let line = format!("none {BACKUPS} tmpfs noauto 0 0");
    worker.sh(&format!("echo '{line}' >> /etc/fstab"))?;
    let failed = start(worker, "halite-registry-backup.service");
    worker.sh(&format!("sed -i '\\|^none {BACKUPS} |d' /etc/fstab"))?;
    ensure!(failed.is_err(), "a backup without its disk: {failed:?}");
    problem_now(
        cluster,
        &[
            WORKER,
            "it is not mounted",
            "systemctl start halite-registry-backup",
        ],
    )?;
    start(worker, "halite-registry-backup.service")?;
    problem_now(cluster, &[])?;
    // The backup cannot even start.
    worker.sh("chmod a-x /usr/local/bin/ctl")?;
    let failed = start(worker, "halite-registry-backup.service");
    worker.sh("chmod a+x /usr/local/bin/ctl")?;
    ensure!(failed.is_err(), "a backup without its program: {failed:?}");
    problem_now(cluster, &["could not start or was cut off"])?;
    start(worker, "halite-registry-backup.service")?;
    problem_now(cluster, &[])?;
    // A blob is corrupted in place, so in all backups at once.
    let layer = worker.sh(&format!(
        "find {BACKUPS}/{}/docker -name data -size +100k | head -n 1",
        newest()?
    ))?;
    let layer = layer.trim();
    ensure!(!layer.is_empty(), "no layer in {}", newest()?);
    worker.sh(&format!(
        "printf rotten | dd of={layer} bs=1 seek=1000 conv=notrunc status=none"
    ))?;
    let found = start(worker, "halite-registry-verify.service");
    ensure!(found.is_err(), "the damage was not found: {found:?}");
    problem_now(
        cluster,
        &["verification", "is damaged", "ctl registry verify"],
    )?;
    // Follow the remedy of that message.
    let hex = layer.rsplit('/').nth(1).context("no digest")?;
    worker.sh(&format!("find {BACKUPS} -path '*/{hex}/data' -delete"))?;
    start(
        worker,
        "halite-registry-backup.service halite-registry-verify.service",
    )?;
    problem_now(cluster, &[])?;
    quiet(cluster)?;
    Ok(Counts {
        passed: 4,
        failed: 0,
    })
}
