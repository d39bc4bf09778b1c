//! `ctl health` on a healthy cluster, and after a damage that it names.

mod notified;
mod pod_network;
mod prometheus;
mod remedies;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_api::{ClusterStatus, Health, HealthFinding, NodeStatus};
use halite_lab::cluster::{BOOTSTRAP, CTL, Cluster};
use halite_lab::wait;

use crate::ctl_answer;
use crate::test::{Counts, Test};

pub(super) const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "health: a missing scheduler is reported, and the remedy restores it",
        run: lost_scheduler,
    },
    Test {
        name: "health: pods have a network without a default route, and with a second address of the host",
        run: pod_network::addresses,
    },
    Test {
        name: "health: lost routes of pods are reported, and the remedy restores them",
        run: pod_network::routes,
    },
    Test {
        name: "health: a blocked tunnel is reported, and the node does not count as added",
        run: pod_network::tunnel,
    },
    Test {
        name: "health: a kernel that forwards nothing is reported, and the remedy repairs it",
        run: pod_network::forwarding,
    },
    Test {
        name: "health: a missing file of flannel is reported, and the remedy restores it",
        run: pod_network::subnet_file,
    },
    Test {
        name: "health: a network whose name sorts first is reported, and the remedy removes it",
        run: pod_network::foreign_network,
    },
    Test {
        name: "health: a bridge with another address is reported, and the remedy recreates it",
        run: pod_network::foreign_bridge,
    },
    Test {
        name: "health: missing rules of Services are reported, and the remedy rewrites them",
        run: pod_network::service_rules,
    },
    Test {
        name: "health: a stopped kube-proxy and flannel are reported, and the remedy starts them",
        run: pod_network::daemons,
    },
    Test {
        name: "health: a stopped DNS is reported, and its remedy shows the reason",
        run: pod_network::dns,
    },
    Test {
        name: "health: a mistake and a warning in a document are reported, and the remedy shows their places",
        run: remedies::documents,
    },
    Test {
        name: "health: a stopped minion is reported, and the remedy starts it",
        run: remedies::minion,
    },
    Test {
        name: "health: a failed highstate is reported, and the remedy repeats it",
        run: remedies::highstate,
    },
    Test {
        name: "health: replicas of the DNS on one host are reported, and the remedy spreads them",
        run: remedies::crowded_dns,
    },
    Test {
        name: "health: a missing and a damaged backup are reported, and the remedies make another",
        run: remedies::backups,
    },
    Test {
        name: "health: a stopped kubelet is reported, and the remedy starts it",
        run: remedies::kubelet,
    },
    Test {
        name: "health: findings reach webhooks and a Prometheus within minutes, and resolve",
        run: notified::everywhere,
    },
];

/// Limit for the kubelet to notice a removed manifest, for a remedy to take effect, and for all to
/// answer.
const LIMIT: Duration = Duration::from_secs(180);
const MANIFEST: &str = "/etc/kubernetes/manifests/kube-scheduler.yaml";
/// The end of the message once the kubelet has stopped the pod.
const LAST: &str = "it has no pod: no manifest, or a kubelet that does not run";

/// The status, whether there are problems or not.
pub(super) fn status(cluster: &Cluster) -> Result<ClusterStatus> {
    ctl_answer::in_any_case(&cluster.bootstrap, &["status"]).map(|(_, status)| status)
}

/// The exit code and the answer of `ctl health`.
pub(super) fn health(cluster: &Cluster) -> Result<(Option<i32>, Health)> {
    ctl_answer::in_any_case(&cluster.bootstrap, &["health"])
}

/// Waits until there is no problem. Earlier tests may have made the API unavailable, and the
/// kubelet waits up to five minutes before it restarts a program that lost its lease.
pub(super) fn is_well(cluster: &Cluster) -> Result<()> {
    let said = cluster.bootstrap.run(&[CTL, "health", "--wait", "6m"]);
    said.map(drop).context("the cluster is not healthy")
}

/// Waits until the status shows an API that answers, and all hosts connected and Ready. It gives
/// the API and each host three seconds, which may be too few on a busy machine.
pub(super) fn all_answer(cluster: &Cluster) -> Result<()> {
    wait::until("the status to show that all answer", LIMIT, || {
        let status = status(cluster)?;
        let well = |node: &NodeStatus| {
            let is_ready = node.kubernetes.as_ref().is_some_and(|node| node.ready);
            node.connected && is_ready
        };
        ensure!(
            status.api.answers && status.nodes.iter().all(well),
            "ctl status: {status:#?}"
        );
        Ok(())
    })
}

fn lost_scheduler(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    is_well(cluster)?;
    // An API that answers late is a separate finding, and hides others.
    wait::until("a health without a finding", LIMIT, || {
        let (code, health) = health(cluster)?;
        ensure!(code == Some(0), "exit code {code:?}: {health:#?}");
        Ok(())
    })?;
    let aside = "/root/kube-scheduler.yaml";
    host.run(&["mv", MANIFEST, aside])?;
    let found = wait::until("the health to name the scheduler", LIMIT, || {
        let (code, health) = health(cluster)?;
        let finding = finding(&health, "control-plane-pods");
        let finding = finding.with_context(|| format!("not found: {health:#?}"))?;
        ensure!(code == Some(1), "exit code {code:?}: {health:#?}");
        // While it stops, its pod exists and is not ready, and another message says so.
        let message = &finding.message;
        ensure!(message.ends_with(LAST), "not stopped yet: {message}");
        Ok(finding)
    })?;
    let (message, remedy) = (found.message, found.remedy.unwrap_or_default());
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
    // As the remedy suggests.
    host.run(&[CTL, "highstate", BOOTSTRAP])?;
    host.run(&["test", "-s", MANIFEST])?;
    host.run(&["rm", aside])?;
    is_well(cluster)?;
    Ok(Counts::ONE)
}

/// The first finding of a check.
pub(super) fn finding(health: &Health, name: &str) -> Option<HealthFinding> {
    findings(health, name).first().cloned()
}

/// All findings of a check.
fn findings(health: &Health, name: &str) -> Vec<HealthFinding> {
    let check = health.checks.iter().find(|check| check.name == name);
    check
        .map(|check| check.findings.clone())
        .unwrap_or_default()
}
