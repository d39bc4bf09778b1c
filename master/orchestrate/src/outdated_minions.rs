//! Minions that run another program than their host's bundle has.

use halite_core::refusal::Refusal;
use halite_fleet::jobs::{Jobs, target};
use halite_host_reports::update::{GRAIN, PROGRAM, Reverted};
use halite_proto::ids::MinionId;
use serde_json::Value;

/// The program's path in a bundle.
pub const BUNDLED: &str = "bin/halite-minion";

/// A host whose minion differs from its bundle's program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outdated {
    /// The host.
    pub host: MinionId,
    /// SHA-256 of the program that it runs; `None` if it is too old to report it.
    pub program: Option<String>,
    /// SHA-256 of the bundle's program.
    pub wanted: String,
    /// The time of the last update if it was to the bundle's program and was rolled back.
    pub taken_back: Option<i64>,
}

/// Returns the minions among these that differ from their bundle's program, by the facts that they
/// reported when they connected. No minion is asked.
///
/// # Errors
/// The declaration cannot be read, or the store failed.
pub async fn outdated(jobs: &Jobs, minions: &[MinionId]) -> Result<Vec<Outdated>, Refusal> {
    let snapshot = jobs.declarations().load().await?;
    let mut found = Vec::new();
    for host in minions.iter().filter(|minion| !minion.is_master()) {
        // An unreadable bundle makes the highstate itself fail.
        let Some(wanted) = snapshot.bundle_hash(host, BUNDLED) else {
            continue;
        };
        let grains = target::grains(jobs.app(), host).await?;
        let has_connected = grains.get("id").is_some();
        if has_connected && !runs(&grains, &wanted) {
            let reverted = taken_back(&grains).filter(|reverted| reverted.program == wanted);
            found.push(Outdated {
                host: host.clone(),
                program: grains[PROGRAM].as_str().map(str::to_owned),
                wanted,
                taken_back: reverted.map(|reverted| reverted.time),
            });
        }
    }
    Ok(found)
}

/// Returns whether a minion runs this program. A minion too old to report this grain counts as not
/// running it.
#[must_use]
pub fn runs(grains: &Value, program: &str) -> bool {
    grains[PROGRAM] == program
}

/// The last update of a minion that was rolled back.
#[must_use]
pub fn taken_back(grains: &Value) -> Option<Reverted> {
    serde_json::from_value(grains.get(GRAIN)?.clone()).ok()
}
