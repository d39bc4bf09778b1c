//! The upgrade to a newer patch release, and upgrades that are interrupted at the end of each step,
//! under a write loop.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use halite_api::{
    RunOutcome, UpgradeCheck, UpgradeFinding, UpgradeSeverity, UpgradeState, UpgradeStatus,
};
use halite_lab::cluster::Cluster;
use halite_lab::layout::HA;
use halite_lab::wait;
use halite_states::shipped::UPGRADE;
use halite_upstream::versions;
use serde_json::json;

use super::leaving::MASTER;
use super::losses::{
    ConfigMapWriter, GAP, Measured, VIP, at_the_vip, from_the_router, wait_for_one_holder,
};
use super::release::Release;
use super::upgrade_stops::{has_ended, in_use};
use super::{BACK, is_complete};
use crate::checks::refused;
use crate::ctl_answer;
use crate::firewall;
use crate::guide;
use crate::interrupted::steps;
use crate::struck::{StepBoundaries, StepVictim};
use crate::test::{Counts, Test};
use crate::two_replicas;

/// The minion's identity.
const IDENTITY: &str = "/var/lib/halite/minion/identity.crt /var/lib/halite/minion/identity.key";
/// Units that a patch release of Kubernetes does not restart. keepalived is stopped for a moment,
/// so that another host takes the address.
const UNITS: &str = "containerd firewalld nginx halite-master halite-minion dbus systemd-journald";

/// Upgrades that are interrupted. Each is to a newer release than the previous one, and than those
/// of the hosts that die in an upgrade.
pub(super) const INTERRUPTED: &[Test<Cluster>] = &[
    Test {
        name: "ha: an upgrade whose master dies at the end of each step ends the same",
        run: |cluster| interrupted(cluster, StepVictim::Master, 20),
    },
    Test {
        name: "ha: an upgrade whose minions die at the end of each step ends the same",
        run: |cluster| interrupted(cluster, StepVictim::Minion, 30),
    },
    Test {
        name: "ha: an upgrade whose hosts lose their power at the end of each step ends the same",
        run: |cluster| interrupted(cluster, StepVictim::Host, 40),
    },
];

/// The largest number of upgrades of one test.
const UPGRADES: u32 = 2;

/// Upgrades a cluster to a bundle of its site, while the worker writes through the virtual address.
/// Returns the time of the command.
///
/// # Errors
/// The upgrade fails, an acknowledged write is missing, or a host does not serve afterwards.
pub fn timed(cluster: &Cluster, version: &str) -> Result<(Duration, Measured)> {
    let first = &cluster.bootstrap;
    let mut time = Duration::ZERO;
    let measured = at_the_vip(cluster, first, "upgrade", || {
        let start = Instant::now();
        first.run(&["ctl", "upgrade", version, "--yes"])?;
        time = start.elapsed();
        Ok(())
    })?;
    wait::until("all hosts to serve", BACK, || is_complete(cluster))?;
    Ok((time, measured))
}

/// The documents in /etc/halite, as one text.
fn documents(cluster: &Cluster) -> Result<String> {
    let line = "cat /etc/halite/cluster.yaml /etc/halite/nodes/*.yaml";
    cluster.bootstrap.sh(line)
}

/// By host, the digests of its identity and the invocations of the units that stay.
fn stays(cluster: &Cluster) -> Result<BTreeMap<String, String>> {
    let line = format!("sha256sum {IDENTITY} && systemctl show -p Id,InvocationID {UNITS}");
    let hosts = cluster.hosts().into_iter();
    hosts
        .map(|host| Ok((host.spec.name.clone(), host.sh(&line)?)))
        .collect()
}

/// A cluster is upgraded from one published patch release to another one host by host, and no
/// acknowledged write is lost. At no moment is a port open that the roles do not open, and one of
/// two replicas is always ready. No host is enrolled again, and no unit restarts but the kubelet
/// and keepalived.
///
/// # Errors
/// The upgrade fails, or one of this does not hold.
pub(crate) fn to_published(
    cluster: &Cluster,
    from: &versions::Release,
    to: &versions::Release,
) -> Result<Counts> {
    let first = &cluster.bootstrap;
    let release = Release::published(cluster, to)?;
    let (version, kubernetes) = (release.version.as_str(), &release.kubernetes);
    let recorded = documents(cluster)?;
    let reason = format!("has Kubernetes {kubernetes}, not {}", from.kubernetes);
    refused(first, &["ctl", "bundle", "use", version], &[&reason])?;
    two_replicas::start(cluster)?;
    planned(cluster, kubernetes)?;
    budgets_are_named(cluster, kubernetes)?;
    ensure!(
        documents(cluster)? == recorded,
        "a test wrote into the documents"
    );
    release.is_not_on(&["cp-1", "cp-2", "cp-3", "worker-1"])?;

    let kept = stays(cluster)?;
    let writer = ConfigMapWriter::on_the_worker(cluster, first, "upgrade")?;
    let said = two_replicas::while_one_is_ready(cluster, || {
        firewall::during(cluster, VIP, &MASTER, &[], || {
            with_a_pause(cluster, &release)
        })
    })?;
    println!("  {}", said.trim().replace('\n', "\n  "));
    wait::until("all hosts to be Ready", BACK, || is_complete(cluster))?;
    let record = writer.end()?;
    println!("  {}", record.summary());
    let gap = record.longest_gap();
    if gap.length > GAP {
        bail!("a gap of {:?}: {:?}", gap.length, gap.errors);
    }
    two_replicas::delete(cluster)?;

    release.is_on_all(&[])?;
    let now = stays(cluster)?;
    ensure!(
        now == kept,
        "an identity is another one, or a unit was restarted:\nwas {kept:#?}\nis {now:#?}"
    );
    let recorded = documents(cluster)?;
    ensure!(
        recorded.matches("bundle:").count() == 1 && !recorded.contains(from.kubernetes),
        "not only the cluster document records the bundle: {recorded}"
    );
    // A downgrade is refused, and none is needed to remove the previous bundle.
    let old = from.bundle();
    let reason = format!("is older than {kubernetes}");
    refused(first, &["ctl", "upgrade", &old], &[&reason])?;
    first.run(&["ctl", "bundle", "remove", &old, "--yes"])?;
    Ok(Counts::ONE)
}

/// The plan names the order and the changes of each host. A pod without a controller keeps the
/// upgrade from its start.
fn planned(cluster: &Cluster, kubernetes: &str) -> Result<()> {
    let first = &cluster.bootstrap;
    let worker = cluster.worker.spec.name.as_str();
    let tested: RunOutcome = ctl_answer::of(first, &["upgrade", kubernetes, "--test"])?;
    let plan = tested.plan.context("no plan")?;
    let turns: Vec<&str> = plan
        .turns
        .iter()
        .flat_map(|turn| &turn.hosts)
        .map(|host| host.as_str())
        .collect();
    ensure!(
        turns == ["cp-1", "cp-2", "cp-3", "master", worker],
        "the order is {turns:?}"
    );
    ensure!(
        plan.turns
            .iter()
            .all(|turn| turn.hosts == ["master"] || turn.drained == turn.hosts),
        "not every host is drained: {:?}",
        plan.turns
    );
    // The pods, the budgets and the metrics of each API server were read.
    let wrong = |finding: &&UpgradeFinding| {
        finding.severity == UpgradeSeverity::Error || finding.check == UpgradeCheck::Api
    };
    ensure!(
        !plan.findings.iter().any(|finding| wrong(&finding)),
        "{:?}",
        plan.findings
    );
    for host in ["cp-1", "cp-2", "cp-3", worker] {
        let own = tested
            .minions
            .iter()
            .find(|(minion, _)| minion.as_str() == host);
        let changed = own.and_then(|(_, outcome)| outcome.changed);
        ensure!(changed > Some(0), "no change is predicted on {host}");
    }
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare"},
        "spec": {"nodeName": worker, "containers": [{"name": "bare", "image": "none.invalid/none:1"}]}});
    let file = "/root/bare.json";
    fs::write(first.file(file), pod.to_string())?;
    cluster.kubectl(&["apply", "-f", file])?;
    let reason = "1 finding would stop the run";
    let outcome = refused(first, &["ctl", "upgrade", kubernetes, "--yes"], &[reason]);
    cluster.kubectl(&["delete", "pod", "bare", "--force", "--grace-period=0"])?;
    fs::remove_file(first.file(file))?;
    outcome
}

/// The plan names a pod that a budget holds, with its owner, until the budget allows its eviction.
fn budgets_are_named(cluster: &Cluster, kubernetes: &str) -> Result<()> {
    let first = &cluster.bootstrap;
    let held = || -> Result<Vec<String>> {
        let tested: RunOutcome = ctl_answer::of(first, &["upgrade", kubernetes, "--test"])?;
        let findings = tested.plan.context("no plan")?.findings.into_iter();
        let held = findings.filter(|finding| {
            finding.check == UpgradeCheck::Budgets && finding.severity == UpgradeSeverity::Warning
        });
        Ok(held.map(|finding| finding.message).collect())
    };
    let name = two_replicas::NAME;
    let parts = [
        format!("default/{name}-"),
        format!(" (Deployment {name}) on "),
        format!(
            "cannot be evicted now: the PodDisruptionBudget default/{name} holds it (1 healthy, 1 required)"
        ),
    ];
    let found = two_replicas::while_held(cluster, held)?;
    ensure!(
        found
            .iter()
            .any(|message| parts.iter().all(|part| message.contains(part))),
        "the plan has no finding with {parts:?}: {found:?}"
    );
    let found = held()?;
    ensure!(
        !found.iter().any(|message| message.contains(&parts[0])),
        "it is still one with two replicas: {found:?}"
    );
    Ok(())
}

/// The upgrade pauses when the control planes have the release, by the commands of the guide. Its
/// lock is free then, and the pause stays visible until it continues with the worker.
fn with_a_pause(cluster: &Cluster, release: &Release<'_>) -> Result<String> {
    let first = &cluster.bootstrap;
    let worker = cluster.worker.spec.name.as_str();
    let of_page = |command| guide::upgrade_command(command, &release.version, &[]);
    let unasked = |command| guide::upgrade_command(command, &release.version, &["--yes"]);
    let mut said = first.run(&unasked("ctl upgrade 1.1 --pause-after control-plane")?)?;
    ensure!(said.contains("`ctl upgrade resume` continues it"), "{said}");
    let status: UpgradeStatus = ctl_answer::of(first, &["upgrade", "status"])?;
    ensure!(
        status.state == UpgradeState::Paused && status.left == [worker],
        "{status:?}"
    );
    let shown = first.run(&of_page("ctl upgrade status")?)?;
    ensure!(shown.contains(" is paused (by "), "{shown}");
    release.is_not_on(&[worker])?;
    // The objects of the release restart kube-proxy on the control planes at this time.
    let rolled_out = [
        "rollout",
        "status",
        "daemonset/kube-proxy",
        "--timeout=300s",
    ];
    cluster.kubectl(&[&["-n", "kube-system"], &rolled_out[..]].concat())?;
    // The API shows a restarted pod as ready some time after it is.
    let seen = wait::until("a cluster without failures", BACK, || {
        first.run(&["ctl", "status"])
    })?;
    ensure!(seen.contains("is paused since"), "{seen}");
    first.run(&["timeout", "120", "ctl", "etcd", "defrag"])?;
    said += &first.run(&unasked("ctl upgrade resume")?)?;
    let status: UpgradeStatus = ctl_answer::of(first, &["upgrade", "status"])?;
    ensure!(status.state == UpgradeState::Done, "{status:?}");
    Ok(said)
}

/// The victim dies each time when a step of an upgrade has ended, while a client writes, and in the
/// end the cluster has the release, which is this many patch releases after the first one. If too
/// many moments were missed, they are among those of an upgrade to the release after that.
fn interrupted(cluster: &Cluster, victim: StepVictim, patches: u32) -> Result<Counts> {
    let mut boundaries = StepBoundaries::new(cluster, steps_of_upgrade()?, &[victim]);
    for patches in patches..patches + UPGRADES {
        let old = in_use(&cluster.bootstrap)?;
        let version = format!("{}-patch-struck-{patches}", env!("CARGO_PKG_VERSION"));
        let release = Release::add(cluster, &version, patches)?;
        let measured = from_the_router(cluster, &cluster.bootstrap, "struck", || {
            boundaries.run(&release.upgrade())
        })?;
        let what = "an upgrade is interrupted";
        match victim {
            // Several hosts lose their power one after the other, faster than they come back.
            StepVictim::Host => measured.print(what),
            // A killed move leaves the address on two hosts until its lifetime ends.
            StepVictim::Minion => {
                measured.print(what);
                let gap = &measured.gap;
                ensure!(
                    gap.length <= GAP,
                    "a gap of {:?}: {:?}",
                    gap.length,
                    gap.errors
                );
            }
            StepVictim::Master => measured.check(what, GAP)?,
        }
        has_ended(cluster, &release, &[], &old)?;
        wait_for_one_holder(cluster)?;
        takes_pods(cluster)?;
        if boundaries.are_enough() {
            break;
        }
    }
    boundaries.counts()
}

/// The steps of an upgrade on the hosts of the site.
fn steps_of_upgrade() -> Result<Vec<String>> {
    let pillar = json!({"bundle": "0.0.0-next", "drain": {}, "backup": true});
    steps(UPGRADE, &pillar, &HA)
}

/// Fails if a drain has left a node that takes no pods.
pub(super) fn takes_pods(cluster: &Cluster) -> Result<()> {
    let path = "jsonpath={.items[*].spec.unschedulable}";
    let cordoned = cluster.kubectl(&["get", "nodes", "-o", path])?;
    ensure!(cordoned.trim().is_empty(), "a node is still cordoned");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upgrade_has_steps_of_each_host() {
        let steps = steps_of_upgrade().unwrap();
        assert_eq!(steps.len(), 56, "{steps:?}");
        assert_eq!(steps.last().map(String::as_str), Some("image-servers"));
        for step in [
            "backup",
            "cp-1-turn",
            "cp-2-drained-leader",
            "cp-3-pod-network",
            "cp-3-uncordoned",
            "worker-1-drained",
        ] {
            assert!(steps.iter().any(|own| own == step), "{step}: {steps:?}");
        }
    }
}
