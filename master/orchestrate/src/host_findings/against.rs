//! An upgrade that is planned, and the form of a finding against it.

use std::collections::BTreeSet;

use halite_api::{UpgradeCheck, UpgradeFinding, UpgradeSeverity, UpgradeTurn};
use halite_core::declared::{Direction, Snapshot};
use halite_fleet::jobs::Jobs;
use halite_names::BundleVersion;
use halite_proto::ids::MinionId;
use serde_json::{Map, Value};

/// An upgrade that is planned.
pub struct Against<'a> {
    /// The jobs of this master.
    pub jobs: &'a Jobs,
    /// The documents.
    pub snapshot: &'a Snapshot,
    /// The next bundle.
    pub bundle: &'a BundleVersion,
    /// The bundles that runs have begun to give since the last one that ended.
    pub given: &'a BTreeSet<BundleVersion>,
    /// The Kubernetes of the bundle.
    pub kubernetes: &'a str,
    /// The direction.
    pub direction: Direction,
    /// The values over the pillar of the run.
    pub options: &'a Map<String, Value>,
    /// The hosts, in their order, with those that are drained.
    pub turns: &'a [UpgradeTurn],
    /// The estimate of the whole run in seconds.
    pub estimate: Option<u64>,
}

/// A finding.
#[must_use]
pub fn finding(
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
    pub fn hosts_that_change(&self) -> impl Iterator<Item = &MinionId> {
        let hosts = self.turns.iter().flat_map(|turn| &turn.hosts);
        hosts.filter(|host| !host.is_master())
    }

    /// Returns whether a host returns from a bundle that it records. Its kubelet may not stay new.
    #[must_use]
    pub fn must_return(&self, host: &str) -> bool {
        let own = self.snapshot.declaration().bundle_for(host);
        self.direction == Direction::Back && own != Some(self.bundle)
    }

    /// Returns whether the minion of a host is connected.
    #[must_use]
    pub fn is_connected(&self, host: &MinionId) -> bool {
        self.jobs.app().connections.is_connected(host)
    }
}
