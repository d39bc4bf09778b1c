//! Findings of an upgrade about members of etcd.

use halite_api::{ClusterStatus, UpgradeCheck, UpgradeFinding, UpgradeSeverity};
use halite_orchestrate::host_findings::finding;

/// The checks of `ctl health` about etcd that matter to an upgrade.
const CHECKS: [&str; 5] = [
    "etcd-quorum",
    "etcd-members",
    "etcd-disk",
    "etcd-data",
    "etcd-alarms",
];
/// The number of members from which on the run refuses to restart one without a quorum.
const SEVERAL: usize = 3;

/// The findings. A lost quorum stops the run at the first member; anything else may be repaired by
/// then, or by the upgrade itself.
pub(super) fn findings(status: &ClusterStatus) -> Vec<UpgradeFinding> {
    let voters = status.etcd.as_ref().map_or(0, |etcd| etcd.voters);
    let mut found = Vec::new();
    for result in &status.health.checks {
        if !CHECKS.contains(&result.name.as_str()) {
            continue;
        }
        let severity = match result.name == "etcd-quorum" && voters >= SEVERAL {
            true => UpgradeSeverity::Error,
            false => UpgradeSeverity::Warning,
        };
        found.extend(result.findings.iter().map(|one| {
            let host = one.host.as_deref().filter(|host| !host.is_empty());
            let remedy = one.remedy.clone().unwrap_or_default();
            finding(
                severity.clone(),
                UpgradeCheck::Etcd,
                host,
                one.message.clone(),
                remedy,
            )
        }));
    }
    found
}
