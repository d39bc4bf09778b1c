//! Findings of an upgrade about pods and clients of the Kubernetes API.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use halite_api::{ApiState, UpgradeCheck, UpgradeFinding, UpgradeSeverity};
use halite_cluster::kubernetes::deprecated::{DeprecatedApi, requested};
use halite_errors::chain;
use halite_orchestrate::host_findings::{Against, finding, pods};
use halite_pillar::release::{minor, order};

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
    let api = against.jobs.clusters().api(against.snapshot).await;
    let found = match api {
        Ok(api) => tokio::time::timeout(LIMIT, pods::findings(against, api.as_ref())).await,
        Err(refusal) => return vec![unknown(&refusal.message)],
    };
    match found {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => vec![unknown(&chain(&error))],
        Err(_) => vec![unknown(&format!("no answer within {} s", LIMIT.as_secs()))],
    }
}

/// The deprecated API versions in use.
async fn apis(against: &Against<'_>) -> Vec<UpgradeFinding> {
    let servers = against.jobs.clusters().servers(against.snapshot).await;
    let servers = servers.unwrap_or_default();
    let asked = servers.iter().map(|server| async {
        let found = tokio::time::timeout(LIMIT, requested(server.api.as_ref())).await;
        (server.host.as_str(), found.ok().and_then(Result::ok))
    });
    let (mut silent, mut used): (Vec<&str>, BTreeMap<DeprecatedApi, Vec<&str>>) =
        Default::default();
    for (host, found) in join_all(asked).await {
        match found {
            None => silent.push(host),
            Some(all) => all
                .into_iter()
                .for_each(|api| used.entry(api).or_default().push(host)),
        }
    }
    let silent = (!silent.is_empty()).then(|| {
        unknown(&format!(
            "the metrics of the API server on {} cannot be read",
            silent.join(", ")
        ))
    });
    let next = minor(against.kubernetes);
    let used = used
        .iter()
        .map(|(api, hosts)| deprecated(api, &next, &hosts.join(", ")));
    used.chain(silent).collect()
}

/// The finding about a deprecated API version that clients have requested from the API servers on
/// these hosts.
fn deprecated(api: &DeprecatedApi, next: &str, hosts: &str) -> UpgradeFinding {
    let (severity, end) = match api.removed.as_deref() {
        Some(removed) if is_gone(api, next) => (
            UpgradeSeverity::Warning,
            format!("which Kubernetes {removed} and later do not serve"),
        ),
        Some(removed) => (
            UpgradeSeverity::Info,
            format!("which is deprecated: Kubernetes {next} serves it, {removed} and later do not"),
        ),
        None => (
            UpgradeSeverity::Info,
            format!(
                "which is deprecated: Kubernetes {next} serves it, and no release is announced that does not"
            ),
        ),
    };
    finding(
        severity,
        UpgradeCheck::DeprecatedApis,
        None,
        format!(
            "clients have requested {} in {}, {end} (by the API server on {hosts})",
            api.resource, api.api_version
        ),
        "the audit log of the API server names the clients; the metric stays until the API server restarts",
    )
}

/// Returns whether a minor version of Kubernetes no longer serves an API version.
fn is_gone(api: &DeprecatedApi, minor: &str) -> bool {
    let removed = api.removed.as_deref();
    removed.is_some_and(|removed| order(removed, minor) != Ordering::Greater)
}
