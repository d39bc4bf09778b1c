//! A newer container runtime with the same Kubernetes: containerd, runc and the CNI plugins, host
//! by host; and a containerd that does not start.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::{BOOTSTRAP, CTL, Cluster, NEWER, WORKER, bundle_place};
use halite_lab::command::run;
use halite_lab::host::Host;
use halite_lab::layout::{Layout, TWO};
use halite_lab::progress::Board;
use halite_lab::wait;
use halite_upstream::versions::{RUNTIMES, Release};
use halite_upstream::{ISO, prepare};
use serde_json::{Value, json};

use crate::bundles::variant_of;
use crate::checks::nothing_to_do;
use crate::cluster::{PODS, nothing_left};
use crate::ha::while_written;
use crate::interrupted::Running;
use crate::repair::highstate;
use crate::site::Site;
use crate::test::{Counts, Test, cases, sequence};
use crate::two_replicas;

/// The name of its own lab: other clusters have the newest runtime from the start.
const LAB: &str = "runtime";

const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "runtime: a newer containerd and runc are rolled out, containers keep running, and pods are drained",
        run: rolled_out,
    },
    Test {
        name: "runtime: a containerd that does not start gets its old package back",
        run: taken_back,
    },
    Test {
        name: "runtime: nothing tried to leave",
        run: nothing_left,
    },
];

/// The version of the bundle whose containerd does not start, and of its containerd.
const BROKEN: &str = concat!(env!("CARGO_PKG_VERSION"), "-runtime-broken");
const BROKEN_CONTAINERD: &str = "2.99.0-1";

/// Path of its ISO on the first host.
const CARRIED: &str = "/root/broken.iso";

/// The directory in which a host keeps its runtime's packages during a change.
const KEPT: &str = "/var/lib/halite/runtime";

/// The site of the older runtime.
pub(super) fn site() -> Site {
    Site {
        lab: LAB.to_owned(),
        made: "runtime: bootstrap and node add with an older container runtime",
        layout: &TWO,
        release: RUNTIMES[0],
        make,
        tests: sequence(cases(TESTS)),
    }
}

/// Makes a cluster with the older runtime; the newer one is carried to the site, too.
fn make(lab: &str, layout: &Layout, release: &Release) -> Result<Cluster> {
    prepare::cluster_beside(lab, layout, release, Some(&RUNTIMES[1]), &Board::plain())
}

fn rolled_out(cluster: &Cluster) -> Result<Counts> {
    let (host, [older, newer]) = (&cluster.bootstrap, RUNTIMES);
    all_have(cluster, &older)?;
    host.run(&[CTL, "bundle", "add", &format!("{NEWER}/{ISO}")])?;
    two_replicas::start(cluster)?;
    let (staying, evicted) = (staying(cluster)?, two_replicas::names(cluster)?);
    let written = while_written(cluster, host, "runtime", || upgrade(cluster, &newer))?;
    println!("  {}", written.summary());

    all_have(cluster, &newer)?;
    let now = self::staying(cluster)?;
    ensure!(
        now == staying,
        "containers were replaced: they were {staying:#?} and are {now:#?}"
    );
    let now = two_replicas::names(cluster)?;
    ensure!(
        now.is_disjoint(&evicted),
        "the drains have not replaced {evicted:?}, but left {now:?}"
    );
    // containerd, the shims and runc of the new packages start and stop containers.
    two_replicas::delete(cluster)?;
    two_replicas::start(cluster)?;
    for host in cluster.hosts() {
        let name = &host.spec.name;
        ensure!(!host.file(KEPT).exists(), "{KEPT} is left on {name}");
    }
    nothing_to_do(host)?;
    status_is_clean(host)?;
    host.run(&["ctl", "bundle", "remove", &older.bundle(), "--yes"])?;
    Ok(Counts::ONE)
}

/// Upgrades the cluster. One replica at least is always available.
fn upgrade(cluster: &Cluster, to: &Release) -> Result<()> {
    let words = ["ctl", "upgrade", &to.bundle(), "--yes"];
    let mut running = Running::start(&cluster.bootstrap, &words)?;
    let mut ended = 0;
    while let Some(line) = running.next_end(ended)? {
        println!("  {}", line.trim());
        ended += 1;
        let wanted = ["get", "deployment", two_replicas::NAME, "-o", "json"];
        let deployment: Value = serde_json::from_str(&cluster.kubectl(&wanted)?)?;
        ensure!(
            deployment["status"]["availableReplicas"].as_u64() > Some(0),
            "no replica is available: {}",
            deployment["status"]
        );
    }
    let (status, said) = running.ended(|| Ok(()))?;
    ensure!(status.success(), "the upgrade: {said}");
    for host in [BOOTSTRAP, WORKER] {
        let drained = format!("{host}-drained ✓");
        ensure!(said.contains(&drained), "{drained:?} is not in: {said}");
    }
    Ok(())
}

/// The containers that no drain evicts: pod to the ids of its containers.
fn staying(cluster: &Cluster) -> Result<BTreeMap<String, Vec<String>>> {
    let pods: Value =
        serde_json::from_str(&cluster.kubectl(&["get", "pods", "-A", "-o", "json"])?)?;
    let pods = pods["items"].as_array().context("no list of pods")?;
    let stays = |pod: &&Value| {
        let owner = &pod["metadata"]["ownerReferences"][0]["kind"];
        owner == "DaemonSet" || owner == "Node"
    };
    let ids = |pod: &Value| {
        let containers = pod["status"]["containerStatuses"].as_array();
        let ids = containers.into_iter().flatten();
        ids.map(|container| container["containerID"].to_string())
            .collect()
    };
    let found: BTreeMap<_, _> = pods
        .iter()
        .filter(stays)
        .map(|pod| (pod["metadata"]["name"].to_string(), ids(pod)))
        .collect();
    ensure!(!found.is_empty(), "no pod of a DaemonSet or of a host");
    Ok(found)
}

/// Checks that all hosts have the runtime of a release.
fn all_have(cluster: &Cluster, release: &Release) -> Result<()> {
    for host in cluster.hosts() {
        has(cluster, host, release)?;
    }
    cluster.wait_for_pods(PODS)
}

/// Checks that a host has the runtime of a release, and that the running containerd is its program.
fn has(cluster: &Cluster, host: &Host, release: &Release) -> Result<()> {
    let (name, runtime) = (&host.spec.name, release.runtime);
    let number = |version: &'static str| version.trim_start_matches('v');
    let containerd = number(runtime.containerd);
    let runc = number(runtime.runc.context("the release has Debian's runc")?);
    for (package, version) in [
        ("containerd", containerd),
        ("runc", runc),
        ("kubernetes-cni", number(runtime.cni_plugins)),
    ] {
        let found = host.run(&["dpkg-query", "-W", "-f=${Version}", package])?;
        ensure!(
            found == format!("{version}-1"),
            "{name} has {package} {found}, not {version}"
        );
    }
    let running = "readlink /proc/$(systemctl show -p MainPID --value containerd)/exe";
    for (line, part) in [
        ("containerd --version", format!(" v{containerd} ")),
        ("runc --version", format!("runc version {runc}\n")),
        (running, "/usr/bin/containerd\n".to_owned()),
    ] {
        let said = host.sh(line)?;
        ensure!(
            said.contains(&part),
            "{line} on {name} says {said:?}, without {part:?}"
        );
    }
    // A kubelet reports it once in a while.
    wait::until("the node to report its runtime", PODS, || {
        let node = cluster.kubectl(&["get", "node", name, "-o", "json"])?;
        let node: Value = serde_json::from_str(&node)?;
        let said = &node["status"]["nodeInfo"]["containerRuntimeVersion"];
        let is_it = said.as_str().is_some_and(|said| said.ends_with(containerd));
        ensure!(is_it, "{name} reports {said}");
        Ok(())
    })
}

/// The package's containerd is another program, which ends at once, and its configuration has
/// another text.
fn carry_broken(cluster: &Cluster) -> Result<()> {
    let host = &cluster.bootstrap;
    let work = tempfile::Builder::new()
        .prefix("broken-")
        .tempdir_in(halite_lab::cache())?;
    let iso = variant_of(&RUNTIMES[1], work.path(), BROKEN, 1, |recipe, _| {
        let tree = recipe["states"].as_str();
        let tree = Path::new(tree.context("the lab's recipe has no states")?);
        let copy = work.path().join("states");
        run("cp", &["-r".as_ref(), tree.as_os_str(), copy.as_os_str()])?;
        let template = copy.join("halite/base/containerd/config.toml.j2");
        let text = fs::read_to_string(&template)?;
        fs::write(&template, format!("{}\n# Broken.\n", text.trim_end()))?;
        recipe["states"] = json!(copy);
        let made = recipe["packages"]["made"].as_array_mut();
        let package = made
            .context("the lab's recipe makes no package")?
            .iter_mut()
            .find(|package| package["package"] == "containerd")
            .context("the lab's recipe makes no containerd")?;
        package["version"] = json!(BROKEN_CONTAINERD);
        package["programs"]["containerd"] = package["programs"]["ctr"].clone();
        Ok(())
    })?;
    fs::copy(iso, host.file(CARRIED))?;
    let added = host.run(&["ctl", "bundle", "add", CARRIED]);
    fs::remove_file(host.file(CARRIED))?;
    added.map(drop)
}

fn taken_back(cluster: &Cluster) -> Result<Counts> {
    let (host, newer) = (&cluster.bootstrap, RUNTIMES[1]);
    let config = "/etc/containerd/config.toml";
    carry_broken(cluster)?;
    let (before, staying) = (fs::read(host.file(config))?, staying(cluster)?);
    let written = while_written(cluster, host, "broken", || stopped(host))?;
    println!("  {}", written.summary());

    ensure!(fs::read(host.file(config))? == before, "{config} differs");
    all_have(cluster, &newer)?;
    let now = self::staying(cluster)?;
    ensure!(
        now == staying,
        "containers were replaced: they were {staying:#?} and are {now:#?}"
    );
    // The run has ended behind its drain.
    host.run(&["ctl", "node", "uncordon", BOOTSTRAP])?;
    two_replicas::start(cluster)?;
    highstate(cluster, &[])?;
    nothing_to_do(host)?;
    ensure!(!host.file(KEPT).exists(), "{KEPT} is left");
    status_is_clean(host)?;
    host.run(&["ctl", "bundle", "remove", BROKEN, "--yes"])?;
    let place = host.file(&bundle_place(BROKEN));
    ensure!(!place.exists(), "{} is left", place.display());
    Ok(Counts::ONE)
}

/// The upgrade ends at the first host, says why, and has not begun with the worker.
fn stopped(host: &Host) -> Result<()> {
    let words = ["ctl", "upgrade", BROKEN, "--yes"];
    let (status, said) = Running::start(host, &words)?.ended(|| Ok(()))?;
    println!("  {}", said.trim().replace('\n', "\n  "));
    ensure!(!status.success(), "the upgrade succeeded");
    for part in [
        &format!("{BOOTSTRAP}-host ✗"),
        "the new container runtime does not serve",
        "are back, and serve",
        &format!("ctl upgrade {BROKEN}"),
    ] {
        ensure!(said.contains(part), "{part:?} is not in the output");
    }
    let begun = format!("{WORKER}-drained ✓");
    ensure!(!said.contains(&begun), "it continued with the worker");
    Ok(())
}

fn status_is_clean(host: &Host) -> Result<()> {
    wait::until("a status without problems", PODS, || {
        host.run(&["ctl", "status"]).map(drop)
    })
}
