//! `ctl health` on a sound cluster, and after a damage that it names.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::{BOOTSTRAP, CTL, Cluster};
use halite_lab::wait;
use serde_json::Value;

use crate::test::{Counts, Test};

pub(super) const TESTS: &[Test<Cluster>] = &[Test {
    name: "health: a scheduler that is gone is named, and the remedy brings it back",
    run: lost_scheduler,
}];

/// Limit for the kubelet to notice a manifest that has gone, for a remedy to take effect, and for all to answer.
const LIMIT: Duration = Duration::from_secs(180);
const MANIFEST: &str = "/etc/kubernetes/manifests/kube-scheduler.yaml";
/// The end of the message once the kubelet has ended the pod.
const LAST: &str = "it has no pod: no manifest, or a kubelet that does not run";

/// The status as a document, whether all is well or not.
pub(super) fn status(cluster: &Cluster) -> Result<Value> {
    document(cluster, &["status"]).map(|(_, status)| status)
}

/// The exit code and the document of a command that has one in any case.
pub(super) fn document(cluster: &Cluster, words: &[&str]) -> Result<(Option<i32>, Value)> {
    let all = [&[CTL], words, &["-o", "json"]].concat();
    let output = cluster.bootstrap.output(&all)?;
    let document = serde_json::from_slice(&output.stdout).with_context(|| {
        let said = String::from_utf8_lossy(&output.stderr);
        format!("{} printed no JSON: {said}", all.join(" "))
    })?;
    Ok((output.status.code(), document))
}

/// Waits until all is well. The tests before may have taken the API away, and the kubelet waits up
/// to five minutes before it starts a program again that lost its lease.
pub(super) fn is_well(cluster: &Cluster) -> Result<()> {
    let said = cluster.bootstrap.run(&[CTL, "health", "--wait", "6m"]);
    said.map(drop).context("the cluster is not healthy")
}

/// Waits until the status shows an API that answers, and all hosts connected and Ready. It gives the API and each host
/// three seconds, which may be too few on a busy machine.
pub(super) fn all_answer(cluster: &Cluster) -> Result<()> {
    wait::until("the status to show that all answer", LIMIT, || {
        let status = status(cluster)?;
        let nodes = status["nodes"].as_array();
        let nodes = nodes.context("a status without nodes")?;
        let well = |node: &Value| node["connected"] == true && node["kubernetes"]["ready"] == true;
        ensure!(
            status["api"]["answers"] == true && nodes.iter().all(well),
            "ctl status: {status:#}"
        );
        Ok(())
    })
}

fn lost_scheduler(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    is_well(cluster)?;
    // An API that answers late is a finding of its own, and hides others.
    wait::until("a health without a finding", LIMIT, || {
        let (code, health) = document(cluster, &["health"])?;
        ensure!(code == Some(0), "exit code {code:?}: {health:#}");
        Ok(())
    })?;
    let aside = "/root/kube-scheduler.yaml";
    host.run(&["mv", MANIFEST, aside])?;
    let found = wait::until("the health to name the scheduler", LIMIT, || {
        let (code, health) = document(cluster, &["health"])?;
        let finding = finding(&health, "control-plane-pods");
        let finding = finding.with_context(|| format!("not found: {health:#}"))?;
        ensure!(code == Some(1), "exit code {code:?}: {health:#}");
        // While it ends, its pod is there and not ready, and another message says so.
        let message = finding["message"].as_str().unwrap_or_default();
        ensure!(message.ends_with(LAST), "not at its end: {message}");
        Ok(finding)
    })?;
    let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
    let (message, remedy) = (text("message"), text("remedy"));
    ensure!(
        message.starts_with(&format!("kube-scheduler on {BOOTSTRAP} does not run")),
        "{message}"
    );
    ensure!(
        remedy.contains(&format!("`ctl highstate {BOOTSTRAP}`")),
        "{remedy}"
    );
    wait::until("the status to name the scheduler", LIMIT, || {
        let output = host.output(&[CTL, "status"])?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(
            output.status.code() == Some(1) && said.contains(&message) && said.contains(&remedy),
            "ctl status ended with {}: {said}",
            output.status
        );
        Ok(())
    })?;
    // As the remedy says.
    host.run(&[CTL, "highstate", BOOTSTRAP])?;
    host.run(&["test", "-s", MANIFEST])?;
    host.run(&["rm", aside])?;
    is_well(cluster)?;
    Ok(Counts::ONE)
}

/// The first finding of a check.
pub(super) fn finding(health: &Value, name: &str) -> Option<Value> {
    let mut checks = health["checks"].as_array()?.iter();
    let check = checks.find(|check| check["name"] == name)?;
    check["findings"].as_array()?.first().cloned()
}
