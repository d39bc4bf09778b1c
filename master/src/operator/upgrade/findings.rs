//! Findings against an upgrade, before anything changes. Whatever would certainly stop the run is an
//! error; whatever may hold it up, or loses something, is a warning.

use std::collections::{BTreeMap, BTreeSet};

use halite_api::{UpgradeCheck, UpgradeFinding, UpgradeSeverity, UpgradeTurn};
use halite_core::app::App;
use halite_core::clock::rfc3339;
use halite_core::declared::Snapshot;
use halite_core::refusal::Refusal;
use halite_fleet::jobs::Jobs;
use halite_names::{BundleVersion, MASTER};
use halite_pillar::role::Role;
use serde_json::{Map, Value};

use super::{etcd, pods, space};
use crate::operator::status::{Inspection, inspect};

/// The shortest time ahead, in seconds, for which certificates are judged: an upgrade may be paused.
const DAY: i64 = 24 * 60 * 60;
/// The checks of `ctl health` about backups that matter to an upgrade without one.
const BACKUPS: [&str; 3] = ["backup", "backup-first", "backup-verified"];

/// An upgrade that is planned.
pub(super) struct Against<'a> {
    pub(super) app: &'a App,
    pub(super) jobs: &'a Jobs,
    pub(super) snapshot: &'a Snapshot,
    pub(super) bundle: &'a BundleVersion,
    /// The Kubernetes of the bundle.
    pub(super) kubernetes: &'a str,
    /// The values over the pillar of the run.
    pub(super) options: &'a Map<String, Value>,
    pub(super) turns: &'a [UpgradeTurn],
    /// The estimate of the whole run in seconds.
    pub(super) estimate: Option<u64>,
}

/// A finding.
pub(super) fn finding(
    severity: UpgradeSeverity,
    check: UpgradeCheck,
    host: Option<&str>,
    message: String,
    remedy: impl Into<String>,
) -> UpgradeFinding {
    UpgradeFinding {
        severity,
        check,
        host: host.map(str::to_owned),
        message,
        remedy: remedy.into(),
    }
}

impl Against<'_> {
    /// All findings, errors first; `states` are the hosts whose states do not compile.
    ///
    /// # Errors
    /// The store failed.
    pub(super) async fn findings(
        &self,
        states: &BTreeMap<String, String>,
        steps: Option<&Refusal>,
    ) -> Result<Vec<UpgradeFinding>, Refusal> {
        let inspection = inspect(self.app, self.jobs).await?;
        let mut found = uncompiled(states, steps);
        found.extend(self.hosts());
        found.extend(etcd::findings(&inspection.status));
        found.extend(pods::findings(self, &inspection.status.api).await);
        found.extend(self.backup(&inspection));
        found.extend(self.certificates(&inspection));
        found.extend(space::findings(self, &inspection).await?);
        found.sort_by_key(|finding| finding.severity != UpgradeSeverity::Error);
        Ok(found)
    }

    /// The hosts that change, without `master`.
    pub(super) fn hosts_that_change(&self) -> impl Iterator<Item = &str> {
        let hosts = self.turns.iter().flat_map(|turn| &turn.hosts);
        hosts.map(String::as_str).filter(|host| *host != MASTER)
    }

    pub(super) fn is_connected(&self, host: &str) -> bool {
        let minion = host.parse();
        minion.is_ok_and(|minion| self.app.connections.is_connected(&minion))
    }

    fn hosts(&self) -> Vec<UpgradeFinding> {
        let away = self
            .hosts_that_change()
            .filter(|host| !self.is_connected(host));
        let nodes = &self.snapshot.declaration().nodes;
        let text = |host: &str| {
            let node = nodes.get(host);
            let is_first =
                node.is_some_and(|node| node.has(Role::Etcd) || node.has(Role::ControlPlane));
            let (message, remedy) = match is_first {
                true => (
                    format!("{host} is not connected: the run stops before it"),
                    "start it, or `ctl node replace` if it is permanently dead",
                ),
                false => (
                    format!("{host} is not connected: it is left out"),
                    "run the same command again when it is",
                ),
            };
            finding(
                UpgradeSeverity::Warning,
                UpgradeCheck::Hosts,
                Some(host),
                message,
                remedy,
            )
        };
        away.map(text).collect()
    }

    /// Old or unverified backups, if the run makes none.
    fn backup(&self, inspection: &Inspection) -> Vec<UpgradeFinding> {
        if self.options.get("backup") == Some(&Value::Bool(true)) {
            return Vec::new();
        }
        from_health(inspection, &BACKUPS, UpgradeCheck::Backup)
    }

    /// Certificates that end within the estimate, at least within a day.
    fn certificates(&self, inspection: &Inspection) -> Vec<UpgradeFinding> {
        let estimate = i64::try_from(self.estimate.unwrap_or_default()).unwrap_or(i64::MAX);
        let end = (self.app.clock.now() / 1000).saturating_add(estimate.max(DAY));
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

/// Findings of checks of `ctl health`, as warnings.
pub(super) fn from_health(
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
