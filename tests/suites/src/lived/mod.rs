//! Hosts as they are in the field: a cluster on hosts with everything that must work without help,
//! and a host with everything that is refused.

mod host;
mod refused;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::{CLUSTER, CTL, Cluster, ISO_DIRECTORY, WORKER};
use halite_lab::host::Host;
use halite_lab::layout::{Layout, TWO};
use halite_lab::progress::Board;
use halite_lab::{Lab, cluster, wait};
use halite_upstream::prepare;
use halite_upstream::versions::{FULL, Release};

use self::host::{HELD, NEWER_ELSEWHERE, SOURCES, deliver, is_delivered};
use crate::checks::nothing_to_do;
use crate::cluster::{
    PODS, STAYING, across_nodes, ensure_servers, nodes_ready, nothing_left, remove_servers,
};
use crate::guide::{no_own_states, own_states};
use crate::ha::{add_release, has_release, while_written};
use crate::health;
use crate::repair::highstate;
use crate::site::Site;
use crate::test::{Counts, Test, cases, sequence};

/// The name of its own lab.
const LAB: &str = "lived";

const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "lived: pods of delivered hosts reach each other, and a second highstate changes nothing",
        run: works,
    },
    Test {
        name: "lived: an own repository that fails stops only its own state",
        run: own_repository,
    },
    Test {
        name: "lived: delivered hosts serve by themselves after a power cut of both",
        run: comes_back,
    },
    Test {
        name: "lived: delivered hosts are upgraded to another bundle",
        run: upgraded,
    },
    Test {
        name: "lived: nothing tried to leave",
        run: nothing_left,
    },
];

/// Tests without a cluster.
pub(super) const REFUSED: &[Test<()>] = &[Test {
    name: "lived: a host with all that is refused is told so in one report, and stays unchanged",
    run: refused::in_one_report,
}];

/// Limit for the hosts to serve after a power cut.
const BACK: Duration = Duration::from_secs(420);

/// The version of the other bundle.
const OTHER: &str = concat!(env!("CARGO_PKG_VERSION"), "-lived");

/// The network of Services, to which no route of the hosts leads.
const SERVICES: &str = "198.18.0.0/16";

/// The site with delivered hosts.
pub(super) fn site() -> Site {
    Site {
        lab: LAB.to_owned(),
        made: "lived: bootstrap and node add on delivered hosts",
        layout: &TWO,
        release: FULL,
        make,
        tests: sequence(cases(TESTS)),
    }
}

fn make(lab: &str, layout: &Layout, release: &Release) -> Result<Cluster> {
    let iso_directory = prepare::iso_directory_of(release, &Board::plain())?;
    let lab = Lab::new(lab, &halite_lab::cache().join("base-root"))?;
    lab.down()?;
    let carried = [(iso_directory.as_path(), ISO_DIRECTORY)];
    let cluster = cluster::boot_hosts(lab, layout, &carried)?;
    for host in cluster.hosts() {
        deliver(host)?;
    }
    cluster.bootstrap(&document()?)?;
    for group in layout.joins {
        cluster.join(group)?;
    }
    cluster.wait_for_pods(PODS)?;
    Ok(cluster)
}

/// The cluster document.
fn document() -> Result<String> {
    let services = "services: 10.96.0.0/12";
    ensure!(
        CLUSTER.contains(services),
        "the lab's document has other Services"
    );
    Ok(CLUSTER.replace(services, &format!("services: {SERVICES}")))
}

/// The files of the sources with their digests.
fn sources(host: &Host) -> Result<String> {
    host.sh(&format!("sha256sum {SOURCES}"))
}

fn works(cluster: &Cluster) -> Result<Counts> {
    let before: Vec<String> = cluster
        .hosts()
        .into_iter()
        .map(sources)
        .collect::<Result<_>>()?;
    nodes_ready(cluster)?;
    ensure_servers(cluster, STAYING)?;
    across_nodes(cluster, STAYING)?;
    health::is_well(cluster)?;
    nothing_to_do(&cluster.bootstrap)?;
    let changed = highstate(cluster, &[])?.changed;
    ensure!(changed.is_empty(), "a second highstate changed {changed:?}");
    for (host, sources_before) in cluster.hosts().into_iter().zip(before) {
        let name = &host.spec.name;
        is_delivered(host)?;
        keeps_names(host)?;
        ensure!(
            sources(host)? == sources_before,
            "the sources of {name} have changed"
        );
        let (package, elsewhere) = NEWER_ELSEWHERE;
        let offered = host.run(&["apt-cache", "policy", package])?;
        ensure!(
            offered.contains(elsewhere),
            "{name} is not offered {package} {elsewhere}: {offered}"
        );
        let installed = host.run(&["dpkg-query", "-W", "-f=${Version}", package])?;
        ensure!(
            !installed.is_empty() && installed != elsewhere,
            "{name} has {package} {installed:?}"
        );
        forwards(host)?;
    }
    Ok(Counts::ONE)
}

/// The full name is the one that the host was delivered with, at an address that others reach.
fn keeps_names(host: &Host) -> Result<()> {
    let name = &host.spec.name;
    let full = format!("{name}.corp.example");
    let said = host.run(&["hostname", "--fqdn"])?;
    ensure!(said.trim() == full, "{name} calls itself {said}");
    let found = host.run(&["getent", "ahostsv4", &full])?;
    ensure!(
        found.starts_with(&host.control_plane_address()),
        "{full} is {found}"
    );
    Ok(())
}

fn forwards(host: &Host) -> Result<()> {
    let name = &host.spec.name;
    let value = host.run(&["cat", "/proc/sys/net/ipv4/ip_forward"])?;
    ensure!(value.trim() == "1", "{name} does not forward: {value}");
    Ok(())
}

/// A state of the operator for a repository that refuses connections.
const OWN: &str = "own-repository:\n  pkgrepo.managed:\n    - name: agent\n    - uris: [\"http://10.10.1.1:9/agent\"]\n    \
                   - suite: bookworm\n    - components: [main]\n";

fn own_repository(cluster: &Cluster) -> Result<Counts> {
    let (first, worker) = (&cluster.bootstrap, &cluster.worker);
    // As after a change of the bundle: Halite's own index is read again.
    worker.run(&["rm", "/etc/apt/sources.list.d/halite.list"])?;
    own_states(cluster, OWN)?;
    let output = first.output(&[CTL, "highstate", WORKER]);
    no_own_states(cluster)?;
    let output = output?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(1) && said.contains("10.10.1.1:9"),
        "it ended with {}: {said}",
        output.status
    );
    ensure!(
        !said.contains("host-packages"),
        "Halite's packages depend on the operator's repository: {said}"
    );
    worker
        .sh("test -s /etc/apt/sources.list.d/halite.list && apt-cache policy kubelet | grep -q 'Candidate: [0-9]'")
        .context("Halite's own repository was not read")?;
    nothing_to_do(first)?;
    Ok(Counts::ONE)
}

fn comes_back(cluster: &Cluster) -> Result<Counts> {
    let names: Vec<String> = cluster
        .hosts()
        .iter()
        .map(|host| host.spec.name.clone())
        .collect();
    let before = restarts(cluster)?;
    cluster.lab.power_off(&names, false)?;
    cluster.lab.power_on(&names)?;
    for host in cluster.hosts() {
        let name = &host.spec.name;
        host.sh("test -e /run/fake-cloud-init")?;
        is_delivered(host)?;
        keeps_names(host)?;
        let swap = host.run(&["systemctl", "show", "-P", "LoadState", "swap.target"])?;
        ensure!(
            swap.trim() == "masked",
            "{name} would start its swap: {swap}"
        );
        forwards(host)?;
    }
    // By themselves: no highstate runs.
    wait::until("the nodes to be Ready", BACK, || {
        nodes_ready(cluster).map(drop)
    })?;
    // Until a kubelet has reported, the API has the addresses from before.
    wait::until("all pods to be restarted", BACK, || {
        let now = restarts(cluster)?;
        let same: Vec<&String> = (before.iter())
            .filter(|(pod, count)| now.get(*pod) == Some(count))
            .map(|(pod, _)| pod)
            .collect();
        ensure!(same.is_empty(), "not restarted yet: {same:?}");
        Ok(())
    })?;
    cluster.wait_for_pods(PODS)?;
    across_nodes(cluster, STAYING)?;
    health::is_well(cluster)?;
    nothing_to_do(&cluster.bootstrap)?;
    Ok(Counts::ONE)
}

/// The number of restarts of each pod.
fn restarts(cluster: &Cluster) -> Result<BTreeMap<String, String>> {
    let counts = "jsonpath={range .items[*]}{.metadata.name} {.status.containerStatuses[*].restartCount}{\"\\n\"}{end}";
    let text = cluster.kubectl(&["get", "pods", "-A", "-o", counts])?;
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    Ok(lines
        .map(|(pod, count)| (pod.to_owned(), count.to_owned()))
        .collect())
}

fn upgraded(cluster: &Cluster) -> Result<Counts> {
    // No controller would make them again after a drain.
    remove_servers(cluster, STAYING)?;
    let kubernetes = add_release(cluster, &FULL, OTHER, 1)?;
    let upgrade = ["ctl", "upgrade", OTHER, "--yes"];
    let host = &cluster.bootstrap;
    let written = while_written(cluster, host, "lived", || {
        ensure!(host.show(&upgrade)?.success(), "the upgrade failed");
        Ok(())
    })?;
    println!("  {}", written.summary());
    for host in cluster.hosts() {
        wait::until("the release on a host", BACK, || {
            has_release(cluster, host, &kubernetes)
        })?;
        let held = host.run(&["apt-mark", "showhold"])?;
        ensure!(held.lines().eq(HELD), "on hold: {held}");
    }
    cluster.wait_for_pods(PODS)?;
    ensure_servers(cluster, STAYING)?;
    across_nodes(cluster, STAYING)?;
    health::is_well(cluster)?;
    nothing_to_do(&cluster.bootstrap)?;
    Ok(Counts::ONE)
}
