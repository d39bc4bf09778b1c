//! Minions that run another program than their host's bundle has, as after `ctl bundle use` without
//! a highstate. The steps of a host come before its own highstate, which would update the minion.

use std::collections::BTreeSet;

use halite_api::{UpgradeCheck, UpgradeFinding, UpgradeSeverity};
use halite_core::refusal::Refusal;
use halite_proto::ids::MinionId;

use super::against::{Against, finding};
use crate::outdated_minions::{BUNDLED, outdated};

/// The findings about connected hosts that change, also behind a pause: a resumed run makes no
/// plan. The minion of a bundle that a run has begun to give causes none: the run that stopped has
/// updated it. One whose update was rolled back does not keep the bundle with the repair away.
///
/// # Errors
/// The declaration cannot be read, or the store failed.
pub async fn findings(against: &Against<'_>) -> Result<Vec<UpgradeFinding>, Refusal> {
    let declaration = against.snapshot.declaration();
    let declared = declaration.nodes.keys();
    let differ = declared.filter(|host| declaration.bundle_for(host) != Some(against.bundle));
    let mut hosts: BTreeSet<MinionId> = against.hosts_that_change().cloned().collect();
    hosts.extend(differ.cloned().map(MinionId::from));
    hosts.retain(|host| against.is_connected(host));
    let hosts: Vec<MinionId> = hosts.into_iter().collect();
    let mut given = BTreeSet::new();
    for bundle in against.given.iter().chain([against.bundle]) {
        given.extend(against.jobs.declarations().hash_in(bundle, BUNDLED).await);
    }
    let mut found = Vec::new();
    for one in outdated(against.jobs, &hosts).await? {
        if one.program.is_some_and(|program| given.contains(&program)) {
            continue;
        }
        let severity = match one.taken_back {
            Some(_) => UpgradeSeverity::Warning,
            None => UpgradeSeverity::Error,
        };
        let host = one.host.as_str();
        found.push(finding(
            severity,
            UpgradeCheck::Minions,
            Some(host),
            format!(
                "{host} runs a different halite-minion from the one in its bundle; a state that it does not support would stop \
                 the run"
            ),
            format!(
                "`ctl highstate {host}` updates it; if this finding remains, run `systemctl restart halite-minion` on {host}"
            ),
        ));
    }
    Ok(found)
}
