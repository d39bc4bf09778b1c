//! Plans that `ctl upgrade VERSION --test` has shown. The record of each such run has its options
//! and what was planned.

use halite_api::{ConfirmedPlan, UpgradeOptions, UpgradePlan};
use halite_core::app::App;
use halite_core::declared::Snapshot;
use halite_core::refusal::Refusal;
use halite_fleet::jobs::Jobs;
use halite_orchestrate::PLAN;
use halite_orchestrate::host_parts::{OWN_VERSION, differences};
use halite_orchestrate::upgrade_records::{is_back, pillar};
use halite_states::shipped::UPGRADE;
use serde_json::{Map, Value};

use super::document;

/// The newest runs, also in test mode, among which a plan is searched.
const RUNS: u32 = 100;

/// The plan that was shown with this id, or the start of one, computed again with the same options.
/// If it is another one now, `changed` has the differences.
///
/// # Errors
/// No such plan is known, or it is that of a return; or the cluster cannot be upgraded, as in
/// [`document`].
pub(in crate::operator) async fn shown_document(
    app: &App,
    jobs: &Jobs,
    snapshot: &Snapshot,
    id: &str,
) -> Result<UpgradePlan, Refusal> {
    let Some((mut options, shown)) = find(app, id).await? else {
        return Err(Refusal::not_found(format!(
            "cannot apply the plan {id}: no recorded run has shown it; `ctl upgrade VERSION --test` shows and records a plan"
        )));
    };
    if is_back(&options) {
        return Err(Refusal::invalid(format!(
            "cannot apply the plan {id}: it is that of a return; `ctl upgrade back` carries it out"
        )));
    }
    options.retain(|key, _| key != PLAN);
    let bundle = options.get("bundle").and_then(Value::as_str);
    let bundle = bundle.unwrap_or_default().to_owned();
    let options = Value::Object(options).to_string();
    let mut plan = document(app, jobs, snapshot, &bundle, &options).await?;
    if plan.id != shown.id {
        plan.changed = changed(&shown, &plan);
    }
    Ok(plan)
}

/// The newest run that has shown a plan: its values over the pillar, and the plan in them.
async fn find(app: &App, id: &str) -> Result<Option<(Map<String, Value>, ConfirmedPlan)>, Refusal> {
    if id.is_empty() {
        return Ok(None);
    }
    let runs = app.store.newest_of(UPGRADE, RUNS).await?.into_iter();
    let mut plans = runs.filter_map(|run| {
        let values = pillar(&run);
        let plan = UpgradeOptions::from_pillar(&values).ok()?.plan?;
        plan.id.starts_with(id).then_some((values, plan))
    });
    Ok(plans.next())
}

/// The differences between a plan that was shown and the present one; at least one.
fn changed(shown: &ConfirmedPlan, now: &UpgradePlan) -> Vec<String> {
    let none = Default::default();
    let states = shown.states.as_ref().unwrap_or(&none);
    let mut changed = Vec::new();
    if let Some(version) = shown
        .planned_by
        .as_deref()
        .filter(|own| *own != OWN_VERSION)
    {
        changed.push(format!(
            "halite-master {version} computed it, and this one is {OWN_VERSION}"
        ));
    }
    let added = now.states.keys().filter(|host| !states.contains_key(*host));
    changed.extend(added.map(|host| format!("{host}: not part of it")));
    let removed = states.keys().filter(|host| !now.states.contains_key(*host));
    changed.extend(removed.map(|host| format!("{host}: no longer part of it")));
    changed.extend(differences(states, &now.states));
    if changed.is_empty() {
        changed.push("its content".to_owned());
    }
    changed
}
