//! Events during one upgrade: a disk without space for an image, commands in a second terminal, and
//! a cut link.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use halite_api::{UpgradeState, UpgradeStatus};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::wait;

use super::BACK;
use super::losses::{GAP, from_the_router};
use super::release::Release;
use super::standbys::{STANDBYS, wait_for_followers};
use super::upgrade_stops::{has_ended, in_use};
use crate::checks::refused;
use crate::ctl_answer;
use crate::interrupted::Running;
use crate::small_disk::SmallDisk;
use crate::test::{Counts, Test};

/// A test that leaves the hosts unchanged.
pub(super) const TESTS: &[Test<Cluster>] = &[Test {
    name: "ha: a second upgrade, a cut link and a full disk do not break an upgrade",
    run: completes,
}];

/// The version of the bundle.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "-patch-meanwhile");
/// A later patch release than those of the tests before this one.
const PATCHES: u32 = 60;

/// The directory in which containerd stores unfinished downloads. All of its data would be too
/// large for a file system in memory.
const INGEST: &str = "/var/lib/containerd/io.containerd.content.v1.content/ingest";
/// The space there in MiB before it is filled.
const ROOM: u32 = 1;
/// The step that pulls the images of the worker, before any host changes.
const PULLS: &str = "images-workers";

/// The step before the worker's turn.
const OBJECTS: &str = "objects";
/// The operator's own states, and those around drains.
const CUSTOM: &str = "/etc/halite/custom";
const HOOKS: &str = "/etc/halite/custom/hooks";
/// A hook before each drain. It lasts as long as a file exists on its host, and another file shows
/// that it has started.
const HOOK: &str = "\
held:
  cmd.run:
    - name: touch /run/halite-test-begun; while test -e /run/halite-test-hold; do sleep 1; done
";
const HOLD: &str = "/run/halite-test-hold";
const BEGUN: &str = "/run/halite-test-begun";

/// An image cannot be stored on the worker: the upgrade stops before any host changes, and with
/// space the same command continues. When the first control plane has the release, other commands
/// are given in a second terminal. When all of them have it, the link between the master's host and
/// the worker is cut, in both directions. A client on the lab's router writes all the time.
fn completes(cluster: &Cluster) -> Result<Counts> {
    let first = &cluster.bootstrap;
    wait_for_followers(first, &STANDBYS)?;
    let old = in_use(first)?;
    let release = Release::add(cluster, VERSION, PATCHES)?;
    let measured = from_the_router(cluster, first, "meanwhile", || {
        stops_without_space(cluster, &release).context("a full disk")?;
        with_hook(cluster, || {
            let mut running = Running::start(first, &release.upgrade())?;
            running.wait_for(&format!("{}-uncordoned", first.spec.name), || Ok(()))?;
            let joined = second_terminal(first, &release, &old).context("a second upgrade")?;
            running.wait_for(OBJECTS, || Ok(()))?;
            waits_for_the_link(cluster, &mut running).context("a cut link")?;
            let success = format!("the cluster has the bundle {VERSION}");
            for upgrade in [running, joined] {
                let (status, said) = upgrade.ended(|| Ok(()))?;
                println!("  {}", said.trim().replace('\n', "\n  "));
                ensure!(
                    status.success() && said.contains(&success),
                    "the upgrade ended with {status}"
                );
            }
            Ok(())
        })
    })?;
    measured.check("an upgrade with a cut link and a full disk", GAP)?;
    has_ended(cluster, &release, &[], &old)?;
    Ok(Counts {
        passed: 3,
        failed: 0,
    })
}

/// The worker has no space for an image of the release. The upgrade stops, names the host, the
/// image and the cause, and no host has changed.
fn stops_without_space(cluster: &Cluster, release: &Release<'_>) -> Result<()> {
    let disk = SmallDisk::over(&cluster.worker, INGEST, ROOM)?;
    let stopped = disk.fill().and_then(|()| stopped(cluster, release));
    // Also after a failure: other tests pull images.
    disk.remove()?;
    stopped
}

fn stopped(cluster: &Cluster, release: &Release<'_>) -> Result<()> {
    let (first, worker) = (&cluster.bootstrap, cluster.worker.spec.name.as_str());
    let (status, said) = Running::start(first, &release.upgrade())?.ended(|| Ok(()))?;
    println!("  {}", said.trim().replace('\n', "\n  "));
    ensure!(!status.success(), "the upgrade succeeded");
    for part in [
        &format!("{PULLS} ✗"),
        &format!("{worker}: image.present "),
        "no space left on device",
        &format!("ctl upgrade {VERSION}"),
    ] {
        ensure!(said.contains(part), "{part:?} is not in the output");
    }
    let hosts = cluster.hosts().into_iter();
    let hosts: Vec<&str> = hosts.map(|host| host.spec.name.as_str()).collect();
    release.is_not_on(&hosts)?;
    let status: UpgradeStatus = ctl_answer::of(first, &["upgrade", "status"])?;
    ensure!(
        status.state == UpgradeState::Stopped
            && status.step.as_deref() == Some(PULLS)
            && status.done.is_empty(),
        "{status:?}"
    );
    Ok(())
}

/// Does something while the operator has the hook, which holds a run before the drain of the
/// worker.
fn with_hook(cluster: &Cluster, act: impl FnOnce() -> Result<()>) -> Result<()> {
    let first = &cluster.bootstrap;
    let hooks = first.file(HOOKS);
    ensure!(!hooks.exists(), "{} already exists", hooks.display());
    fs::create_dir_all(&hooks)?;
    fs::write(hooks.join("pre_drain.sls"), HOOK)?;
    let outcome = cluster
        .worker
        .sh(&format!("rm -f {BEGUN} && touch {HOLD}"))
        .and_then(|_| act());
    // Also after a failure: the tests after this one have no hooks.
    first.sh(&format!(
        "rm -r {HOOKS} && rmdir --ignore-fail-on-non-empty {CUSTOM}"
    ))?;
    for host in cluster.hosts() {
        host.run(&["rm", "-f", HOLD, BEGUN])?;
    }
    outcome
}

/// While the upgrade runs, neither the previous bundle nor the way back is accepted, nor the same
/// upgrade with other options. The same command joins it, and is returned.
fn second_terminal(first: &Host, release: &Release<'_>, old: &str) -> Result<Running> {
    let status = || ctl_answer::of::<UpgradeStatus>(first, &["upgrade", "status"]);
    let before = status()?;
    let run = before.run.context("no upgrade runs")?;
    refused(
        first,
        &["ctl", "upgrade", old, "--yes"],
        &["is older than", "`ctl upgrade back` returns the hosts"],
    )?;
    refused(
        first,
        &["ctl", "upgrade", "back", "--yes"],
        &[
            "cannot return to the previous bundle: the upgrade is running",
            "`ctl upgrade pause` ends it before its next host",
        ],
    )?;
    let other = [&release.upgrade()[..], &["--no-backup", "--batch", "1"]].concat();
    let differ = format!(
        "the upgrade to the bundle {VERSION} is in progress ({run}) with other options (--no-backup, --batch)"
    );
    let joins = format!("`ctl upgrade {VERSION}` with its options joins it");
    refused(first, &other, &[&differ, &joins])?;
    let now = status()?;
    ensure!(
        now.state == UpgradeState::Running && now.run.as_ref() == Some(&run),
        "{now:?}"
    );
    let mut joined = Running::start(first, &release.upgrade())?;
    let is_joined = format!("{run} is in progress, and is joined");
    let line = joined.wait_for_line(&[&is_joined])?;
    println!("  {}", line.trim());
    Ok(joined)
}

/// Cuts the link between the master's host and the worker while the hook runs there, until the
/// upgrade says that it waits for the worker. Then the hook ends.
fn waits_for_the_link(cluster: &Cluster, running: &mut Running) -> Result<()> {
    let (first, worker) = (&cluster.bootstrap, &cluster.worker);
    let name = worker.spec.name.as_str();
    wait::until("the hook to run on the worker", BACK, || {
        worker.run(&["test", "-e", BEGUN]).map(drop)
    })?;
    let waits = format!("  {name}-pre-drain: waiting for ");
    let away = format!("{name} is not connected, and may still work on the job ");
    let cut = cluster.lab.cut_link(first, worker);
    let cut = cut.and_then(|()| cluster.lab.cut_link(worker, first));
    let line = cut.and_then(|()| running.wait_for_line(&[&waits, &away]));
    // Also after a failure: the tests after this one need the link.
    cluster.lab.restore_link(first, worker)?;
    cluster.lab.restore_link(worker, first)?;
    let line = line?;
    println!("  {}", line.trim());
    for part in [
        "switch the host on, and the step continues",
        "leaves it out",
    ] {
        ensure!(line.contains(part), "{part:?} is not in: {line}");
    }
    worker.run(&["rm", HOLD]).map(drop)
}

#[cfg(test)]
mod tests {
    use halite_lab::layout::HA;
    use halite_states::shipped::UPGRADE;
    use serde_json::json;

    use super::*;
    use crate::interrupted::steps;

    #[test]
    fn the_steps_of_the_test_exist() {
        let pillar = json!({"bundle": "0.0.0-next", "drain": {}});
        let known = steps(UPGRADE, &pillar, &HA).unwrap();
        for step in ["turn", PULLS, "cp-1-uncordoned", OBJECTS] {
            assert!(known.iter().any(|own| own == step), "{step}: {known:?}");
        }
    }

    #[test]
    fn the_hook_looks_at_the_files_of_the_test() {
        assert!(HOOK.contains(HOLD) && HOOK.contains(BEGUN));
        assert!(HOOKS.starts_with(CUSTOM));
    }
}
