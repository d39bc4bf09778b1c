//! The master's host is lost permanently in an upgrade, between two control planes. A standby
//! becomes the master and replaces the host, and the same command there completes the upgrade.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use halite_api::{UpgradeState, UpgradeStatus};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::wait;
use halite_states::shipped::UPGRADE;
use halite_upstream::versions::NEWEST;
use serde_json::json;

use super::losses::{GAP, at_the_vip};
use super::release::{Release, has};
use super::retiring::retire;
use super::stalls::end;
use super::standbys::{STANDBYS, promoted_first, wait_for_followers, wait_until_noticed};
use super::upgrade_stops::{has_ended, in_use};
use super::{BACK, is_complete, same_content};
use crate::ctl_answer;
use crate::guide;
use crate::interrupted::Running;
use crate::test::{Counts, Test};

/// A test that leaves the master on its host.
pub(super) const TESTS: &[Test<Cluster>] = &[Test {
    name: "ha: the master's own host is lost in an upgrade, and a standby finishes that",
    run: finished_by_a_standby,
}];

/// The version of the bundle.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "-patch-lost-master");
/// A later patch release than those of the tests before this one.
const PATCHES: u32 = 61;

/// The heading of the guide with the command that replaces the master's lost host.
const LOST: &str = "## The master's host is lost, and a standby is left";

/// The namespace of the pod that holds the drain of the second control plane, and the file of its
/// objects.
const NAMESPACE: &str = "lost-master";
const FILE: &str = "/root/lost-master.json";
/// The reason in the line about that drain.
const HELD: &str = "the PodDisruptionBudget lost-master/none-may-go holds it";

/// The host is destroyed while the upgrade waits for the drain of the next control plane, on which
/// a budget holds a pod. So the moment is the same each time: the first host has the release, and
/// the second one is only cordoned. The resumed run asks again whether etcd can miss the second
/// member, and waits for the first one. No acknowledged write is lost.
fn finished_by_a_standby(cluster: &Cluster) -> Result<Counts> {
    let (first, next) = (&cluster.bootstrap, cluster.host(STANDBYS[0])?);
    let (name, asked) = (first.spec.name.as_str(), cluster.host(STANDBYS[1])?);
    wait_for_followers(first, &STANDBYS)?;
    let old = in_use(first)?;
    let release = Release::add(cluster, VERSION, PATCHES)?;
    let delete = ["delete", "namespace", NAMESPACE];
    let measured = at_the_vip(cluster, asked, "lost-master", || {
        let held = hold(cluster, next)
            .and_then(|()| destroyed_in_the_drain(cluster, &release))
            .and_then(|()| replaced(cluster, next));
        // Also after a failure: it would hold each later drain.
        let deleted = cluster.kubectl_on(STANDBYS[0], &delete);
        held?;
        deleted?;
        let said = next.run(&release.upgrade())?;
        println!("  {}", said.trim().replace('\n', "\n  "));
        wait::until("all hosts to serve", BACK, || is_complete(cluster))
    })?;
    measured.check("the master's host is lost in an upgrade", GAP)?;
    wait_for_followers(next, &[name, STANDBYS[1]])?;
    retire(next, &[STANDBYS[0], "--to", name, "--keep"])?;
    has_ended(cluster, &release, &[name], &old)
}

/// Starts a pod on a control plane, with a budget that keeps it there.
fn hold(cluster: &Cluster, host: &Host) -> Result<()> {
    let labels = json!({"app": "held"});
    let image = format!("registry.k8s.io/pause:{}", NEWEST.pause);
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "held", "namespace": NAMESPACE},
            "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "nodeSelector": {"kubernetes.io/hostname": host.spec.name},
                    "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}],
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{"name": "it", "image": image}]}}}},
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": "none-may-go", "namespace": NAMESPACE},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}}},
    ]});
    fs::write(cluster.bootstrap.file(FILE), objects.to_string())?;
    cluster.kubectl(&["apply", "-f", FILE])?;
    let rollout = ["rollout", "status", "deployment/held", "--timeout=120s"];
    cluster.kubectl(&[&["-n", NAMESPACE], &rollout[..]].concat())?;
    // Until then the server reports no numbers.
    let healthy = "--for=jsonpath={.status.currentHealthy}=1";
    let counted = ["wait", healthy, "pdb/none-may-go", "--timeout=120s"];
    cluster
        .kubectl(&[&["-n", NAMESPACE], &counted[..]].concat())
        .map(drop)
}

/// Upgrades until the second control plane waits for its drain, and destroys the master's host.
fn destroyed_in_the_drain(cluster: &Cluster, release: &Release<'_>) -> Result<()> {
    let first = &cluster.bootstrap;
    let mut running = Running::start(first, &release.upgrade())?;
    let waits = format!("  {}-drained: waiting for ", STANDBYS[0]);
    let line = running.wait_for_line(&[&waits, HELD])?;
    println!("  {}", line.trim());
    // The API shows the pod of a new manifest some time after the host runs it.
    wait::until("the release on the master's host", BACK, || {
        has(cluster, first, &release.kubernetes)
    })?;
    release.is_not_on(&[STANDBYS[0], STANDBYS[1], &cluster.worker.spec.name])?;
    let lost = std::slice::from_ref(&first.spec.name);
    cluster.lab.power_off(lost, true)?;
    let (status, _) = running.ended(|| Ok(()))?;
    ensure!(!status.success(), "ctl outlived its host");
    Ok(())
}

/// Replaces the master's lost host by the guide's command on a standby, which is promoted first.
/// The new host gets the bundle of the cluster, which is the previous one.
fn replaced(cluster: &Cluster, next: &Host) -> Result<()> {
    let lost = cluster.bootstrap.spec.name.as_str();
    wait_until_noticed(next)?;
    // It ends when it has printed the command for the new host: until then another command may have
    // to end the upgrade.
    let mut removal = guide::command("disaster.md", LOST, "ctl node replace ")?;
    removal.push("--no-wait".to_owned());
    let mut running = Running::start(next, &removal)?;
    let holds = format!("({UPGRADE}) holds it");
    match running.next_line(0, |line| line.contains(&holds))? {
        Some((_, line)) => end_the_upgrade(next, lost, &line)?,
        None => println!("  the upgrade has ended by itself"),
    }
    let (status, said) = running.ended(|| Ok(()))?;
    println!("  {}", said.trim().replace('\n', "\n  "));
    ensure!(status.success(), "the removal ended with {status}");
    promoted_first(&said, &format!("Run this on {lost}, as root:"))?;
    guide::replace(cluster, next, LOST, lost)?;
    wait_for_followers(next, &[lost, STANDBYS[1]])?;
    wait::until("all hosts to serve", BACK, || is_complete(cluster))?;
    same_content(cluster)
}

/// Ends the upgrade, which the new master has resumed, by the command in the line of the step that
/// waits for its lock. The lost host had the release, and no other one.
fn end_the_upgrade(next: &Host, lost: &str, line: &str) -> Result<()> {
    println!("  {}", line.trim());
    let status: UpgradeStatus = ctl_answer::of(next, &["upgrade", "status"])?;
    ensure!(
        status.state == UpgradeState::Running && status.done == [lost],
        "{status:?}"
    );
    let run = status.run.context("the upgrade has no run")?;
    let cancel = ["ctl", "orchestrate", "cancel", run.as_str()];
    let command = cancel.join(" ");
    ensure!(line.contains(&command), "{command:?} is not in: {line}");
    end(next, &cancel)
}

#[cfg(test)]
mod tests {
    use halite_lab::layout::HA;

    use super::*;
    use crate::interrupted::steps;

    #[test]
    fn the_second_control_plane_is_drained_after_the_turn_of_the_first() {
        let pillar = json!({"bundle": "0.0.0-next", "drain": {}});
        let steps = steps(UPGRADE, &pillar, &HA).unwrap();
        let place = |step: &str| steps.iter().position(|own| own == step).unwrap();
        let drained = place(&format!("{}-drained", STANDBYS[0]));
        assert!(place("cp-1-uncordoned") < drained, "{steps:?}");
        assert!(HELD.contains(&format!("{NAMESPACE}/")));
    }
}
