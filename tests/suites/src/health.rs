//! `ctl health` on a sound cluster, and after a damage that it names.

mod pod_network;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::{BOOTSTRAP, CTL, Cluster};
use halite_lab::wait;
use serde_json::Value;

use crate::test::{Counts, Test};

pub(super) const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "health: a scheduler that is gone is named, and the remedy brings it back",
        run: lost_scheduler,
    },
    Test {
        name: "health: pods have a network without a default route, and with a second address of the host",
        run: pod_network::addresses,
    },
    Test {
        name: "health: lost routes of pods are named, and the remedy brings them back",
        run: pod_network::routes,
    },
    Test {
        name: "health: a blocked tunnel is named, and the node does not pass as added",
        run: pod_network::tunnel,
    },
    Test {
        name: "health: a kernel that forwards nothing is named, and the remedy repairs it",
        run: pod_network::forwarding,
    },
    Test {
        name: "health: flannel's file that is gone is named, and the remedy brings it back",
        run: pod_network::subnet_file,
    },
    Test {
        name: "health: a network of another name that comes first is named, and the remedy removes it",
        run: pod_network::foreign_network,
    },
    Test {
        name: "health: a bridge with another address is named, and the remedy makes it again",
        run: pod_network::foreign_bridge,
    },
    Test {
        name: "health: rules of Services that are gone are named, and the remedy writes them again",
        run: pod_network::service_rules,
    },
    Test {
        name: "health: a kube-proxy and a flannel that do not run are named, and the remedy starts them",
        run: pod_network::daemons,
    },
    Test {
        name: "health: a DNS that does not run is named, and what its remedy shows has the reason",
        run: pod_network::dns,
    },
];

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
    findings(health, name).first().cloned()
}

/// All findings of a check.
fn findings(health: &Value, name: &str) -> Vec<Value> {
    let mut checks = health["checks"].as_array().into_iter().flatten();
    let check = checks.find(|check| check["name"] == name);
    let findings = check.and_then(|check| check["findings"].as_array());
    findings.cloned().unwrap_or_default()
}
