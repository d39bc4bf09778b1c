//! An upgrade that leads back before it has ended, while a client writes.

use anyhow::{Context as _, Result, ensure};
use halite_api::{ClusterStatus, RunOutcome, UpgradeState, UpgradeStatus};
use halite_lab::cluster::Cluster;
use halite_lab::wait;

use super::losses::{GAP, at_the_vip};
use super::release::Release;
use super::standbys::{STANDBYS, wait_for_followers};
use super::upgraded::takes_pods;
use super::{BACK, is_complete};
use crate::checks::refused;
use crate::ctl_answer::{in_any_case, of};
use crate::guide;
use crate::interrupted::Running;
use crate::test::{Counts, Test};

/// Tests that leave the cluster in its bundle.
pub(super) const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "ha: an upgrade that is paused leads back to the previous bundle, and no write is lost",
        run: returns,
    },
    Test {
        name: "ha: a kubelet that does not start gets its package back, and its host leads back",
        run: from_a_broken_kubelet,
    },
];

/// The version of the bundle from which the hosts return.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "-patch-back");
/// A patch release that no other test uses.
const PATCHES: u32 = 90;

/// The version of the bundle whose kubelet does not start.
const BROKEN: &str = concat!(env!("CARGO_PKG_VERSION"), "-patch-broken-kubelet");

/// Makes hooks that note each run on the host, and fail there while it has this file.
const HOOKS: &str = r"mkdir -p /etc/halite/custom/hooks && cd /etc/halite/custom/hooks && for hook in pre_drain post_uncordon; do
printf 'note:\n  cmd.run:\n    - name: test ! -e /run/halite-hook-fails && echo %s >>/run/halite-hooks\n' ${hook%%_*} >$hook.sls; done";
const FAILS: &str = "/run/halite-hook-fails";

/// The upgrade stops at a hook of its first host, and the same command continues when the hook
/// succeeds. It pauses when the control planes and the objects have the release. They return to the
/// previous one, packages and manifests included, the worker is not touched, and no acknowledged
/// write is lost. The commands are those of the guide.
fn returns(cluster: &Cluster) -> Result<Counts> {
    let (first, worker) = (&cluster.bootstrap, cluster.worker.spec.name.as_str());
    let (_, status): (_, ClusterStatus) = in_any_case(first, &["status"])?;
    let before = status.bundle.context("no bundle")?;
    let release = Release::add(cluster, VERSION, PATCHES)?;
    first.sh(HOOKS)?;
    let unasked = |command| guide::upgrade_command(command, VERSION, &["--yes"]);
    let measured = at_the_vip(cluster, first, "back", || {
        let words = unasked("ctl upgrade 1.1 --pause-after control-plane")?;
        stops_at_its_hook(cluster, &release, &words)?;
        first.run(&words)?;
        let tested = guide::upgrade_command("ctl upgrade back --test", VERSION, &[])?;
        let tested: Vec<&str> = tested.iter().map(String::as_str).collect();
        let tested: RunOutcome = of(first, &tested[1..])?;
        let plan = tested.plan.context("no plan")?;
        let turns: Vec<_> = plan.turns.iter().flat_map(|turn| &turn.hosts).collect();
        ensure!(
            turns == ["master", "cp-3", "cp-2", "cp-1"] && plan.back,
            "the order is {turns:?}"
        );
        let said = first.run(&unasked("ctl upgrade back")?)?;
        println!("  {}", said.trim().replace('\n', "\n  "));
        wait::until("all hosts to serve", BACK, || is_complete(cluster))
    })?;
    measured.check("an upgrade leads back", GAP)?;
    first.sh(
        "rm -r /etc/halite/custom/hooks && rmdir --ignore-fail-on-non-empty /etc/halite/custom",
    )?;
    for host in cluster.control_planes() {
        let said = host.sh("cat /run/halite-hooks && rm /run/halite-hooks")?;
        let name = &host.spec.name;
        ensure!(
            said.split_whitespace().eq(["pre", "post", "pre", "post"]),
            "the hooks of {name} have run in this order: {said}"
        );
    }
    release.is_not_on(&[worker])?;
    release.has_left(&before.kubernetes)?;
    wait_for_followers(first, &STANDBYS)?;
    let status: UpgradeStatus = of(first, &["upgrade", "status"])?;
    ensure!(
        status.back && status.state == UpgradeState::Done,
        "{status:?}"
    );
    let recorded = first.sh("cat /etc/halite/cluster.yaml /etc/halite/nodes/*.yaml")?;
    ensure!(
        !recorded.contains(VERSION),
        "a document records the next bundle: {recorded}"
    );
    refused(
        first,
        &["ctl", "upgrade", "back", "--yes"],
        &["no host has begun"],
    )?;
    first.run(&unasked("ctl bundle remove 1.1")?)?;
    Ok(Counts::ONE)
}

/// A hook fails on the first host: the run stops there, before this or another host is drained or
/// changed.
fn stops_at_its_hook(cluster: &Cluster, release: &Release<'_>, words: &[String]) -> Result<()> {
    let first = &cluster.bootstrap;
    first.run(&["touch", FAILS])?;
    let stopped = Running::start(first, words)?.ended(|| Ok(()));
    // This is the repair, also after a failure.
    first.run(&["rm", FAILS])?;
    let (status, said) = stopped?;
    println!("  {}", said.trim().replace('\n', "\n  "));
    ensure!(!status.success(), "the upgrade succeeded");
    for part in [
        "cp-1-pre-drain ✗",
        "cp-1: cmd.run ",
        "(custom.hooks.pre_drain)",
        // A step that was not reached.
        "cp-1-drained –",
    ] {
        ensure!(said.contains(part), "{part:?} is not in the output");
    }
    release.is_not_on(&["cp-1", "cp-2", "cp-3", &cluster.worker.spec.name])?;
    takes_pods(cluster)?;
    let status: UpgradeStatus = of(first, &["upgrade", "status"])?;
    ensure!(
        status.state == UpgradeState::Stopped
            && status.step.as_deref() == Some("cp-1-pre-drain")
            && status.done.is_empty(),
        "{status:?}"
    );
    Ok(())
}

/// The new kubelet of the first host does not start. The host gets its previous kubelet back, the
/// run stops there, and the cluster serves. The rest of the host returns with `ctl upgrade back`.
fn from_a_broken_kubelet(cluster: &Cluster) -> Result<Counts> {
    let first = &cluster.bootstrap;
    let (_, status): (_, ClusterStatus) = in_any_case(first, &["status"])?;
    let before = status.bundle.context("no bundle")?;
    let release = Release::add_broken(cluster, BROKEN, PATCHES + 1)?;
    let measured = at_the_vip(cluster, first, "broken", || {
        let (status, said) = Running::start(first, &release.upgrade())?.ended(|| Ok(()))?;
        println!("  {}", said.trim().replace('\n', "\n  "));
        ensure!(!status.success(), "the upgrade succeeded");
        for part in [
            "cp-1-host ✗",
            "the new kubelet does not start",
            "its configuration are back, and it runs",
            "this kubelet is broken",
        ] {
            ensure!(said.contains(part), "{part:?} is not in the output");
        }
        let package = first.run(&["dpkg-query", "-W", "-f=${Version}", "kubelet"])?;
        let wanted = format!("{}-", before.kubernetes.trim_start_matches('v'));
        ensure!(
            package.starts_with(&wanted),
            "cp-1 has the kubelet {package}"
        );
        let said = first.run(&["ctl", "upgrade", "back", "--yes"])?;
        println!("  {}", said.trim().replace('\n', "\n  "));
        wait::until("all hosts to serve", BACK, || is_complete(cluster))
    })?;
    measured.check("an upgrade stops at a kubelet and leads back", GAP)?;
    let others = ["cp-2", "cp-3", cluster.worker.spec.name.as_str()];
    release.is_not_on(&others)?;
    release.has_left(&before.kubernetes)?;
    first.run(&["ctl", "bundle", "remove", BROKEN, "--yes"])?;
    Ok(Counts::ONE)
}
