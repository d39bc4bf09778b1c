//! An upgrade to a bundle with another Halite and a later patch release of Kubernetes: the programs
//! change with their hosts, and the run that the earlier master has begun is ended by the new one.
//! The programs are those of [another Halite](crate::bundles::other_programs), whose master has the
//! same version: later turns are compared with the plan that the earlier master made.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use halite_api::{RunOutcome, UpgradeSeverity, UpgradeState, UpgradeStatus};
use halite_lab::build::OTHER;
use halite_lab::cluster::{BOOTSTRAP, Cluster, WORKER};
use halite_lab::host::Host;
use halite_lab::layout::TWO;
use halite_lab::wait;
use halite_upstream::versions::NEWEST;

use crate::bundles::{MASTER, first_host, minions_say, runs};
use crate::checks::{nothing_to_do, refused};
use crate::cluster::{PODS, nothing_left};
use crate::ctl_answer;
use crate::ha::{add_release_with_halite, has_release, while_written};
use crate::interrupted::Running;
use crate::kills::master_answers;
use crate::reboots::lose_power;
use crate::repair::highstate_by;
use crate::site::{Site, from_the_iso};
use crate::test::{Counts, Test, cases, sequence};

/// The name of its own lab: an upgrade to another Halite does not lead back.
const LAB: &str = "newer";

const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "newer: an upgrade replaces Halite on all hosts, also after a power cut of the master's host, and no write is lost",
        run: upgraded,
    },
    Test {
        name: "newer: nothing tried to leave",
        run: nothing_left,
    },
];

/// The version of the bundle.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "-newer");

/// The command, which leaves the worker for later.
const UPGRADE: [&str; 6] = [
    "ctl",
    "upgrade",
    VERSION,
    "--pause-after",
    "control-plane",
    "--yes",
];

/// Limit for the highstate of the first host to replace the master's program: the backup, the
/// images, the drain and the static pods come before it.
const MOMENT: Duration = Duration::from_secs(600);

/// Limit for the command to continue after the power cut.
const AGAIN: Duration = Duration::from_secs(600);

/// The site whose Halite is replaced.
pub(super) fn site() -> Site {
    Site {
        lab: LAB.to_owned(),
        made: "newer: bootstrap and node add, before another Halite",
        layout: &TWO,
        release: NEWEST,
        make: from_the_iso,
        tests: sequence(cases(TESTS)),
    }
}

/// The master's host loses its power when the new master is installed, before the host records the
/// bundle. The new master and the same command continue to a pause, with the worker's earlier
/// minion. No way leads back from there. The resumed run gives the worker the bundle.
fn upgraded(cluster: &Cluster) -> Result<Counts> {
    let (host, first) = (&cluster.bootstrap, NEWEST.bundle());
    let kubernetes = add_release_with_halite(cluster, &NEWEST, VERSION, 1)?;
    first_host(cluster, &first)?;
    runs(cluster, &cluster.worker, "halite-minion", &first)?;
    planned(host)?;
    let record = while_written(cluster, host, "newer", || {
        cut_off(cluster)?;
        master_answers(host)?;
        runs(cluster, host, "halite-master", VERSION)?;
        continued(host)?;
        between(cluster, &first)?;
        let resume = Running::start(host, &["ctl", "upgrade", "resume", "--yes"])?;
        let (status, said) = resume.ended(|| Ok(()))?;
        println!("  {}", said.trim().replace('\n', "\n  "));
        ensure!(status.success(), "the resumed upgrade ended with {status}");
        Ok(())
    })?;
    println!("  {}", record.summary());
    completed(cluster, &kubernetes)?;
    host.run(&["ctl", "bundle", "remove", &first, "--yes"])?;
    Ok(Counts::ONE)
}

/// The plan names the order, and each program that is replaced on each host.
fn planned(host: &Host) -> Result<()> {
    let tested: RunOutcome = ctl_answer::of(host, &["upgrade", VERSION, "--test"])?;
    let plan = tested.plan.context("no plan")?;
    let turns: Vec<&str> = plan
        .turns
        .iter()
        .flat_map(|turn| &turn.hosts)
        .map(|host| host.as_str())
        .collect();
    ensure!(
        turns == [BOOTSTRAP, "master", WORKER],
        "the order is {turns:?}"
    );
    let errors = plan.findings.iter();
    let mut errors = errors.filter(|finding| finding.severity == UpgradeSeverity::Error);
    if let Some(error) = errors.next() {
        bail!("the plan has an error: {error:?}");
    }
    let programs = ["ctl", "halite-master", "halite-minion"];
    for (name, replaced) in [(BOOTSTRAP, &programs[..]), (WORKER, &programs[2..])] {
        let mut minions = tested.minions.iter();
        let own = minions.find(|(minion, _)| minion.as_str() == name);
        let states = own.and_then(|(_, outcome)| outcome.states.as_ref());
        let states = states.with_context(|| format!("no states of {name}"))?;
        for program in replaced {
            let file = format!("/usr/local/bin/{program}");
            let mut changed = states.iter().filter(|state| state.result.is_none());
            ensure!(
                changed.any(|state| state.function == "file.managed" && state.name == file),
                "no change of {file} is planned on {name}"
            );
        }
    }
    Ok(())
}

/// Upgrades until the first host's highstate has installed the new master, and cuts the power of
/// the host. Its documents do not record the bundle yet.
fn cut_off(cluster: &Cluster) -> Result<()> {
    let host = &cluster.bootstrap;
    let inode = || fs::metadata(host.file(MASTER)).map(|status| status.ino());
    let before = inode()?;
    let mut running = Running::start(host, &UPGRADE)?;
    let has_ended = wait::promptly("the new master's program", MOMENT, || {
        if inode().is_ok_and(|now| now != before) {
            return Ok(false);
        }
        if running.has_ended()? {
            return Ok(true);
        }
        Err(anyhow!("{} lines were printed", running.line_count()))
    })?;
    if !has_ended {
        lose_power(cluster, host)?;
    }
    let (status, said) = running.ended(|| Ok(()))?;
    println!("  {}", said.trim().replace('\n', "\n  "));
    ensure!(
        !has_ended && !status.success(),
        "the upgrade ended with {status} before its host lost its power"
    );
    let documents = host.sh("cat /etc/halite/cluster.yaml /etc/halite/nodes/*.yaml")?;
    ensure!(
        !documents.contains(VERSION),
        "a document records the bundle already: {documents}"
    );
    Ok(())
}

/// The same command continues until the upgrade is paused. It joins the run that the new master has
/// resumed; the cluster may refuse it for a while after the power cut.
fn continued(host: &Host) -> Result<()> {
    let what = "the same command to reach the pause";
    let status = wait::until(what, AGAIN, || {
        let status: UpgradeStatus = ctl_answer::of(host, &["upgrade", "status"])?;
        if status.state == UpgradeState::Paused {
            return Ok(status);
        }
        let (ended, said) = Running::start(host, &UPGRADE)?.ended(|| Ok(()))?;
        println!("  {}", said.trim().replace('\n', "\n  "));
        Err(anyhow!("the command ended with {ended}: {said}"))
    })?;
    ensure!(
        status.left == [WORKER] && status.done == [BOOTSTRAP],
        "{status:?}"
    );
    Ok(())
}

/// The first host has the new Halite, and the worker has the earlier minion, which answers the new
/// master. A return is refused, because of the master.
fn between(cluster: &Cluster, first: &str) -> Result<()> {
    let host = &cluster.bootstrap;
    // A minion restarts two seconds after the highstate that has replaced it.
    wait::until("the new Halite on the first host", PODS, || {
        first_host(cluster, VERSION)
    })?;
    runs(cluster, &cluster.worker, "halite-minion", first)?;
    host.run(&["ctl", "ping", WORKER])?;
    refused(
        host,
        &["ctl", "upgrade", "back", "--yes"],
        &[
            &format!("cannot return from the bundle {VERSION} to {first}"),
            "another halite-master",
            "only a restored backup leads back",
            "the newest one from before the upgrade is",
        ],
    )
}

/// All hosts run the new Halite and the new Kubernetes, and nothing is left to do.
fn completed(cluster: &Cluster, kubernetes: &str) -> Result<()> {
    let host = &cluster.bootstrap;
    let status: UpgradeStatus = ctl_answer::of(host, &["upgrade", "status"])?;
    ensure!(
        status.state == UpgradeState::Done && !status.back && status.left.is_empty(),
        "{status:?}"
    );
    wait::until("the new Halite on all hosts", PODS, || {
        first_host(cluster, VERSION)?;
        runs(cluster, &cluster.worker, "halite-minion", VERSION)?;
        minions_say(cluster, OTHER)
    })?;
    cluster.wait_for_pods(PODS)?;
    for host in cluster.hosts() {
        // The API shows the pod of a new manifest some time after the host runs it.
        wait::until("the release on a host", PODS, || {
            has_release(cluster, host, kubernetes)
        })?;
    }
    nothing_to_do(host)?;
    let answer = highstate_by(cluster, "ctl", &[])?;
    ensure!(
        answer.changed.is_empty() && answer.updated_first.is_empty(),
        "another highstate changed {:?}, and updated the minions of {:?}",
        answer.changed,
        answer.updated_first
    );
    wait::until("a status without problems", PODS, || {
        host.run(&["ctl", "status"]).map(drop)
    })
}

#[cfg(test)]
mod tests {
    use halite_states::shipped::UPGRADE as SLS;
    use serde_json::json;

    use super::*;
    use crate::interrupted::steps;

    #[test]
    fn the_pause_comes_between_the_first_host_and_the_worker() {
        let pillar = json!({"bundle": "0.0.0-next", "drain": {}, "pause_after": "control-plane"});
        let steps = steps(SLS, &pillar, &TWO).unwrap();
        let host = format!("{BOOTSTRAP}-host");
        assert!(steps.contains(&host), "{steps:?}");
        assert_eq!(steps.last().map(String::as_str), Some("pause"), "{steps:?}");
    }
}
