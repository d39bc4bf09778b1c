//! Findings against an upgrade, before anything changes. Whatever would certainly stop the run is
//! an error; whatever may hold it up, or loses something, is a warning; whatever concerns only a
//! later upgrade is an information.

use std::collections::{BTreeMap, BTreeSet};

use halite_api::{UpgradeCheck, UpgradeFinding, UpgradeSeverity};
use halite_core::refusal::Refusal;
use halite_host_reports::health::HostHealth;
use halite_names::NodeName;
use halite_orchestrate::host_findings::{Against, finding, holds, kubelets, minions};
use halite_pillar::role::Role;
use halite_proto::ids::MinionId;
use serde_json::Value;

use super::{certificates, etcd, pods, space};
use crate::operator::status::{Inspection, inspect};

/// The checks of `ctl health` about backups that matter to an upgrade without one.
const BACKUPS: [&str; 3] = ["backup", "backup-first", "backup-verified"];

/// All findings, errors first; `states` are the hosts whose states do not compile, `steps` the
/// reason why the steps of the run do not.
///
/// # Errors
/// A bundle cannot be read, or the store failed.
pub(super) async fn of(
    against: &Against<'_>,
    states: &BTreeMap<MinionId, String>,
    steps: Option<&Refusal>,
) -> Result<Vec<UpgradeFinding>, Refusal> {
    let inspection = inspect(against.jobs.app(), against.jobs).await?;
    let mut found = uncompiled(states, steps);
    found.extend(hosts(against));
    found.extend(not_joined(against, &inspection.minions));
    found.extend(minions::findings(against).await?);
    found.extend(kubelets::findings(against, &kubelets_of(&inspection))?);
    found.extend(etcd::findings(&inspection.status));
    found.extend(pods::findings(against, &inspection.status.api).await);
    found.extend(backup(against, &inspection));
    found.extend(certificates::findings(against, &inspection).await?);
    found.extend(space::findings(against, &inspection).await?);
    found.extend(holds::findings(against, &inspection.minions).await?);
    found.sort_by(|a, b| a.severity.cmp(&b.severity));
    Ok(found)
}

/// Findings of checks of `ctl health`, as warnings.
fn from_health(
    inspection: &Inspection,
    names: &[&str],
    check: UpgradeCheck,
) -> Vec<UpgradeFinding> {
    let checks = inspection.status.health.checks.iter();
    let own = checks.filter(|result| names.contains(&result.name.as_str()));
    let found = own.flat_map(|result| &result.findings);
    found
        .map(|one| {
            let host = one.host.as_deref().filter(|host| !host.is_empty());
            let remedy = one.remedy.clone().unwrap_or_default();
            finding(
                UpgradeSeverity::Warning,
                check.clone(),
                host,
                one.message.clone(),
                remedy,
            )
        })
        .collect()
}

/// The version of the kubelet of each host that is a Kubernetes node.
fn kubelets_of(inspection: &Inspection) -> BTreeMap<&str, &str> {
    let hosts = inspection.status.nodes.iter();
    let kubelet = hosts.filter_map(|host| {
        let version = host.kubernetes.as_ref()?.kubelet.as_deref()?;
        Some((host.name.as_str(), version))
    });
    kubelet.collect()
}

fn hosts(against: &Against<'_>) -> Vec<UpgradeFinding> {
    let away = against
        .hosts_that_change()
        .filter(|host| !against.is_connected(host));
    let nodes = &against.snapshot.declaration().nodes;
    let text = |host: &MinionId| {
        let node = nodes.get(host.as_str());
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

/// Hosts that only their own run may change: their `ctl node add` has not begun there, or was
/// refused.
fn not_joined(
    against: &Against<'_>,
    minions: &BTreeMap<NodeName, HostHealth>,
) -> Vec<UpgradeFinding> {
    let bare = |host: &&MinionId| minions.get(host.as_str()).is_some_and(|health| health.bare);
    let error = |host: &MinionId| {
        finding(
            UpgradeSeverity::Error,
            UpgradeCheck::Hosts,
            Some(host),
            format!("{host} is declared and has not joined: the run would stop at it"),
            format!("finish `ctl node add {host}`, or remove it with `ctl node remove {host}`"),
        )
    };
    against
        .hosts_that_change()
        .filter(bare)
        .map(error)
        .collect()
}

/// Old or unverified backups, if the run makes none.
fn backup(against: &Against<'_>, inspection: &Inspection) -> Vec<UpgradeFinding> {
    if against.options.get("backup") == Some(&Value::Bool(true)) {
        return Vec::new();
    }
    from_health(inspection, &BACKUPS, UpgradeCheck::Backup)
}

/// States that do not compile from the bundle: the run would stop at them.
fn uncompiled(states: &BTreeMap<MinionId, String>, steps: Option<&Refusal>) -> Vec<UpgradeFinding> {
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
