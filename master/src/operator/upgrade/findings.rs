//! Findings against an upgrade, before anything changes. Whatever would certainly stop the run is an
//! error; whatever may hold it up, or loses something, is a warning.

use std::collections::{BTreeMap, BTreeSet};

use halite_api::{UpgradeCheck, UpgradeFinding, UpgradeSeverity};
use halite_core::clock::rfc3339;
use halite_core::refusal::Refusal;
use halite_pillar::role::Role;
use serde_json::Value;

use super::against::{Against, finding, from_health};
use super::{etcd, holds, minions, pods, space};
use crate::operator::status::{Inspection, inspect};

/// The shortest time ahead, in seconds, for which certificates are judged: an upgrade may be paused.
const DAY: i64 = 24 * 60 * 60;
/// The checks of `ctl health` about backups that matter to an upgrade without one.
const BACKUPS: [&str; 3] = ["backup", "backup-first", "backup-verified"];

/// All findings, errors first; `states` are the hosts whose states do not compile, `steps` the reason
/// why the steps of the run do not.
///
/// # Errors
/// A bundle cannot be read, or the store failed.
pub(super) async fn of(
    against: &Against<'_>,
    states: &BTreeMap<String, String>,
    steps: Option<&Refusal>,
) -> Result<Vec<UpgradeFinding>, Refusal> {
    let inspection = inspect(against.app, against.jobs).await?;
    let mut found = uncompiled(states, steps);
    found.extend(hosts(against));
    found.extend(minions::findings(against).await?);
    found.extend(etcd::findings(&inspection.status));
    found.extend(pods::findings(against, &inspection.status.api).await);
    found.extend(backup(against, &inspection));
    found.extend(certificates(against, &inspection));
    found.extend(space::findings(against, &inspection).await?);
    found.extend(holds::findings(against, &inspection).await?);
    found.sort_by_key(|finding| finding.severity != UpgradeSeverity::Error);
    Ok(found)
}

fn hosts(against: &Against<'_>) -> Vec<UpgradeFinding> {
    let away = against
        .hosts_that_change()
        .filter(|host| !against.is_connected(host));
    let nodes = &against.snapshot.declaration().nodes;
    let text = |host: &str| {
        let node = nodes.get(host);
        let is_first =
            node.is_some_and(|node| node.has(Role::Etcd) || node.has(Role::ControlPlane));
        let must_return = against.must_return(host);
        let (message, remedy) = match is_first {
            _ if must_return => (
                format!("{host} is not connected: the run stops before any host returns"),
                "start it, or remove it with `ctl node remove` (`ctl node replace`) if it is permanently dead",
            ),
            true => (
                format!("{host} is not connected: the run stops before it"),
                "start it, or `ctl node replace` if it is permanently dead",
            ),
            false => (
                format!("{host} is not connected: it is left out"),
                "run the same command again when it is",
            ),
        };
        let severity = match must_return {
            true => UpgradeSeverity::Error,
            false => UpgradeSeverity::Warning,
        };
        finding(severity, UpgradeCheck::Hosts, Some(host), message, remedy)
    };
    away.map(text).collect()
}

/// Old or unverified backups, if the run makes none.
fn backup(against: &Against<'_>, inspection: &Inspection) -> Vec<UpgradeFinding> {
    if against.options.get("backup") == Some(&Value::Bool(true)) {
        return Vec::new();
    }
    from_health(inspection, &BACKUPS, UpgradeCheck::Backup)
}

/// Certificates that end within the estimate, at least within a day.
fn certificates(against: &Against<'_>, inspection: &Inspection) -> Vec<UpgradeFinding> {
    let estimate = i64::try_from(against.estimate.unwrap_or_default()).unwrap_or(i64::MAX);
    let end = (against.app.clock.now() / 1000).saturating_add(estimate.max(DAY));
    let mut found = Vec::new();
    for (host, health) in &inspection.minions {
        let mut ending: Vec<_> = health.certificates.iter().collect();
        ending.retain(|one| one.ends <= end);
        let Some(first) = ending.iter().min_by_key(|one| one.ends) else {
            continue;
        };
        let more = match ending.len() {
            1 => String::new(),
            all => format!(", and {} more do", all - 1),
        };
        let message = format!(
            "on {host} the certificate {} ends at {}{more}",
            first.path,
            rfc3339(first.ends.saturating_mul(1000))
        );
        found.push(finding(
            UpgradeSeverity::Warning,
            UpgradeCheck::Certificates,
            Some(host.as_str()),
            message,
            format!("`ctl highstate {host}` renews it"),
        ));
    }
    found
}

/// States that do not compile from the bundle: the run would stop at them.
fn uncompiled(states: &BTreeMap<String, String>, steps: Option<&Refusal>) -> Vec<UpgradeFinding> {
    let error = |host: Option<&str>, message| {
        let remedy = "repair your own states or documents, or use a bundle of another version";
        finding(
            UpgradeSeverity::Error,
            UpgradeCheck::States,
            host,
            message,
            remedy,
        )
    };
    let steps = steps.map(|refusal| {
        error(
            None,
            format!("the steps do not compile: {}", refusal.message),
        )
    });
    // One cause often concerns all hosts.
    let mut seen = BTreeSet::new();
    let hosts = states.iter().filter(|(_, why)| seen.insert(why.as_str()));
    let hosts = hosts.map(|(host, why)| {
        error(
            Some(host),
            format!("the states of {host} do not compile: {why}"),
        )
    });
    steps.into_iter().chain(hosts).collect()
}
