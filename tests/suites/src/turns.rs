//! Turns of hosts: a highstate that restarts the container runtime and the kubelet of all workers
//! has one of them out at a time, and leaves the others as they are when that one does not come
//! back. And an upgrade that takes them in batches.

mod batches;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::{Cluster, DOCUMENT};
use halite_lab::host::Host;
use halite_lab::layout::WORKERS;
use halite_lab::wait;
use halite_upstream::versions::NEWEST;
use serde_json::Value;

use crate::checks::nothing_to_do;
use crate::cluster::{PODS, nothing_left};
use crate::guide::{no_own_states, own_states};
use crate::interrupted::Running;
use crate::kills::jobs;
use crate::repair::quiet;
use crate::site::{Site, from_the_iso};
use crate::test::{Counts, Test, cases, sequence};

/// The name of its own lab.
const LAB: &str = "turns";

const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "turns: with a budget of one, one worker after the other restarts its services",
        run: one_after_the_other,
    },
    Test {
        name: "turns: a worker that does not come back keeps the others as they are",
        run: does_not_come_back,
    },
    Test {
        name: "turns: an upgrade takes the workers in batches of two",
        run: batches::of_two,
    },
    Test {
        name: "turns: nothing tried to leave",
        run: nothing_left,
    },
];

/// The command, for a shell.
const HIGHSTATE: [&str; 5] = ["ctl", "highstate", "'*'", "--batch", "1"];

/// The units that the settings restart, in the order of their restarts.
const UNITS: [&str; 2] = ["containerd", "kubelet"];

/// Files that hold the run on a host for as long as they exist: before all other states, and after
/// them, when its services have been restarted.
const BEFORE: &str = "/run/halite-lab-before";
const AFTER: &str = "/run/halite-lab-after";

/// The own states that look at these files.
const HOLDS: &str = "\
halite-lab-before:
  cmd.run:
    - name: while test -e /run/halite-lab-before; do sleep 0.2; done
    - onlyif: test -e /run/halite-lab-before
    - order: first
halite-lab-after:
  cmd.run:
    - name: while test -e /run/halite-lab-after; do sleep 0.2; done
    - onlyif: test -e /run/halite-lab-after
";

/// A directory of drop-ins that Halite does not remove, because `systemctl set-property` writes
/// there.
const DROP_INS: &str = "/etc/systemd/system.control/containerd.service.d";

/// Settings of the cluster document: containerd restarts for the first one, and the kubelet for the
/// other one.
#[derive(Debug, Clone, Copy)]
struct DeclaredLimits {
    files: u32,
    pods: u32,
}

/// The settings of the two tests. A machine may not allow more than 20,000 files.
const FIRST: DeclaredLimits = DeclaredLimits {
    files: 16384,
    pods: 100,
};
const SECOND: DeclaredLimits = DeclaredLimits {
    files: 12288,
    pods: 90,
};

/// The site with three workers.
pub(super) fn site() -> Site {
    Site {
        lab: LAB.to_owned(),
        made: "turns: bootstrap and three workers",
        layout: &WORKERS,
        release: NEWEST,
        make: from_the_iso,
        tests: sequence(cases(TESTS)),
    }
}

/// All hosts but the first one.
fn workers(cluster: &Cluster) -> Vec<&Host> {
    cluster.hosts().into_iter().skip(1).collect()
}

/// Writes the settings into the cluster document, in place of earlier ones.
fn declare(cluster: &Cluster, limits: DeclaredLimits) -> Result<()> {
    let DeclaredLimits { files, pods } = limits;
    let file = cluster.bootstrap.file(DOCUMENT);
    let text = fs::read_to_string(&file)?;
    let is_earlier =
        |line: &&str| line.starts_with("  limits: ") || line.starts_with("    maxPods: ");
    let others = text.lines().filter(|line| !is_earlier(line));
    let mut text: String = others.map(|line| format!("{line}\n")).collect();
    for (section, line) in [
        ("containerd:\n", format!("  limits: {{nofile: {files}}}\n")),
        ("kubelet:\n  config:\n", format!("    maxPods: {pods}\n")),
    ] {
        ensure!(
            text.contains(section),
            "the document has no {section:?}: {text}"
        );
        text = text.replacen(section, &format!("{section}{line}"), 1);
    }
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// The number of files that containerd may open.
fn open_files(host: &Host) -> Result<u32> {
    let limits = host.sh("cat /proc/$(systemctl show -P MainPID containerd)/limits")?;
    let mut lines = limits.lines();
    let line = lines.find(|line| line.starts_with("Max open files"));
    let number = line.and_then(|line| line.split_whitespace().nth(3));
    let number = number.with_context(|| format!("{}: {limits}", host.spec.name))?;
    Ok(number.parse()?)
}

/// Checks that the programs on all hosts have the settings.
fn all_have(cluster: &Cluster, limits: DeclaredLimits) -> Result<()> {
    for host in cluster.hosts() {
        let name = host.spec.name.as_str();
        let files = open_files(host)?;
        ensure!(
            files == limits.files,
            "containerd of {name} may open {files}"
        );
        wait::until("the node to report its pods", PODS, || {
            let path = "jsonpath={.status.capacity.pods}";
            let pods = cluster.kubectl(&["get", "node", name, "-o", path])?;
            ensure!(pods == limits.pods.to_string(), "{name} reports {pods}");
            Ok(())
        })?;
    }
    Ok(())
}

/// The nodes that are not Ready.
fn not_ready(cluster: &Cluster) -> Result<BTreeSet<String>> {
    let nodes = cluster.kubectl(&["get", "nodes", "-o", "json"])?;
    let nodes: Value = serde_json::from_str(&nodes)?;
    let nodes = nodes["items"].as_array().context("no list of nodes")?;
    let is_ready = |node: &&Value| {
        let conditions = node["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
    };
    let others = nodes.iter().filter(|node| !is_ready(node));
    let names = others.filter_map(|node| node["metadata"]["name"].as_str());
    Ok(names.map(str::to_owned).collect())
}

/// Waits until all nodes are Ready. Then another highstate changes and restarts nothing.
fn settled(cluster: &Cluster) -> Result<()> {
    wait::until("all nodes to be Ready", PODS, || {
        let others = not_ready(cluster)?;
        ensure!(others.is_empty(), "not Ready: {others:?}");
        Ok(())
    })?;
    cluster.wait_for_pods(PODS)?;
    nothing_to_do(&cluster.bootstrap)?;
    quiet(cluster)
}

/// A property of a unit.
fn property(host: &Host, unit: &str, name: &str) -> Result<String> {
    let shown = host.run(&["systemctl", "show", "--value", "--property", name, unit])?;
    Ok(shown.trim().to_owned())
}

/// The invocations of the units, which change with each restart.
fn invocations(host: &Host) -> Result<[String; 2]> {
    let [runtime, kubelet] = UNITS.map(|unit| property(host, unit, "InvocationID"));
    Ok([runtime?, kubelet?])
}

/// Fails unless both units were restarted since.
fn are_restarted(host: &Host, before: &[String; 2]) -> Result<()> {
    let now = invocations(host)?;
    let all = before.iter().zip(&now).all(|(before, now)| before != now);
    ensure!(all, "{}: {before:?}, then {now:?}", host.spec.name);
    Ok(())
}

/// Fails if two of the hosts were out at the same time: from the end of containerd to the start of
/// the kubelet, in microseconds of the clock that all hosts of a machine share.
fn one_at_a_time(hosts: &[&Host]) -> Result<()> {
    let [runtime, kubelet] = UNITS;
    let mut times: Vec<(u64, u64, &str)> = Vec::new();
    for host in hosts {
        let began = property(host, runtime, "ActiveExitTimestampMonotonic")?;
        let ended = property(host, kubelet, "ActiveEnterTimestampMonotonic")?;
        times.push((began.parse()?, ended.parse()?, host.spec.name.as_str()));
    }
    times.sort_unstable();
    let in_order = times.iter().all(|(began, ended, _)| began < ended);
    ensure!(in_order, "a kubelet was not restarted last: {times:?}");
    for ((_, ended, one), (began, _, other)) in times.iter().zip(times.iter().skip(1)) {
        ensure!(
            ended <= began,
            "{one} and {other} were out at the same time: {times:?}"
        );
    }
    Ok(())
}

/// The number of hosts on which one of the units does not run.
fn number_out(hosts: &[&Host]) -> usize {
    let [runtime, kubelet] = UNITS;
    let run = format!("systemctl -q is-active {runtime} && systemctl -q is-active {kubelet}");
    hosts.iter().filter(|host| host.sh(&run).is_err()).count()
}

/// Does something with the own states that can hold hosts.
fn with_holds(cluster: &Cluster, act: impl FnOnce() -> Result<()>) -> Result<()> {
    own_states(cluster, HOLDS)?;
    let done = act();
    // Also after a failure: nothing may hold the hosts of the next test.
    for worker in workers(cluster) {
        worker.run(&["rm", "-f", BEFORE, AFTER])?;
    }
    no_own_states(cluster)?;
    done
}

fn one_after_the_other(cluster: &Cluster) -> Result<Counts> {
    with_holds(cluster, || in_turn(cluster, &workers(cluster)))?;
    all_have(cluster, FIRST)?;
    settled(cluster)?;
    Ok(Counts::ONE)
}

/// The first worker that restarts its services is held after that: the others wait, and the command
/// says so. Then they follow.
fn in_turn(cluster: &Cluster, workers: &[&Host]) -> Result<()> {
    let mut before = Vec::new();
    for worker in workers {
        worker.run(&["touch", AFTER])?;
        before.push(invocations(worker)?);
    }
    declare(cluster, FIRST)?;
    let mut running = Running::start(&cluster.bootstrap, &HIGHSTATE)?;
    // Both of the others in one line.
    let waits = ["until fewer hosts are out: 1 of 1 hosts out: ", ", worker-"];
    let line = running.wait_for_line(&waits)?;
    println!("  {line}");
    let parts = line.split_once(": waiting for ");
    let (waiting, because) = parts.with_context(|| format!("no time in: {line}"))?;
    for (worker, before) in workers.iter().zip(&before) {
        let name = &worker.spec.name;
        if because.contains(&format!("hosts out: {name} since ")) {
            wait::until("both restarts on the first worker", PODS, || {
                are_restarted(worker, before)
            })?;
        } else {
            ensure!(waiting.contains(name), "{name} is not in: {line}");
        }
    }
    for (worker, before) in workers.iter().zip(&before) {
        let name = &worker.spec.name;
        let is_same = invocations(worker)? == *before;
        ensure!(
            is_same == waiting.contains(name),
            "{name} did not wait: {line}"
        );
    }
    for worker in workers {
        worker.run(&["rm", AFTER])?;
    }
    let mut most = 0;
    let (status, said) = running.ended(|| {
        most = most.max(number_out(workers));
        Ok(())
    })?;
    ensure!(status.success(), "the highstate: {said}");
    ensure!(most < 2, "{most} workers were out at the same time");
    for (worker, before) in workers.iter().zip(&before) {
        are_restarted(worker, before)?;
    }
    one_at_a_time(workers)
}

fn does_not_come_back(cluster: &Cluster) -> Result<Counts> {
    let workers = workers(cluster);
    let (broken, others) = workers.split_first().context("no worker")?;
    with_holds(cluster, || {
        let kept = kept(cluster, broken, others);
        // Also after a failure. This is the repair.
        broken.sh(&format!("rm -rf {DROP_INS} && systemctl daemon-reload"))?;
        kept
    })?;
    cluster.bootstrap.sh(&HIGHSTATE.join(" "))?;
    all_have(cluster, SECOND)?;
    one_at_a_time(others)?;
    settled(cluster)?;
    Ok(Counts::ONE)
}

/// containerd does not start again on the worker that takes the first turn. The highstate fails,
/// and the others restart nothing, for a reason that names that worker, and stay Ready.
fn kept(cluster: &Cluster, broken: &Host, others: &[&Host]) -> Result<()> {
    let (first, name) = (&cluster.bootstrap, broken.spec.name.as_str());
    let mut before = Vec::new();
    for other in others {
        other.run(&["touch", BEFORE])?;
        before.push(invocations(other)?);
    }
    // systemd reads it with the other drop-in, immediately before the restart.
    broken.sh(&format!(
        "mkdir -p {DROP_INS} && printf '[Service]\\nExecStartPre=/bin/false\\n' > {DROP_INS}/lab.conf"
    ))?;
    declare(cluster, SECOND)?;
    let running = Running::start(first, &HIGHSTATE)?;
    wait::until("a containerd that does not start", PODS, || {
        broken.sh("! systemctl -q is-active containerd").map(drop)
    })?;
    for other in others {
        other.run(&["rm", BEFORE])?;
    }
    let mut lost = BTreeSet::new();
    let (status, said) = running.ended(|| {
        lost.append(&mut not_ready(cluster)?);
        Ok(())
    })?;
    println!("  {}", said.trim().replace('\n', "\n  "));
    ensure!(!status.success(), "the highstate succeeded");
    lost.append(&mut not_ready(cluster)?);
    lost.remove(name);
    ensure!(lost.is_empty(), "nodes were not Ready: {lost:?}");
    let reason = format!("not restarted: {name} failed after a restart");
    ensure!(said.contains(&reason), "{reason:?} is not in the output");
    let comments = comments(first)?;
    for (other, before) in others.iter().zip(&before) {
        let other_name = &other.spec.name;
        let comment = comments.get(other_name);
        ensure!(
            comment.is_some_and(|comment| comment.contains(&reason)),
            "{other_name}: {comment:?}"
        );
        let now = invocations(other)?;
        ensure!(now == *before, "{other_name}: {before:?}, then {now:?}");
        let files = open_files(other)?;
        ensure!(
            files == FIRST.files,
            "containerd of {other_name} may open {files}"
        );
    }
    Ok(())
}

/// The comments of the state that runs containerd, in the newest highstate, by host.
fn comments(first: &Host) -> Result<BTreeMap<String, String>> {
    let jobs = jobs::list(first)?;
    let mut jobs = jobs.iter();
    let newest = jobs.find(|job| job.function == "state.highstate" && !job.test);
    let newest = newest.context("no highstate")?;
    let job = jobs::show(first, &newest.job)?;
    let mut comments = BTreeMap::new();
    for part in job.returns.context("no returns")? {
        let run = part.answer.and_then(|answer| answer.states());
        let states = run.unwrap_or_default().states;
        let mut states = states.into_iter();
        let own = states.find(|one| one.function == "service.running" && one.name == "containerd");
        if let Some(own) = own {
            comments.insert(part.minion.to_string(), own.comment);
        }
    }
    Ok(comments)
}
