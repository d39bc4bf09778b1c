//! Findings of an upgrade about pods and clients of the Kubernetes API.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use halite_api::{ApiState, UpgradeCheck, UpgradeFinding, UpgradeSeverity};
use halite_cluster::kubernetes::deprecated::{DeprecatedApi, requested};
use halite_cluster::kubernetes::drain::Options;
use halite_cluster::kubernetes::obstacles::{Obstacle, ObstacleReason, obstacles};
use halite_errors::chain;
use halite_pillar::release::{minor, order};
use serde_json::Value;

use super::against::{Against, finding};

/// The time for all pods, and for the metrics of each API server.
const LIMIT: Duration = Duration::from_secs(20);

/// The findings about pods on nodes that are drained, and about deprecated APIs.
pub(super) async fn findings(against: &Against<'_>, api: &ApiState) -> Vec<UpgradeFinding> {
    if !api.answers {
        return vec![unknown("the Kubernetes API does not answer")];
    }
    let (pods, apis) = tokio::join!(pods(against), apis(against));
    pods.into_iter().chain(apis).collect()
}

fn unknown(why: &str) -> UpgradeFinding {
    let message = format!("pods, budgets and requests of deprecated APIs are not known: {why}");
    finding(
        UpgradeSeverity::Warning,
        UpgradeCheck::Api,
        None,
        message,
        "`ctl health` says more",
    )
}

async fn pods(against: &Against<'_>) -> Vec<UpgradeFinding> {
    let drained = against.turns.iter().flat_map(|turn| &turn.drained);
    // Others are not drained, or stop the run before.
    let nodes: Vec<String> = drained
        .filter(|node| against.is_connected(node))
        .cloned()
        .collect();
    let drain = against.options.get("drain");
    let flag = |name: &str| drain.and_then(|drain| drain.get(name)) == Some(&Value::Bool(true));
    let options = Options {
        delete_emptydir_data: flag("delete_emptydir_data"),
        force: flag("force"),
        grace_period: None,
    };
    let api = against.jobs.clusters().api(against.snapshot).await;
    let found = match api {
        Ok(api) => tokio::time::timeout(LIMIT, obstacles(api.as_ref(), &nodes, &options)).await,
        Err(refusal) => return vec![unknown(&refusal.message)],
    };
    match found {
        Ok(Ok(found)) => found.iter().map(obstacle).collect(),
        Ok(Err(error)) => vec![unknown(&chain(&error))],
        Err(_) => vec![unknown(&format!("no answer within {} s", LIMIT.as_secs()))],
    }
}

fn obstacle(found: &Obstacle) -> UpgradeFinding {
    let Obstacle {
        node, pod, owner, ..
    } = found;
    let host = Some(node.as_str());
    match &found.reason {
        ObstacleReason::Budget(held) => finding(
            UpgradeSeverity::Warning,
            UpgradeCheck::Budgets,
            host,
            format!("{pod} ({owner}) on {node} cannot be evicted now: {held}"),
            "scale up the owner, or change the budget",
        ),
        ObstacleReason::Flag(reason) => finding(
            UpgradeSeverity::Error,
            UpgradeCheck::Pods,
            host,
            format!("{pod} ({owner}) on {node} stops its drain: {reason}"),
            "delete the pod, or let a controller own it",
        ),
    }
}

/// The API versions in use that the next Kubernetes no longer serves.
async fn apis(against: &Against<'_>) -> Vec<UpgradeFinding> {
    let servers = against.jobs.clusters().servers(against.snapshot).await;
    let servers = servers.unwrap_or_default();
    let asked = servers.iter().map(|server| async {
        let found = tokio::time::timeout(LIMIT, requested(server.api.as_ref())).await;
        (server.host.as_str(), found.ok().and_then(Result::ok))
    });
    let next = minor(against.kubernetes);
    let (mut silent, mut used): (Vec<&str>, BTreeMap<DeprecatedApi, Vec<&str>>) =
        Default::default();
    for (host, found) in join_all(asked).await {
        match found {
            None => silent.push(host),
            Some(all) => all
                .into_iter()
                .filter(|api| is_gone(api, &next))
                .for_each(|api| used.entry(api).or_default().push(host)),
        }
    }
    let silent = (!silent.is_empty()).then(|| {
        unknown(&format!(
            "the metrics of the API server on {} cannot be read",
            silent.join(", ")
        ))
    });
    let used = used.into_iter().map(|(api, hosts)| {
        let message = format!(
            "clients have requested {} in {}, which Kubernetes {} and later do not serve (by the API server on {})",
            api.resource,
            api.api_version,
            api.removed.as_deref().unwrap_or_default(),
            hosts.join(", ")
        );
        let remedy = "the audit log of the API server names the clients; the metric stays until the API server restarts";
        finding(UpgradeSeverity::Warning, UpgradeCheck::DeprecatedApis, None, message, remedy)
    });
    used.chain(silent).collect()
}

/// Returns whether a minor version of Kubernetes no longer serves an API version.
fn is_gone(api: &DeprecatedApi, minor: &str) -> bool {
    let removed = api.removed.as_deref();
    removed.is_some_and(|removed| order(removed, minor) != Ordering::Greater)
}
