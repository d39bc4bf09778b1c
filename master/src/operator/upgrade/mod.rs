//! `ctl upgrade`: the plan of an upgrade before any change, and the progress of the last one.

mod back;
mod certificates;
mod etcd;
mod findings;
mod pods;
mod shown;
mod space;
#[cfg(test)]
mod tests;
mod turns;

use std::collections::BTreeSet;

use halite_api::{BundleRelease, UpgradeOptions, UpgradePlan};
use halite_core::app::App;
use halite_core::declared::{Direction, Snapshot};
use halite_core::refusal::Refusal;
use halite_fleet::jobs::Jobs;
use halite_names::{BundleVersion, NodeName};
use halite_orchestrate::host_findings::Against;
use halite_orchestrate::host_parts::{OWN_VERSION, host_parts};
use halite_orchestrate::upgrade_records::Records;
use halite_orchestrate::usual::usual_steps;
use halite_orchestrate::{BACK, PLAN, open_upgrade, refuse_other_direction, steps_of};
use halite_pillar::bundle_facts::SiteBundle;
use halite_pillar::release::order;
use halite_proto::ids::MinionId;
use halite_proto::pki::sha256_hex;
use halite_states::shipped::UPGRADE;
use serde_json::{Map, Value, json};

pub(super) use self::shown::shown_document;

/// The plan of an upgrade to the bundle that `wanted` names (its version, or that of its
/// Kubernetes), with the run's values over the pillar in `options`.
///
/// # Errors
/// No bundle of the site has this version, or several have this Kubernetes; or the cluster cannot
/// be upgraded to it, with the reasons; or the options are not a JSON mapping, or are other ones
/// than those of an open run to the same bundle.
pub(super) async fn document(
    app: &App,
    jobs: &Jobs,
    snapshot: &Snapshot,
    wanted: &str,
    options: &str,
) -> Result<UpgradePlan, Refusal> {
    let in_use = snapshot.bundle()?;
    let bundle = find(&in_use.on_site(), wanted)?;
    refuse_other_direction(&app.store.open_runs().await?, false)?;
    let records = Records::read(app).await?;
    let begun = back::begun(
        snapshot.declaration(),
        &records,
        &bundle,
        Direction::Forward,
    );
    let before = BundleRelease {
        bundle: in_use.version.clone(),
        kubernetes: in_use.kubernetes.clone(),
    };
    let change = Change {
        bundle: &bundle,
        before,
        direction: Direction::Forward,
        begun,
        given: records.bundles(),
    };
    planned(app, jobs, snapshot, change, values(options, &bundle)?).await
}

/// The plan of the return from an upgrade that has not ended, with the run's values over the pillar
/// in `options`.
///
/// # Errors
/// No upgrade leads back, with the reason; or the options are not a JSON mapping, or are other ones
/// than those of an open return.
pub(super) async fn back_document(
    app: &App,
    jobs: &Jobs,
    snapshot: &Snapshot,
    options: &str,
) -> Result<UpgradePlan, Refusal> {
    let way = back::find(app, jobs, snapshot).await?;
    let mut over = values(options, &way.to)?;
    over.insert(BACK.to_owned(), json!(true));
    let change = Change {
        bundle: &way.to,
        before: way.from,
        direction: Direction::Back,
        begun: way.begun,
        given: way.given,
    };
    planned(app, jobs, snapshot, change, over).await
}

/// A change of the cluster's bundle.
struct Change<'a> {
    bundle: &'a BundleVersion,
    /// The bundle that hosts have now.
    before: BundleRelease,
    direction: Direction,
    /// The hosts that must change although they record the bundle.
    begun: BTreeSet<MinionId>,
    /// The bundles that runs have begun to give since the last one that ended.
    given: BTreeSet<BundleVersion>,
}

/// The plan of a change with these values over the pillar.
async fn planned(
    app: &App,
    jobs: &Jobs,
    snapshot: &Snapshot,
    change: Change<'_>,
    over: Map<String, Value>,
) -> Result<UpgradePlan, Refusal> {
    let Change {
        bundle,
        before,
        direction,
        begun,
        given,
    } = change;
    let options = UpgradeOptions::from_pillar(&over).map_err(|error| {
        Refusal::invalid(format!("cannot read the options of an upgrade: {error}"))
    })?;
    let open = app.store.open_runs().await?;
    let run = open_upgrade(&open, &Value::Object(over.clone()).to_string())?;
    let allowed = jobs.declarations().allowed(snapshot, bundle, direction);
    let release = allowed.await?;
    let declaration = snapshot.declaration();
    let changes = |name: &&NodeName| {
        declaration.bundle_for(name) != Some(bundle) || begun.contains(name.as_str())
    };
    let names = declaration.nodes.keys();
    let hosts = names.clone().filter(changes).cloned();
    let hosts: Vec<MinionId> = hosts.map(MinionId::from).collect();
    let begun: Vec<MinionId> = begun.into_iter().collect();
    let all: Vec<MinionId> = names.cloned().map(MinionId::from).collect();
    let parts = host_parts(jobs, bundle, direction, &all).await?;
    let usual = usual_steps(app.store.as_ref(), UPGRADE).await?;
    let mut pillar = over.clone();
    if !begun.is_empty() {
        pillar.insert(PLAN.to_owned(), json!({"begun": begun}));
    }
    let compiled = steps_of(jobs, UPGRADE, &Value::Object(pillar)).await;
    let timed = compiled
        .as_ref()
        .ok()
        .map(|low| turns::of(&low.chunks, &usual));
    let timed = timed.unwrap_or_default();
    let against = Against {
        jobs,
        snapshot,
        bundle,
        given: &given,
        kubernetes: &release.kubernetes,
        direction,
        options: &over,
        turns: &timed.turns,
        estimate: timed.estimate,
    };
    let findings = if hosts.is_empty() {
        Vec::new()
    } else {
        findings::of(&against, &parts.failures, compiled.as_ref().err()).await?
    };
    let identity = json!([bundle.as_str(), over, parts.states]);
    Ok(UpgradePlan {
        bundle: release.bundle.clone(),
        kubernetes: release.kubernetes.clone(),
        before,
        hosts,
        back: direction == Direction::Back,
        begun,
        id: sha256_hex(identity.to_string().as_bytes()),
        planned_by: OWN_VERSION.to_owned(),
        turns: timed.turns,
        estimate: timed.estimate,
        steps: timed.steps,
        unknown_steps: timed.unknown_steps,
        findings,
        run,
        states: parts.states,
        options,
        changed: Vec::new(),
    })
}

/// The values over the pillar, with the bundle and without a plan.
fn values(options: &str, bundle: &BundleVersion) -> Result<Map<String, Value>, Refusal> {
    let parsed = match options.trim() {
        "" => Ok(json!({})),
        text => serde_json::from_str(text),
    };
    let Ok(Value::Object(mut over)) = parsed else {
        return Err(Refusal::invalid(
            "the options of an upgrade must be a JSON mapping",
        ));
    };
    over.insert("bundle".to_owned(), json!(bundle));
    over.remove(PLAN);
    Ok(over)
}

fn find(site: &[SiteBundle], wanted: &str) -> Result<BundleVersion, Refusal> {
    let by_version = site.iter().filter(|held| held.version == wanted);
    let by_kubernetes = site
        .iter()
        .filter(|held| wanted.contains('.') && order(&held.kubernetes, wanted).is_eq());
    let mut found: Vec<&SiteBundle> = by_version.collect();
    if found.is_empty() {
        found = by_kubernetes.collect();
    }
    let named = |all: &[&SiteBundle]| {
        let one = |held: &&SiteBundle| format!("{} ({})", held.version, held.kubernetes);
        all.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    match found.as_slice() {
        [one] => Ok(one.version.clone()),
        [] => Err(Refusal::not_found(format!(
            "this site has no bundle {wanted}, and none with that Kubernetes; it has {}: `ctl bundle add` adds another one",
            named(&site.iter().collect::<Vec<_>>())
        ))),
        several => Err(Refusal::invalid(format!(
            "several bundles have Kubernetes {wanted}: {}; name one by its own version",
            named(several)
        ))),
    }
}
