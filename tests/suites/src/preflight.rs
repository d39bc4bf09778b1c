//! The preflight of a host that is added.

use std::process::Output;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::{CTL, Cluster, WORKER};

use crate::ha::Since;
use crate::health;
use crate::test::{Counts, Test};

pub(super) const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "preflight: a host that is added again with the same words stays unchanged",
        run: again,
    },
    Test {
        name: "preflight: a host whose ports are taken is refused before anything changes there",
        run: taken_ports,
    },
];

/// A file that states write on a host before a check could find anything: without it the host has
/// only enrolled.
const BEGUN: &str = "/etc/apt/sources.list.d/halite.list";

fn again(cluster: &Cluster) -> Result<Counts> {
    let started = || cluster.worker.run(&["pidof", "kubelet", "containerd"]);
    let before = started()?;
    let since = Since::now(&cluster.bootstrap)?;
    let output = add(cluster, &[])?;
    ensure!(output.status.success(), "{}", text(&output));
    since.changed_nothing()?;
    ensure!(started()? == before, "kubelet or containerd was restarted");
    Ok(Counts::ONE)
}

/// Makes the worker look like the host of another cluster, whose kubelet runs there.
fn taken_ports(cluster: &Cluster) -> Result<Counts> {
    let worker = &cluster.worker;
    let aside = "/root/halite.list";
    worker.run(&["mv", BEGUN, aside])?;
    let refused = refused(cluster);
    // The ignored checks are over; the states write the file again.
    let names = "other-kubernetes,ports-kubernetes,other-pod-network";
    let ignored = refused.and_then(|()| add(cluster, &["--ignore-preflight", names]));
    worker.sh(&format!(
        "test -e {BEGUN} || mv {aside} {BEGUN}; rm -f {aside}"
    ))?;
    let ignored = ignored?;
    let said = text(&ignored);
    ensure!(
        ignored.status.success() && said.contains("(ignored)"),
        "ctl node add ended with {}: {said}",
        ignored.status
    );
    let audit = [CTL, "audit", "--action", "Orchestrate", "--limit", "3"];
    let audit = cluster.bootstrap.run(&audit)?;
    ensure!(
        audit.contains(&format!("ignores preflight {names}")),
        "{audit}"
    );
    health::is_well(cluster)?;
    Ok(Counts::ONE)
}

fn refused(cluster: &Cluster) -> Result<()> {
    let started = || cluster.worker.run(&["pidof", "kubelet"]);
    let before = started()?;
    let output = add(cluster, &[])?;
    let said = text(&output);
    for wanted in [
        &format!("{WORKER} is not ready to join"),
        "other-kubernetes: Kubernetes is already installed",
        "ports-kubernetes: something listens on TCP",
        "10250",
        "other-pod-network: another pod network left its configuration",
    ] {
        ensure!(said.contains(wanted), "{wanted:?} is not in {said}");
    }
    ensure!(output.status.code() == Some(1), "{}", output.status);
    ensure!(started()? == before, "the kubelet was restarted");
    let there = cluster.worker.output(&["test", "-e", BEGUN])?;
    ensure!(!there.status.success(), "a state has run on {WORKER}");
    Ok(())
}

/// Adds the worker again, with the words with which it was added.
fn add(cluster: &Cluster, more: &[&str]) -> Result<Output> {
    let mut words = cluster.add_command();
    words.extend(more.iter().map(|word| (*word).to_owned()));
    let output = cluster.bootstrap.output(&words);
    output.context("cannot add the worker again")
}

fn text(output: &Output) -> String {
    let (out, error) = (&output.stdout, &output.stderr);
    [out, error]
        .map(|text| String::from_utf8_lossy(text))
        .concat()
}
