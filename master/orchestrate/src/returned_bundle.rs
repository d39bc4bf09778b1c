//! The bundle to which hosts return: one that a host or the objects of the cluster have, or that a
//! run has given before.

use halite_core::refusal::Refusal;
use halite_fleet::jobs::Jobs;
use halite_states::shipped::UPGRADE;
use halite_store::Run;
use serde_json::Value;

/// The newest runs among which those that gave the bundle are searched.
const RUNS: u32 = 100;

/// Refuses the start of a return with these values over the pillar, if its bundle is not one that
/// the cluster has or had.
///
/// # Errors
/// It is not; or the declaration cannot be read, or the store failed.
pub(super) async fn refuse_other_bundle(jobs: &Jobs, over: &Value) -> Result<(), Refusal> {
    // Without a bundle, the steps do not compile.
    let Some(bundle) = over.get("bundle").and_then(Value::as_str) else {
        return Ok(());
    };
    let snapshot = jobs.declarations().load().await?;
    let mut in_use = snapshot.declaration().bundles_in_use().into_iter();
    if in_use.any(|own| own.as_str() == bundle) {
        return Ok(());
    }
    // After two upgrades that have not ended, no document may record the bundle between them.
    let gave = |run: &Run| {
        let pillar: Value = serde_json::from_str(&run.pillar_json).unwrap_or_default();
        pillar.get("bundle").and_then(Value::as_str) == Some(bundle)
    };
    let runs = jobs.app().store.newest_runs_of(UPGRADE, RUNS).await?;
    if runs.iter().any(gave) {
        return Ok(());
    }
    Err(Refusal::conflict(format!(
        "cannot return to the bundle {bundle}: no host and no object of the cluster has it, and no run is recorded that has given it; \
         `ctl upgrade back` finds the previous bundle"
    )))
}
