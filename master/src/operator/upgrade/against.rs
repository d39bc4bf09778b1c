//! An upgrade that is planned, and the form of a finding against it.

use std::collections::BTreeSet;

use halite_api::{UpgradeCheck, UpgradeFinding, UpgradeSeverity, UpgradeTurn};
use halite_core::app::App;
use halite_core::declared::{Direction, Snapshot};
use halite_fleet::jobs::Jobs;
use halite_names::{BundleVersion, MASTER};
use serde_json::{Map, Value};

use crate::operator::status::Inspection;

/// An upgrade that is planned.
pub(super) struct Against<'a> {
    pub(super) app: &'a App,
    pub(super) jobs: &'a Jobs,
    pub(super) snapshot: &'a Snapshot,
    pub(super) bundle: &'a BundleVersion,
    /// The bundles that runs have begun to give since the last one that ended.
    pub(super) given: &'a BTreeSet<BundleVersion>,
    /// The Kubernetes of the bundle.
    pub(super) kubernetes: &'a str,
    pub(super) direction: Direction,
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
    /// The hosts that change, without `master`.
    pub(super) fn hosts_that_change(&self) -> impl Iterator<Item = &str> {
        let hosts = self.turns.iter().flat_map(|turn| &turn.hosts);
        hosts.map(String::as_str).filter(|host| *host != MASTER)
    }

    /// Returns whether a host returns from a bundle that it records. Its kubelet may not stay new.
    pub(super) fn must_return(&self, host: &str) -> bool {
        let own = self.snapshot.declaration().bundle_for(host);
        self.direction == Direction::Back && own != Some(self.bundle)
    }

    pub(super) fn is_connected(&self, host: &str) -> bool {
        let minion = host.parse();
        minion.is_ok_and(|minion| self.app.connections.is_connected(&minion))
    }
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
