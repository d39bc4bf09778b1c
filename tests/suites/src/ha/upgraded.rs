//! The upgrade to a newer patch release, under a loop of writes. Its bundle is the first one with
//! another version stamp: the programs are the same, the tags of the images and the versions of the
//! packages are not.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::wait;
use halite_upstream::versions::NEWEST;
use serde_json::Value;

use super::losses::{CUT, NAME, NAMESPACE, VIP, administrator, config_maps};
use super::{BACK, is_complete, same_content};
use crate::availability::record::numbers;
use crate::availability::target::{Address, Kind, Target};
use crate::availability::writes::Loop;
use crate::bundles::variant;
use crate::checks::refused;
use crate::interrupted::Running;
use crate::kills::moments;
use crate::repair::highstate;
use crate::test::Counts;

/// The version of the bundle.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "-patch");
/// The version of the bundle of the release after that.
const LATER: &str = concat!(env!("CARGO_PKG_VERSION"), "-patch-later");
/// Path of its ISO on the bootstrap host.
const CARRIED: &str = "/root/patch.iso";
/// The static pods whose images have Kubernetes' version.
const PODS: [&str; 3] = [
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
];

/// The next patch release: `v1.36.4` after `v1.36.3`.
fn next(kubernetes: &str) -> Result<String> {
    let (minor, patch) = kubernetes.rsplit_once('.').context("no patch release")?;
    Ok(format!("{minor}.{}", patch.parse::<u32>()? + 1))
}

/// Makes the bundle, copies its ISO to the bootstrap host, and adds it there.
fn add(cluster: &Cluster, version: &str, kubernetes: &str) -> Result<()> {
    let work = tempfile::Builder::new()
        .prefix("patch-")
        .tempdir_in(halite_lab::cache())?;
    let before = NEWEST.kubernetes;
    let iso = variant(work.path(), version, 5, |recipe, _| {
        recipe["kubernetes"] = kubernetes.into();
        for image in recipe["images"].as_array_mut().into_iter().flatten() {
            let reference = image["reference"].as_str().context("no reference")?;
            if let Some(name) = reference.strip_suffix(&format!(":{before}")) {
                image["reference"] = format!("{name}:{kubernetes}").into();
            }
        }
        let made = recipe["packages"]["made"].as_array_mut();
        for package in made.into_iter().flatten() {
            let version = package["version"].as_str().context("no version")?;
            let prefix = format!("{}-", before.trim_start_matches('v'));
            if let Some(revision) = version.strip_prefix(&prefix) {
                let newer = kubernetes.trim_start_matches('v');
                package["version"] = format!("{newer}-{revision}").into();
            }
        }
        Ok(())
    })?;
    fs::copy(iso, cluster.bootstrap.file(CARRIED))?;
    cluster.bootstrap.run(&["ctl", "bundle", "add", CARRIED])?;
    fs::remove_file(cluster.bootstrap.file(CARRIED))?;
    Ok(())
}

/// The documents in /etc/halite, as one text.
fn documents(cluster: &Cluster) -> Result<String> {
    let line = "cat /etc/halite/cluster.yaml /etc/halite/nodes/*.yaml";
    cluster.bootstrap.sh(line)
}

/// The process of the kubelet, and the program that it runs.
fn kubelet(host: &Host) -> Result<(String, u64)> {
    let pid = host.sh("systemctl show -p MainPID --value kubelet")?;
    let program = fs::metadata(host.file("/usr/bin/kubelet"))?.ino();
    Ok((pid.trim().to_owned(), program))
}

/// Checks that a host has the packages and the manifests of that release, and runs them.
fn has(cluster: &Cluster, host: &Host, kubernetes: &str, before: &(String, u64)) -> Result<()> {
    let name = &host.spec.name;
    let package = host.run(&["dpkg-query", "-W", "-f=${Version}", "kubelet"])?;
    let wanted = format!("{}-", kubernetes.trim_start_matches('v'));
    ensure!(
        package.starts_with(&wanted),
        "{name} has the kubelet {package}"
    );
    let now = kubelet(host)?;
    ensure!(
        now.0 != before.0 && now.1 != before.1,
        "the kubelet of {name} is not another process with another program: {before:?}, {now:?}"
    );
    let is_plane = cluster
        .control_planes()
        .iter()
        .any(|plane| plane.spec.name == *name);
    for pod in PODS.iter().filter(|_| is_plane) {
        let live = format!("{pod}-{name}");
        let words = ["-n", "kube-system", "get", "pod", &live, "-o", "json"];
        let live: Value = serde_json::from_str(&cluster.kubectl_on(name, &words)?)?;
        let image = live["spec"]["containers"][0]["image"].as_str();
        ensure!(
            image.is_some_and(|image| image.ends_with(&format!(":{kubernetes}"))),
            "{pod} of {name} has the image {image:?}"
        );
    }
    Ok(())
}

/// The cluster goes to the next patch release host by host, and no acknowledged write is lost.
pub(super) fn upgraded(cluster: &Cluster) -> Result<Counts> {
    let kubernetes = next(NEWEST.kubernetes)?;
    let first = &cluster.bootstrap;
    let before: Vec<(&Host, (String, u64))> = (cluster.hosts().into_iter())
        .map(|host| Ok((host, kubelet(host)?)))
        .collect::<Result<_>>()?;
    add(cluster, VERSION, &kubernetes)?;
    let recorded = documents(cluster)?;
    let reason = format!("has Kubernetes {kubernetes}, not {}", NEWEST.kubernetes);
    refused(first, &["ctl", "bundle", "use", VERSION], &[&reason])?;
    first.run(&["ctl", "upgrade", &kubernetes, "--test"])?;
    ensure!(
        documents(cluster)? == recorded,
        "a test wrote into the documents"
    );
    for (host, before) in &before {
        ensure!(
            kubelet(host)? == *before,
            "a test changed {}",
            host.spec.name
        );
    }

    cluster.kubectl(&["delete", "namespace", NAMESPACE, "--ignore-not-found"])?;
    cluster.kubectl(&["create", "namespace", NAMESPACE])?;
    let target = Target {
        kind: Kind::Kubernetes {
            namespace: NAMESPACE.to_owned(),
        },
        url: format!("https://{NAME}:6443"),
        address: Some(Address::Fixed((VIP, 6443).into())),
        prefix: "upgrade".to_owned(),
        identity: Some(administrator(first)?),
    };
    let writes = Loop::start(&cluster.worker, &target)?;
    let listed = || -> Result<BTreeSet<u64>> {
        let names = config_maps(cluster, first)?;
        Ok(numbers(&target.prefix, names.lines()))
    };
    wait::until("the first writes", Duration::from_secs(60), || {
        let count = listed()?.len();
        ensure!(count > 20, "{count} writes");
        Ok(())
    })?;
    let said = first.run(&["ctl", "upgrade", VERSION]);
    let record = writes.end()?;
    println!("  {}", said?.trim().replace('\n', "\n  "));
    wait::until("all hosts to be Ready", BACK, || is_complete(cluster))?;
    let missing = record.missing(&listed()?);
    ensure!(
        missing.is_empty(),
        "acknowledged and not there: {missing:?}"
    );
    let gap = record.longest_gap();
    println!(
        "  {} writes acknowledged, longest gap {:.1} s",
        record.acknowledged().len(),
        gap.length.as_secs_f64()
    );
    if gap.length > CUT {
        bail!("a gap of {:?}: {:?}", gap.length, gap.errors);
    }
    cluster.kubectl(&["delete", "namespace", NAMESPACE])?;
    same_content(cluster)?;

    for (host, before) in &before {
        has(cluster, host, &kubernetes, before)?;
    }
    let recorded = documents(cluster)?;
    ensure!(
        recorded.matches(VERSION).count() == 1 && !recorded.contains(NEWEST.kubernetes),
        "not only the cluster document records the bundle: {recorded}"
    );
    let changed = highstate(cluster, &[])?.changed;
    ensure!(
        changed.is_empty(),
        "a highstate changed something: {changed:?}"
    );
    // There is no way back, and none is needed to remove the bundle of before.
    let old = NEWEST.bundle();
    let reason = format!("is older than {kubernetes}");
    refused(first, &["ctl", "upgrade", &old], &[&reason])?;
    first.run(&["ctl", "bundle", "remove", &old])?;
    Ok(Counts::ONE)
}

/// The master dies each time when a step of an upgrade has ended, and the cluster has the release after
/// the next one in the end.
pub(super) fn interrupted(cluster: &Cluster) -> Result<Counts> {
    let kubernetes = next(&next(NEWEST.kubernetes)?)?;
    let first = &cluster.bootstrap;
    let before: Vec<(&Host, (String, u64))> = (cluster.hosts().into_iter())
        .map(|host| Ok((host, kubelet(host)?)))
        .collect::<Result<_>>()?;
    add(cluster, LATER, &kubernetes)?;
    let words = ["ctl", "upgrade", LATER];
    let mut running = Running::start(first, &words)?;
    let mut steps = 0;
    while let Some(line) = running.next_end(steps)? {
        println!("  {}", line.trim());
        steps += 1;
        moments::die(first, "halite-master")?;
        crate::kills::master_answers(first)?;
    }
    let (status, said) = running.ended(|| Ok(()))?;
    if !status.success() {
        println!("  {said}");
        first.run(&words).context("run again")?;
    }
    ensure!(
        steps > cluster.hosts().len(),
        "only {steps} steps were shown: {said}"
    );
    wait::until("all hosts to be Ready", BACK, || is_complete(cluster))?;
    same_content(cluster)?;
    for (host, before) in &before {
        has(cluster, host, &kubernetes, before)?;
    }
    let changed = highstate(cluster, &[])?.changed;
    ensure!(
        changed.is_empty(),
        "a highstate changed something: {changed:?}"
    );
    Ok(Counts {
        passed: steps,
        failed: 0,
    })
}
