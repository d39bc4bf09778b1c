//! Two Kubernetes versions on one site: the cluster is made from the older bundle, then the newer
//! one is added. The version that was recorded when the cluster was made also applies to every node
//! that is added later. Every option of this cluster is enabled.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use halite_api::BundleList;
use halite_lab::cluster::{BOOTSTRAP, CLUSTER, CTL, Cluster, ISO_DIRECTORY, NEWER, WORKER};
use halite_lab::host::Host;
use halite_lab::layout::{Layout, TWO};
use halite_lab::progress::Board;
use halite_lab::{Lab, cluster, wait};
use halite_upstream::versions::{FULL, NEWEST, OLDER, Release};
use halite_upstream::{ISO, prepare};
use serde_json::{Value, json};

use super::cluster::{PODS, nothing_left};
use super::repair::highstate;
use super::{every_option, external, images, kubeadm};
use crate::checks::{only_served, refused};
use crate::ctl_answer;
use crate::site::Site;
use crate::test::{Counts, Test, cases, sequence};

/// Name of its own lab: the other suites' cluster has the newest Kubernetes.
const LAB: &str = "versions";

const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "versions: the only host runs pods without tolerations if its taint follows the workers",
        run: takes_pods,
    },
    Test {
        name: "versions: a newer bundle is added, and is not used",
        run: newer_beside,
    },
    Test {
        name: "versions: a node that is added afterwards gets the recorded version",
        run: added_node,
    },
    // Only now: without a worker, this cluster's document removes kubeadm's taint from the control
    // plane.
    Test {
        name: "versions: the older Kubernetes equals the one made by its own kubeadm",
        run: as_kubeadm,
    },
];

const AT_THE_END: &[Test<Cluster>] = &[
    Test {
        name: "versions: the newer bundle is removed without a trace",
        run: newer_gone,
    },
    Test {
        name: "versions: nothing tried to leave",
        run: nothing_left,
    },
];

/// The test that runs on the cluster of the other suites.
pub(super) const BESIDE: &[Test<Cluster>] = &[Test {
    name: "versions: an older bundle next to the one in use changes no node",
    run: older_beside,
}];

/// The pod of a test on the only host, and its file.
const POD: (&str, &str) = ("untolerant", "/root/untolerant.json");

/// Packages that have Kubernetes' own version, as at the start of the lines of `dpkg-query`.
const PACKAGES: [&str; 3] = ["kubelet ", "kubeadm ", "kubectl "];

/// The site of the older release. Its hosts run the programs as shipped.
pub(super) fn site() -> Site {
    Site {
        lab: LAB.to_owned(),
        made: "versions: bootstrap with the older Kubernetes and every option",
        layout: &TWO,
        release: OLDER,
        make,
        tests: sequence(
            [TESTS, every_option::TESTS, AT_THE_END]
                .into_iter()
                .flat_map(cases)
                .collect(),
        ),
    }
}

/// Boots the hosts and makes a cluster of the older release on the first, with every option
/// enabled. Before that, a document that requests a Kubernetes version which the bundle lacks must
/// be refused.
fn make(lab: &str, layout: &Layout, release: &Release) -> Result<Cluster> {
    let newer = prepare::iso_directory_of(&FULL, &Board::plain())?;
    let older = prepare::iso_directory_of(release, &Board::plain())?;
    let lab = Lab::new(lab, &halite_lab::cache().join("base-root"))?;
    lab.down()?;
    let carried: [(&Path, &str); 2] = [(&older, ISO_DIRECTORY), (&newer, NEWER)];
    let cluster = cluster::boot_hosts(lab, layout, &carried)?;
    let host = &cluster.bootstrap;
    fs::write(host.root().join("root/cluster.yaml"), CLUSTER)?;
    let reason = format!(
        "has Kubernetes {}, not {}",
        OLDER.kubernetes,
        NEWEST.minor()
    );
    refused(
        host,
        &cluster::install(),
        &["kubernetes.version: ", &reason],
    )?;
    let left = host.root().join("etc/halite/cluster.yaml");
    ensure!(
        !left.exists(),
        "the refused bootstrap left its cluster document"
    );
    every_option::prepare(host)?;
    external::harmless_chrony(&cluster.worker)?;
    cluster.bootstrap(&every_option::document())?;
    Ok(cluster)
}

fn as_kubeadm(cluster: &Cluster) -> Result<Counts> {
    kubeadm::compare(cluster, &OLDER)
}

/// The document has `controlPlane: {taint: auto}`, and no host is a worker: the scheduler has a
/// place for a pod.
fn takes_pods(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    ensure!(
        !has_plane_taint(cluster)?,
        "{BOOTSTRAP} has the taint of a control plane"
    );
    let (name, file) = POD;
    let image = format!("registry.k8s.io/pause:{}", OLDER.pause);
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "it", "image": image}]},
    });
    fs::write(host.file(file), pod.to_string())?;
    let ran = wait::until("the pod to run", PODS, || {
        // Refused until the namespace has its ServiceAccount; applied again the pod stays
        // unchanged.
        cluster.kubectl(&["apply", "-f", file])?;
        let pod: Value =
            serde_json::from_str(&cluster.kubectl(&["get", "pod", name, "-o", "json"])?)?;
        ensure!(pod["status"]["phase"] == "Running", "{}", pod["status"]);
        Ok(())
    });
    // Also after a failure: it belongs to no other test.
    let remove = ["delete", "-f", file, "--ignore-not-found", "--timeout=60s"];
    let removed = cluster.kubectl(&remove);
    ran?;
    removed.map(|_| Counts::ONE)
}

/// Returns whether the first host has kubeadm's taint of a control plane.
fn has_plane_taint(cluster: &Cluster) -> Result<bool> {
    let node: Value =
        serde_json::from_str(&cluster.kubectl(&["get", "node", BOOTSTRAP, "-o", "json"])?)?;
    let mut taints = node["spec"]["taints"].as_array().into_iter().flatten();
    Ok(taints.any(|taint| taint["key"] == "node-role.kubernetes.io/control-plane"))
}

fn newer_beside(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    let before = recorded(host)?;
    for version in [
        format!("bundle: {}", OLDER.bundle()),
        format!("kubernetes: {}", OLDER.kubernetes),
    ] {
        ensure!(
            before.replace('"', "").contains(&version),
            "no {version:?} is recorded:\n{before}"
        );
    }
    host.run(&[CTL, "bundle", "add", &format!("{NEWER}/{ISO}")])?;
    listed(host, &[(&NEWEST, false), (&OLDER, true)])?;
    let (newer, older) = (NEWEST.bundle(), OLDER.bundle());
    let reason = format!(
        "has Kubernetes {}, not {}",
        NEWEST.kubernetes, OLDER.kubernetes
    );
    for more in [["--test"].as_slice(), &[]] {
        let command = [&[CTL, "bundle", "use", &newer], more].concat();
        refused(host, &command, &["kubernetes.version: ", &reason])?;
    }
    refused(
        host,
        &[CTL, "bundle", "remove", &older],
        &[&older, "is in use"],
    )?;
    listed(host, &[(&NEWEST, false), (&OLDER, true)])?;
    ensure!(
        recorded(host)? == before,
        "the record has changed:\n{before}\n{}",
        recorded(host)?
    );
    only_served(cluster)?;
    of_release(cluster, host, &OLDER, &NEWEST)?;
    Ok(Counts::ONE)
}

fn added_node(cluster: &Cluster) -> Result<Counts> {
    cluster.add_worker_with(every_option::ROLES)?;
    ensure!(
        has_plane_taint(cluster)?,
        "{BOOTSTRAP} has no taint, although there is a worker"
    );
    cluster.wait_for_pods(PODS)?;
    for host in cluster.hosts() {
        of_release(cluster, host, &OLDER, &NEWEST)?;
    }
    // The host serves bundles, too: hosts that enrol later also use it.
    let changed = highstate(cluster, &[])?.changed;
    let enrol = format!("{BOOTSTRAP}: file.managed /srv/halite/enrol.sh [/srv/halite/enrol.sh]");
    ensure!(
        changed.iter().all(|tag| *tag == enrol),
        "a highstate changed more than {enrol}: {changed:?}"
    );
    nothing_to_do(cluster)?;
    Ok(Counts::ONE)
}

fn newer_gone(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    host.run(&[CTL, "bundle", "remove", &NEWEST.bundle(), "--yes"])?;
    listed(host, &[(&OLDER, true)])?;
    let place = cluster::bundle_place(&NEWEST.bundle());
    let copy = cluster.worker.file(&place);
    ensure!(!host.file(&place).exists(), "{place} is still there");
    ensure!(
        copy.exists(),
        "{WORKER} serves bundles, and never had a copy of {place}"
    );
    only_served(cluster)?;
    ensure!(
        !copy.exists(),
        "the copy of {place} on {WORKER} is still there"
    );
    nothing_to_do(cluster)?;
    Ok(Counts::ONE)
}

fn older_beside(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    let carried = host.root().join("root/older.iso");
    fs::copy(
        prepare::iso_directory_of(&OLDER, &Board::silent())?.join(ISO),
        &carried,
    )?;
    let added = host.run(&[CTL, "bundle", "add", "/root/older.iso"]);
    fs::remove_file(carried)?;
    added?;
    listed(host, &[(&NEWEST, true), (&OLDER, false)])?;
    let reason = format!(
        "has Kubernetes {}, not {}",
        OLDER.kubernetes, NEWEST.kubernetes
    );
    let command = [CTL, "bundle", "use", &OLDER.bundle(), "--allow-downgrade"];
    refused(host, &command, &["kubernetes.version: ", &reason])?;
    only_served(cluster)?;
    for host in cluster.hosts() {
        of_release(cluster, host, &NEWEST, &OLDER)?;
    }
    host.run(&[CTL, "bundle", "remove", &OLDER.bundle(), "--yes"])?;
    listed(host, &[(&NEWEST, true)])?;
    only_served(cluster)?;
    nothing_to_do(cluster)?;
    Ok(Counts::ONE)
}

/// The versions that the cluster document records.
fn recorded(host: &Host) -> Result<String> {
    let text = fs::read_to_string(host.root().join("etc/halite/cluster.yaml"))?;
    let (_, resolved) = text
        .split_once("\nresolved:")
        .context("nothing is recorded in the cluster document")?;
    Ok(resolved.to_owned())
}

/// Checks that `ctl bundle list` shows these releases' bundles as complete, and which of them is in
/// use.
fn listed(host: &Host, wanted: &[(&Release, bool)]) -> Result<()> {
    let list: BundleList = ctl_answer::of(host, &["bundle", "list"])?;
    let rows = &list.bundles;
    let right = |(release, in_use): &(&Release, bool)| {
        rows.iter().any(|row| {
            row.version.as_str() == release.bundle()
                && row.kubernetes.as_deref() == Some(release.kubernetes)
                && row.in_use == *in_use
                && row.problem.is_none()
        })
    };
    ensure!(
        rows.len() == wanted.len() && wanted.iter().all(right),
        "ctl bundle list: {rows:?}"
    );
    Ok(())
}

/// Runs a highstate of every host and of the API that must find nothing to change.
fn nothing_to_do(cluster: &Cluster) -> Result<()> {
    let changed = highstate(cluster, &[])?.changed;
    ensure!(
        changed.is_empty(),
        "a highstate changed something: {changed:?}"
    );
    Ok(())
}

/// Checks that all parts of Kubernetes on a host belong to one release, and none to the other.
fn of_release(cluster: &Cluster, host: &Host, release: &Release, other: &Release) -> Result<()> {
    runs(cluster, host, release)?;
    has_no_image_of(cluster, host, release, other)
}

/// Checks that the kubelet, the packages and the pods on a host belong to a release.
pub(super) fn runs(cluster: &Cluster, host: &Host, release: &Release) -> Result<()> {
    let name = &host.spec.name;
    let wanted = release.kubernetes;
    let node: Value =
        serde_json::from_str(&cluster.kubectl(&["get", "node", name, "-o", "json"])?)?;
    let kubelet = &node["status"]["nodeInfo"]["kubeletVersion"];
    ensure!(
        kubelet == wanted,
        "the kubelet of {name} is {kubelet}, not {wanted}"
    );
    let packages = host.run(&["dpkg-query", "-W", "-f=${Package} ${Version}\\n"])?;
    let packages: Vec<&str> = packages
        .lines()
        .filter(|line| PACKAGES.iter().any(|p| line.starts_with(p)))
        .collect();
    let version = format!(" {}-", wanted.trim_start_matches('v'));
    ensure!(
        packages.iter().any(|line| line.starts_with("kubelet "))
            && packages.iter().all(|line| line.contains(&version)),
        "{name} has {packages:?}, not {wanted}"
    );
    let field = format!("--field-selector=spec.nodeName={name}");
    let pods: Value =
        serde_json::from_str(&cluster.kubectl(&["get", "pods", "-A", &field, "-o", "json"])?)?;
    let images: Vec<&str> = pods["items"]
        .as_array()
        .context("no list of pods")?
        .iter()
        .flat_map(|pod| pod["spec"]["containers"].as_array().into_iter().flatten())
        .filter_map(|container| container["image"].as_str())
        .filter(|image| image.starts_with("registry.k8s.io/kube-"))
        .collect();
    ensure!(!images.is_empty(), "no pod of Kubernetes runs on {name}");
    let others: Vec<&&str> = images
        .iter()
        .filter(|image| !image.contains(&format!(":{wanted}@sha256:")))
        .collect();
    ensure!(others.is_empty(), "on {name} run {others:?}, not {wanted}");
    Ok(())
}

fn has_no_image_of(
    cluster: &Cluster,
    host: &Host,
    release: &Release,
    other: &Release,
) -> Result<()> {
    let name = &host.spec.name;
    let manifest = format!("{}/manifest.json", cluster::bundle_place(&release.bundle()));
    let manifest: Value = serde_json::from_str(&cluster.bootstrap.run(&["cat", &manifest])?)?;
    let own = manifest["images"].as_object().context("no images")?;
    let stored = |image: &Value| image.as_str().map(images::stored);
    let own: BTreeSet<String> = own.values().filter_map(stored).collect();
    let pause = stored(&manifest["images"]["pause"]).context("no image of pause")?;
    let there = images::names(host)?;
    ensure!(
        there.contains(&pause),
        "{name} lacks its pause image: {there:?}"
    );
    // The other release must not only not run: the host must have no image of it.
    let brought: Vec<&String> = there
        .iter()
        .filter(|image| image.starts_with("registry.k8s.io/") && image.contains('@'))
        .filter(|image| !own.contains(*image))
        .collect();
    ensure!(
        brought.is_empty(),
        "{name} has {brought:?} of {}",
        other.kubernetes
    );
    Ok(())
}
