//! Upgrades that stop in the middle while a client writes, and continue when the cause is gone.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use halite_api::ClusterStatus;
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::wait;
use serde_json::Value;

use super::losses::{GAP, at_the_vip};
use super::release::Release;
use super::standbys::{STANDBYS, nothing_to_do, wait_for_followers};
use super::{BACK, is_complete};
use crate::ctl_answer::in_any_case;
use crate::images;
use crate::interrupted::Running;
use crate::test::Counts;

/// The version of the bundle whose scheduler does not start on one host.
const STOPS: &str = concat!(env!("CARGO_PKG_VERSION"), "-patch-stops");

const MANIFEST: &str = "/etc/kubernetes/manifests/kube-scheduler.yaml";

/// On the second control plane the name of the newer scheduler's image is that of an image without
/// such a program: the pod cannot start there. The run stops at this host, which has its old
/// manifest again, and the cluster serves; `ctl status` shows the progress of the upgrade. With the
/// real image the same command succeeds.
pub(super) fn at_a_pod(cluster: &Cluster) -> Result<Counts> {
    let (first, host) = (&cluster.bootstrap, cluster.host(STANDBYS[0])?);
    let old = in_use(first)?;
    let release = Release::add(cluster, STOPS, 3)?;
    let image = images::of_bundle(first, STOPS, "kube-scheduler")?;
    let other = images::by_digest(host, "registry.k8s.io/pause")?;
    images::rename(host, &other, &image)?;
    let outcome = at_the_vip(cluster, first, "stops", || {
        stopped(cluster, &release, host)?;
        images::forget(host, &image)?;
        goes_on(cluster, &release)
    });
    if outcome.is_err() {
        // The tests after this one need the real image, which is pulled by the next highstate or
        // pod.
        let _ = images::forget(host, &image);
    }
    outcome?.check("an upgrade stops and continues", GAP)?;
    images::is_there(host, &image)?;
    has_ended(cluster, &release, &[], &old)
}

/// The upgrade ends at that host and names the cause, and the whole cluster serves.
fn stopped(cluster: &Cluster, release: &Release<'_>, host: &Host) -> Result<()> {
    let (first, name) = (&cluster.bootstrap, host.spec.name.as_str());
    let before = fs::read_to_string(host.file(MANIFEST))?;
    let scheduler = scheduler(cluster, name)?;
    let (status, said) = Running::start(first, &release.upgrade())?.ended(|| Ok(()))?;
    println!("  {}", said.trim().replace('\n', "\n  "));
    ensure!(!status.success(), "the upgrade succeeded");
    for part in [
        &format!("{name}-control-plane ✗"),
        "cannot bring static pod kube-scheduler up",
        &format!("the previous manifest is in {MANIFEST} again"),
        &format!("ctl upgrade {}", release.version),
    ] {
        ensure!(said.contains(part), "{part:?} is not in the output");
    }
    // A step that was not reached.
    let next = format!("{}-may-restart –", STANDBYS[1]);
    ensure!(said.contains(&next), "it continued with the next host");
    let now = fs::read_to_string(host.file(MANIFEST))?;
    ensure!(now == before, "the manifest is now: {now}");
    wait::until("the previous scheduler to run again", BACK, || {
        let now = self::scheduler(cluster, name)?;
        ensure!(now == scheduler, "it was {scheduler:?}, and is {now:?}");
        Ok(())
    })?;
    wait::until("all hosts to serve", BACK, || is_complete(cluster))?;
    release.is_not_on(&[STANDBYS[1], &cluster.worker.spec.name])?;
    let unfinished = format!(
        "an upgrade has not ended: cp-1 with the bundle {}",
        release.version
    );
    // A warning: an operator may leave it there for a while.
    let status = first.run(&["ctl", "status"])?;
    ensure!(status.contains(&unfinished), "{status}");
    Ok(())
}

/// The same command succeeds.
pub(super) fn goes_on(cluster: &Cluster, release: &Release<'_>) -> Result<()> {
    let said = cluster.bootstrap.run(&release.upgrade())?;
    println!("  {}", said.trim().replace('\n', "\n  "));
    wait::until("all hosts to serve", BACK, || is_complete(cluster))
}

/// All hosts have the release, nothing is left to do, and the previous bundle is not needed.
pub(super) fn has_ended(
    cluster: &Cluster,
    release: &Release<'_>,
    made_again: &[&str],
    old: &str,
) -> Result<Counts> {
    let first = &cluster.bootstrap;
    release.is_on_all(made_again)?;
    wait_for_followers(first, &STANDBYS)?;
    nothing_to_do(first, &["cp-1", "cp-2", "cp-3", "worker-1", "master"])?;
    first.run(&["ctl", "bundle", "remove", old, "--yes"])?;
    Ok(Counts::ONE)
}

/// The version of the bundle in use.
pub(super) fn in_use(first: &Host) -> Result<String> {
    let (_, status): (_, ClusterStatus) = in_any_case(first, &["status"])?;
    Ok(status.bundle.context("no bundle")?.version)
}

/// The image in the scheduler's pod of a host, and whether it is ready.
fn scheduler(cluster: &Cluster, host: &str) -> Result<(String, bool)> {
    let pod = format!("kube-scheduler-{host}");
    let words = ["-n", "kube-system", "get", "pod", &pod, "-o", "json"];
    let pod: Value = serde_json::from_str(&cluster.kubectl(&words)?)?;
    let image = pod["spec"]["containers"][0]["image"].as_str();
    let ready = pod["status"]["containerStatuses"][0]["ready"] == true;
    Ok((image.context("no image")?.to_owned(), ready))
}
