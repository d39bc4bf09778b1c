//! Minions that run another program than their host's bundle has, as after `ctl bundle use` without
//! a highstate. The steps of a host come before its own highstate, which would update the minion.

use std::collections::BTreeSet;

use halite_api::{UpgradeCheck, UpgradeFinding, UpgradeSeverity};
use halite_core::refusal::Refusal;
use halite_proto::ids::MinionId;

use super::against::{Against, finding};
use crate::operator::minions_first::{BUNDLED, outdated};

/// The findings about connected hosts that change. The minion of a bundle that a run has begun to give
/// is none: the run that stopped has updated it.
///
/// # Errors
/// The declaration cannot be read, or the store failed.
pub(super) async fn findings(against: &Against<'_>) -> Result<Vec<UpgradeFinding>, Refusal> {
    let hosts = against.hosts_that_change();
    let hosts: Vec<MinionId> = hosts
        .filter(|host| against.is_connected(host))
        .filter_map(|host| host.parse().ok())
        .collect();
    let mut given = BTreeSet::new();
    for bundle in against.given.iter().chain([against.bundle]) {
        given.extend(against.jobs.declarations().hash_in(bundle, BUNDLED).await);
    }
    let mut found = Vec::new();
    for one in outdated(against.jobs, &hosts).await? {
        if one.program.is_some_and(|program| given.contains(&program)) {
            continue;
        }
        let host = one.host.as_str();
        found.push(finding(
            UpgradeSeverity::Error,
            UpgradeCheck::Minions,
            Some(host),
            format!(
                "the minion of {host} is not the one of the host's bundle: a state that it lacks would stop the run"
            ),
            format!("`ctl highstate {host}` updates it"),
        ));
    }
    Ok(found)
}
