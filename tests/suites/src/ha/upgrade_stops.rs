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
use crate::test::{Counts, Test};

/// Directory of the manifests.
const MANIFESTS: &str = "/etc/kubernetes/manifests";

/// A static pod that does not start on one host, with the step that fails there.
struct BrokenPod {
    component: &'static str,
    host: &'static str,
    step: &'static str,
}

/// The first two pods of the second control plane.
const OF_THE_API: [BrokenPod; 2] = [
    BrokenPod {
        component: "etcd",
        host: STANDBYS[0],
        step: "etcd",
    },
    BrokenPod {
        component: "kube-apiserver",
        host: STANDBYS[0],
        step: "control-plane",
    },
];

/// The other two. A run writes both manifests before the first pod fails, so the second pod is that
/// of the next host.
const BEHIND_THE_API: [BrokenPod; 2] = [
    BrokenPod {
        component: "kube-controller-manager",
        host: STANDBYS[0],
        step: "control-plane",
    },
    BrokenPod {
        component: "kube-scheduler",
        host: STANDBYS[1],
        step: "control-plane",
    },
];

/// Upgrades that stop at two pods each. The bundle of the first one has another etcd.
pub(super) const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "ha: an upgrade whose etcd or API server does not start stops at its host, and resumes once it can",
        run: |cluster| {
            let version = format!("{}-patch-stops-2", env!("CARGO_PKG_VERSION"));
            stop_and_resume(cluster, &OF_THE_API, || {
                Release::add_with_etcd(cluster, &version, 2)
            })
        },
    },
    Test {
        name: "ha: an upgrade whose controller manager or scheduler does not start stops at its host, and resumes once it can",
        run: |cluster| {
            let version = format!("{}-patch-stops-3", env!("CARGO_PKG_VERSION"));
            stop_and_resume(cluster, &BEHIND_THE_API, || {
                Release::add(cluster, &version, 3)
            })
        },
    },
];

/// One pod after the other does not start. Each time the run stops at its host, which has its old
/// manifest again, and the cluster serves; `ctl status` shows the progress of the upgrade. With the
/// real image the same command continues.
fn stop_and_resume<'c>(
    cluster: &'c Cluster,
    broken: &[BrokenPod],
    add: impl FnOnce() -> Result<Release<'c>>,
) -> Result<Counts> {
    let first = &cluster.bootstrap;
    let old = in_use(first)?;
    let release = add()?;
    let mut real = Vec::new();
    for pod in broken {
        let host = cluster.host(pod.host)?;
        let stopped = stops(cluster, &release, pod, host);
        real.push((host, stopped.context(pod.component)?));
    }
    at_the_vip(cluster, first, "resumes", || resumes(cluster, &release))?
        .check("an upgrade resumes", GAP)?;
    for (host, image) in real {
        images::is_there(host, &image)?;
    }
    has_ended(cluster, &release, &[], &old)
}

/// On the host the name of the newer image is that of an image without such a program, while the
/// upgrade runs: the pod cannot start there. Returns the name.
fn stops(cluster: &Cluster, release: &Release<'_>, pod: &BrokenPod, host: &Host) -> Result<String> {
    let first = &cluster.bootstrap;
    let image = images::of_bundle(first, &release.version, pod.component)?;
    let other = images::by_digest(host, "registry.k8s.io/pause")?;
    images::rename(host, &other, &image)?;
    let measured = at_the_vip(cluster, first, "stops", || {
        stopped(cluster, release, pod, host)
    });
    // Also after a failure: the tests after this one need the real image, which is pulled by the
    // next upgrade, highstate or pod.
    let forgotten = images::forget(host, &image);
    let what = format!("an upgrade stops at {}", pod.component);
    measured?.check(&what, GAP)?;
    forgotten?;
    Ok(image)
}

/// The upgrade ends at that host and names the cause, and the whole cluster serves.
fn stopped(cluster: &Cluster, release: &Release<'_>, pod: &BrokenPod, host: &Host) -> Result<()> {
    let (first, name) = (&cluster.bootstrap, host.spec.name.as_str());
    let BrokenPod {
        component, step, ..
    } = pod;
    let manifest = format!("{MANIFESTS}/{component}.yaml");
    let before = fs::read_to_string(host.file(&manifest))?;
    let image = wait::until("the pod to be ready before", BACK, || {
        let now = image_of(cluster, component, name)?;
        ensure!(now.1, "{now:?}");
        Ok(now)
    })?;
    let (status, said) = Running::start(first, &release.upgrade())?.ended(|| Ok(()))?;
    println!("  {}", said.trim().replace('\n', "\n  "));
    ensure!(!status.success(), "the upgrade succeeded");
    for part in [
        &format!("{name}-{step} ✗"),
        &format!("cannot bring static pod {component} up"),
        &format!("the previous manifest is in {manifest} again"),
        &format!("ctl upgrade {}", release.version),
        // A step that was not reached.
        "objects –",
    ] {
        ensure!(said.contains(part), "{part:?} is not in the output");
    }
    let now = fs::read_to_string(host.file(&manifest))?;
    ensure!(now == before, "the manifest is now: {now}");
    wait::until("the previous pod to run again", BACK, || {
        let now = image_of(cluster, component, name)?;
        ensure!(now == image, "it was {image:?}, and is {now:?}");
        Ok(())
    })?;
    wait::until("all hosts to serve", BACK, || is_complete(cluster))?;
    release.is_not_on(&[STANDBYS[1], &cluster.worker.spec.name])?;
    let version = &release.version;
    // A warning: an operator may leave it there for a while.
    let status = wait::until("a cluster without failures", BACK, || {
        first.run(&["ctl", "status"])
    })?;
    ensure!(
        status.contains("an upgrade has not ended: cp-1")
            && status.contains(&format!(" with the bundle {version}")),
        "{status}"
    );
    Ok(())
}

/// The same command succeeds.
pub(super) fn resumes(cluster: &Cluster, release: &Release<'_>) -> Result<()> {
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
    Ok(status.bundle.context("no bundle")?.version.into())
}

/// The image in the pod of a component on a host, and whether it is ready.
fn image_of(cluster: &Cluster, component: &str, host: &str) -> Result<(String, bool)> {
    let pod = format!("{component}-{host}");
    let words = ["-n", "kube-system", "get", "pod", &pod, "-o", "json"];
    let pod: Value = serde_json::from_str(&cluster.kubectl(&words)?)?;
    let image = pod["spec"]["containers"][0]["image"].as_str();
    let ready = pod["status"]["containerStatuses"][0]["ready"] == true;
    Ok((image.context("no image")?.to_owned(), ready))
}
