//! Hosts that are lost permanently in the middle of an upgrade, after each step with its own
//! effect: another host replaces the lost one, or it is removed, and the same command continues.

use anyhow::{Result, ensure};
use halite_api::UpgradeStatus;
use halite_lab::cluster::Cluster;
use halite_lab::layout::HA;
use halite_lab::wait;
use halite_states::shipped::UPGRADE;
use serde_json::json;

use super::dies::ends_without;
use super::leaving::wait_until_lost;
use super::losses::{GAP, from_the_router};
use super::release::Release;
use super::standbys::STANDBYS;
use super::upgrade_stops::{has_ended, in_use, resumes};
use super::{BACK, is_complete};
use crate::ctl_answer;
use crate::interrupted::{Running, steps};
use crate::test::{Case, Counts};

/// The last control plane, which is lost after the steps of its own turn and after those before any
/// turn.
const PLANE: &str = STANDBYS[1];
/// The only worker, which is lost after the steps of its own turn and the one before it.
const WORKER: &str = "worker-1";

/// The last step that contacts the plane. Kubernetes reports its node as Ready for a while after
/// it: whether the upgrade succeeds without it depends on the time of the next step's check.
const ASKED_LAST: &str = "cp-3-pod-network";

/// The step after which the lost host is removed as a dead one, not replaced.
const REMOVED: &str = "cp-3-drained";

/// The patch releases of earlier tests, counted from the first bundle's.
const EARLIER: u32 = 3;

/// The steps after which the loss of a host has the same effect as after another step.
const LEFT_OUT: [&str; 12] = [
    // Steps of the master, and of hosts that serve bundles, up to `standbys`: as after `standbys`.
    "turn",
    "servers",
    // Also before any host changes: as after `images-workers`, except for `images-control-plane`,
    // which contacts the host.
    "images-control-plane",
    // The master has compared the plan, and contacts no host.
    "cp-3-turn",
    "workers-1-turn",
    // The master has queried the members, and does not contact the host before `cp-3-vip` has
    // ended.
    "cp-3-may-restart",
    "cp-3-leader",
    // The same again: as after `cp-3-drained`. When the last one has ended, the next step is on the
    // lost host: as after `cp-3-etcd`.
    "cp-3-drained-may-restart",
    "cp-3-drained-leader",
    "cp-3-drained-vip",
    // The API still has the node as Ready: as after `cp-3-host`.
    "cp-3-ready",
    // The host has the release, and no step contacts it any more.
    "cp-3-uncordoned",
];

/// The hosts with earlier turns: they change one after the other, each only while etcd can do
/// without it. As after `images-workers`.
const EARLIER_TURNS: [&str; 2] = ["cp-1-", "cp-2-"];

/// The steps after those: the worker has the release, and a disconnected host is left out.
const AFTER: [&str; 5] = [
    "workers-1",
    "worker-1-ready",
    "worker-1-pod-network",
    "worker-1-uncordoned",
    "image-servers",
];

/// The steps after which a host is lost, with that host. They are read from the tree: a new step is
/// included at once.
fn all() -> Result<Vec<(String, &'static str)>> {
    let pillar = json!({"bundle": "0.0.0-next", "drain": {}});
    let mut own = steps(UPGRADE, &pillar, &HA)?;
    own.retain(|step| {
        !LEFT_OUT.contains(&step.as_str())
            && !AFTER.contains(&step.as_str())
            && !EARLIER_TURNS.iter().any(|host| step.starts_with(host))
    });
    let with_host = |step: String| {
        let is_workers = step == "objects" || step.starts_with(WORKER);
        (step, if is_workers { WORKER } else { PLANE })
    };
    Ok(own.into_iter().map(with_host).collect())
}

/// A test for each step, each with a newer release than the previous one.
///
/// # Errors
/// The orchestration does not compile.
pub(super) fn numbered() -> Result<Vec<Case<Cluster>>> {
    let all = all()?;
    let count = all.len();
    let numbered = (1_u32..).zip(all);
    Ok(numbered
        .map(|(number, (step, host))| {
            let name = format!("ha: dies in an upgrade {number} of {count}, {host}, after {step}");
            Case::new(name, move |cluster| dies(cluster, number, &step, host))
        })
        .collect())
}

/// A host is lost when a step of an upgrade has ended, while a client writes. It is replaced or
/// removed, and the same command succeeds.
fn dies(cluster: &Cluster, number: u32, step: &str, name: &str) -> Result<Counts> {
    let first = &cluster.bootstrap;
    let old = in_use(first)?;
    let version = format!("{}-patch-dies-{number}", env!("CARGO_PKG_VERSION"));
    let release = Release::add(cluster, &version, EARLIER + number)?;
    let interrupted = || {
        let running = Running::start(first, &release.upgrade())?;
        let (status, said) = ends_without(cluster, running, step, name)?;
        // A disconnected worker does not keep the others from the release; one that the master
        // considers connected may block its drain.
        ensure!(
            name == WORKER || step == ASKED_LAST || !status.success(),
            "the upgrade succeeded without {name}: {said}"
        );
        wait_until_lost(cluster, name)?;
        if step == REMOVED {
            return completes_without(cluster, &release, name);
        }
        cluster.replace(name)?;
        wait::until("all hosts to serve", BACK, || is_complete(cluster))?;
        resumes(cluster, &release)
    };
    from_the_router(cluster, first, "dies-upgraded", interrupted)?
        .check("a host dies in an upgrade", GAP)?;
    has_ended(cluster, &release, &[name], &old)
}

/// The lost control plane is removed as a dead host, and the same upgrade completes the others. A
/// new host of that name joins with the release.
fn completes_without(cluster: &Cluster, release: &Release<'_>, name: &str) -> Result<()> {
    let first = &cluster.bootstrap;
    let remove = ["ctl", "node", "remove", name, "--dead"];
    let confirmed = ["--force", "--cluster", "demo"];
    let said = first.run(&[&remove[..], &confirmed].concat())?;
    println!("  {}", said.trim().replace('\n', "\n  "));
    let status: UpgradeStatus = ctl_answer::of(first, &["upgrade", "status"])?;
    ensure!(status.left.iter().any(|left| left == WORKER), "{status:?}");
    let said = first.run(&release.upgrade())?;
    println!("  {}", said.trim().replace('\n', "\n  "));
    let status: UpgradeStatus = ctl_answer::of(first, &["upgrade", "status"])?;
    ensure!(status.left.is_empty(), "{status:?}");
    cluster.lab.power_on(&[name.to_owned()])?;
    cluster.join(&[name])?;
    wait::until("all hosts to serve", BACK, || is_complete(cluster))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_dies_after_each_step_with_an_effect_of_its_own() {
        let all = all().unwrap();
        let all: Vec<(&str, &str)> = all
            .iter()
            .map(|(step, host)| (step.as_str(), *host))
            .collect();
        assert_eq!(
            all,
            [
                ("standbys", PLANE),
                ("images-workers", PLANE),
                ("cp-3-vip", PLANE),
                ("cp-3-drained", PLANE),
                ("cp-3-etcd", PLANE),
                ("cp-3-control-plane", PLANE),
                ("cp-3-host", PLANE),
                ("cp-3-pod-network", PLANE),
                ("objects", WORKER),
                ("worker-1-drained", WORKER),
            ]
        );
    }

    #[test]
    fn left_out_steps_exist() {
        let pillar = json!({"bundle": "0.0.0-next", "drain": {}});
        let known = steps(UPGRADE, &pillar, &HA).unwrap();
        let others = [ASKED_LAST, REMOVED];
        for step in LEFT_OUT.into_iter().chain(AFTER).chain(others) {
            assert!(known.iter().any(|own| own == step), "{step}: {known:?}");
        }
    }
}
