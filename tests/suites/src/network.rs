//! The pod network is changed on a running cluster, from Halite's flannel to an operator's own and
//! back, as the guide describes. On the hosts only files of pod networks and openings of the
//! firewall change, and no process is restarted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, anyhow, ensure};
use halite_lab::cluster::{BOOTSTRAP, Cluster, DOCUMENT, WORKER};
use halite_lab::host::Host;
use halite_lab::wait;
use halite_upstream::chart::PODNET;

use super::cluster::{PODS, STAYING, across_nodes, ensure_servers, nodes_ready, remove_servers};
use super::repair::{highstate, quiet, running};
use super::{addons, guide, health};
use crate::test::{Counts, Test};

pub(super) const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "network: an operator's own network replaces flannel, and nothing else changes",
        run: own,
    },
    Test {
        name: "network: a change back to flannel restores everything",
        run: back,
    },
];

const PAGE: &str = "pod-network.md";
/// Directory with the records from before the change, for the test that reverts it.
const BEFORE: &str = "/root/before-network";
/// Name prefix of servers that are made after a change.
const NEW: &str = "new";
/// Id of the guide's state that opens the port of the operator's own network.
const OPENING: &str = "own-pod-network";
/// Number of a pod network's objects: a namespace with its service account and CA ConfigMap, three
/// RBAC objects, a ConfigMap, a DaemonSet with its revision and pods.
const OBJECTS: usize = 10;

/// Paths below which files may change: those of pod networks, the firewall's, and the operator's
/// own.
const MAY_CHANGE: &[&str] = &[
    "/etc/cni/net.d/",
    "/opt/cni/bin/",
    "/etc/firewalld/policies/",
    "/etc/firewalld/zones/",
    "/etc/halite/custom/",
    DOCUMENT,
];

/// Configuration and programs that are not the distribution's, with their digests, without
/// firewalld's backups.
fn files(host: &Host) -> Result<String> {
    host.sh("find /etc /opt /usr/local -xdev -type f ! -name '*.old' -print0 | sort -z | xargs -0 sha256sum")
}

/// The paths of the files that differ.
fn changed(before: &str, after: &str) -> BTreeSet<String> {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    let (before, after) = (lines(before), lines(after));
    let paths = before
        .symmetric_difference(&after)
        .filter_map(|line| line.split_once("  "));
    paths.map(|(_, path)| path.to_owned()).collect()
}

/// The processes other than the pod networks': units by their start, and each container with its
/// pod's address.
fn beside(cluster: &Cluster) -> Result<BTreeMap<String, String>> {
    let mut all = running(cluster)?;
    all.retain(|label, _| !label.starts_with("containers") && !label.starts_with("restarts"));
    let path = "jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name}={.status.podIP} \
                {.status.containerStatuses[*].containerID} {.status.containerStatuses[*].restartCount}{\"\\n\"}{end}";
    // A controller deletes a completed pod at some time.
    let running = "--field-selector=status.phase!=Succeeded";
    let pods = cluster.kubectl(&["get", "pods", "-A", running, "-o", path])?;
    let pods = pods.lines().filter_map(|line| line.split_once('='));
    let others = pods.filter(|(pod, _)| {
        !["kube-flannel/", "podnet/"]
            .iter()
            .any(|of| pod.starts_with(of))
    });
    all.extend(others.map(|(pod, containers)| (pod.to_owned(), containers.to_owned())));
    Ok(all)
}

fn remembered(cluster: &Cluster, name: &str) -> PathBuf {
    cluster.bootstrap.file(BEFORE).join(name)
}

/// Runs a highstate that must change exactly these states; states of hosts on both hosts.
fn changes(cluster: &Cluster, wanted: &[&str]) -> Result<()> {
    let changed = highstate(cluster, &[])?.changed;
    let of_hosts = wanted.iter().filter(|tag| tag.starts_with("firewalld"));
    let of_hosts =
        of_hosts.flat_map(|tag| [BOOTSTRAP, WORKER].map(|host| format!("{host}: {tag}")));
    let of_master = wanted.iter().filter(|tag| tag.starts_with("kubernetes"));
    let all: BTreeSet<String> = of_hosts
        .chain(of_master.map(|tag| format!("master: {tag}")))
        .collect();
    ensure!(
        changed == all,
        "changed {changed:#?}, and should have changed {all:#?}"
    );
    Ok(())
}

/// Runs the commands of the guide.
fn as_documented(cluster: &Cluster, heading: &str, part: &str) -> Result<()> {
    cluster
        .bootstrap
        .sh(&format!("set -e\n{}", guide::block(PAGE, heading, part)?))
        .map(drop)
}

const OPENED: &str = "firewalld.policy own-pod-network [own-pod-network]";
const OWNED: &str = "kubernetes.owned addons-owned [addons-owned]";
const ZONE: &str = "firewalld.zone halite-pods [halite-pods]";
const POLICY: &str = "firewalld.policy halite-host [halite-host]";

fn own(cluster: &Cluster) -> Result<Counts> {
    ensure_servers(cluster, STAYING)?;
    across_nodes(cluster, STAYING)?;
    let document = fs::read_to_string(cluster.bootstrap.file(DOCUMENT))?;
    let objects = objects(cluster)?;
    fs::create_dir_all(cluster.bootstrap.file(BEFORE))?;
    fs::write(remembered(cluster, "cluster.yaml"), &document)?;
    fs::write(
        remembered(cluster, "objects"),
        objects.iter().cloned().collect::<Vec<_>>().join("\n"),
    )?;
    for host in cluster.hosts() {
        fs::write(remembered(cluster, &host.spec.name), files(host)?)?;
    }
    let runs = beside(cluster)?;

    guide::own_states(cluster, &guide::block(PAGE, "### Its ports", OPENING)?)?;
    changes(cluster, &[OPENED])?;
    ensure!(
        document.contains("plugin: flannel"),
        "the document has another pod network: {document}"
    );
    let without = document.replace("plugin: flannel", "plugin: none");
    fs::write(
        cluster.bootstrap.file(DOCUMENT),
        format!("{without}charts: [{PODNET}]\n"),
    )?;
    changes(
        cluster,
        &[
            ZONE,
            POLICY,
            OWNED,
            "kubernetes.manifest chart-podnet [chart-podnet]",
        ],
    )?;
    ready(cluster, PODNET)?;
    as_documented(cluster, "## Change it", "10-flannel.conflist")?;

    only_flannel_went(cluster, &objects)?;
    works(cluster, PODNET)?;
    works_for_new(cluster)?;
    health::is_well(cluster)?;
    quiet(cluster)?;
    keeps_running(cluster, &runs)?;
    for host in cluster.hosts() {
        let name = &host.spec.name;
        let changed = changed(
            &fs::read_to_string(remembered(cluster, name))?,
            &files(host)?,
        );
        let others: Vec<_> = changed
            .iter()
            .filter(|path| !MAY_CHANGE.iter().any(|may| path.starts_with(may)))
            .collect();
        ensure!(others.is_empty(), "on {name} these changed too: {others:?}");
        for path in ["/etc/cni/net.d/05-podnet.conflist", "/opt/cni/bin/podnet"] {
            ensure!(
                changed.contains(path),
                "on {name} there is no {path}: {changed:?}"
            );
        }
    }
    Ok(Counts {
        passed: 4,
        failed: 0,
    })
}

/// Every object, named as in the addons' tests, with the pods of a pod network's DaemonSet under
/// one name.
fn objects(cluster: &Cluster) -> Result<BTreeSet<String>> {
    let named = |object: String| match object.rsplit_once('-') {
        Some((set, _))
            if set.starts_with("Pod kube-flannel ") || set.starts_with("Pod podnet ") =>
        {
            set.to_owned()
        }
        _ => object,
    };
    Ok(addons::objects(cluster)?.into_iter().map(named).collect())
}

/// Checks that only flannel's objects are gone, and that all new ones are the chart's.
fn only_flannel_went(cluster: &Cluster, before: &BTreeSet<String>) -> Result<()> {
    let of = |objects: &BTreeSet<String>, name: &str| {
        objects
            .iter()
            .filter(|object| object.contains(name))
            .cloned()
            .collect::<BTreeSet<_>>()
    };
    let flannels = of(before, "flannel");
    ensure!(
        flannels.len() >= OBJECTS,
        "before there was only {flannels:?}"
    );
    wait::until("the chart's objects to be the only new ones", PODS, || {
        let now = objects(cluster)?;
        let gone: BTreeSet<String> = before.difference(&now).cloned().collect();
        let come: BTreeSet<String> = now.difference(before).cloned().collect();
        if gone == flannels && come.len() == OBJECTS && come == of(&come, PODNET) {
            Ok(())
        } else {
            Err(anyhow!("removed: {gone:#?}; added: {come:#?}"))
        }
    })
}

/// Waits until a pod network's own pods are ready on both nodes.
fn ready(cluster: &Cluster, namespace: &str) -> Result<()> {
    wait::until("the pod network to be ready on both nodes", PODS, || {
        let path = "jsonpath={.items[*].status.numberReady}";
        let ready = cluster.kubectl(&["-n", namespace, "get", "daemonsets", "-o", path]);
        match ready?.as_str() {
            "2" => Ok(()),
            other => Err(anyhow!("{other:?} of 2")),
        }
    })
}

/// Checks that a pod network is ready on both nodes, that these stayed Ready, and that the earlier
/// servers reach each other.
fn works(cluster: &Cluster, namespace: &str) -> Result<()> {
    ready(cluster, namespace)?;
    nodes_ready(cluster)?;
    across_nodes(cluster, STAYING)
}

/// Checks that new servers reach each other.
fn works_for_new(cluster: &Cluster) -> Result<()> {
    ensure_servers(cluster, NEW)?;
    across_nodes(cluster, NEW)
}

/// Checks that every earlier process is still running.
fn keeps_running(cluster: &Cluster, before: &BTreeMap<String, String>) -> Result<()> {
    let now = beside(cluster)?;
    for (what, was) in before {
        let is = now.get(what).with_context(|| format!("{what} is gone"))?;
        ensure!(is == was, "{what} was restarted: was {was}, is {is}");
    }
    Ok(())
}

fn back(cluster: &Cluster) -> Result<Counts> {
    let runs = beside(cluster)?;
    let document = fs::read_to_string(remembered(cluster, "cluster.yaml"))?;
    fs::write(cluster.bootstrap.file(DOCUMENT), document)?;
    guide::no_own_states(cluster)?;
    changes(
        cluster,
        &[ZONE, POLICY, OWNED, "kubernetes.manifest flannel [flannel]"],
    )?;
    // First the servers whose addresses come from the other network, then new ones.
    works(cluster, "kube-flannel")?;
    across_nodes(cluster, NEW)?;
    keeps_running(cluster, &runs)?;
    remove_servers(cluster, NEW)?;
    as_documented(cluster, "### Back to flannel", "05-podnet.conflist")?;
    works_for_new(cluster)?;
    remove_servers(cluster, NEW)?;
    health::is_well(cluster)?;

    let before = fs::read_to_string(remembered(cluster, "objects"))?;
    let before: BTreeSet<String> = before.lines().map(str::to_owned).collect();
    wait::until("the objects to be the previous ones", PODS, || {
        let now = objects(cluster)?;
        let differ: Vec<&String> = now.symmetric_difference(&before).collect();
        if differ.is_empty() {
            Ok(())
        } else {
            Err(anyhow!("{differ:#?}"))
        }
    })?;
    quiet(cluster)?;
    for host in cluster.hosts() {
        let name = &host.spec.name;
        let changed = changed(
            &fs::read_to_string(remembered(cluster, name))?,
            &files(host)?,
        );
        ensure!(changed.is_empty(), "changed on {name}: {changed:?}");
    }
    fs::remove_dir_all(cluster.bootstrap.file(BEFORE))?;
    cluster.nothing_tried_to_leave()?;
    Ok(Counts {
        passed: 3,
        failed: 0,
    })
}
