//! `ctl upgrade`: the plan of an upgrade before any change, and the progress of the last one.

mod against;
mod etcd;
mod findings;
mod pods;
mod space;
#[cfg(test)]
mod tests;
mod turns;

use halite_api::{BundleRelease, UpgradePlan};
use halite_core::app::App;
use halite_core::declared::Snapshot;
use halite_core::refusal::Refusal;
use halite_errors::chain;
use halite_fleet::jobs::Jobs;
use halite_names::{BundleVersion, BundleVersionError, NodeName};
use halite_pillar::bundle_facts::SiteBundle;
use halite_pillar::release::order;
use halite_proto::ids::JobId;
use halite_proto::pki::sha256_hex;
use halite_states::shipped::UPGRADE;
use serde_json::{Map, Value, json};

use self::against::Against;
use crate::host_parts::{OWN_VERSION, host_parts};
use crate::orchestrate::usual::usual_steps;
use crate::orchestrate::{PLAN, steps_of};

/// The plan of an upgrade to the bundle that `wanted` names (its version, or that of its
/// Kubernetes), with the run's values over the pillar in `options`.
///
/// # Errors
/// No bundle of the site has this version, or several have this Kubernetes; or the cluster cannot
/// be upgraded to it, with the reasons; or the options are not a JSON mapping.
pub(super) async fn document(
    app: &App,
    jobs: &Jobs,
    snapshot: &Snapshot,
    wanted: &str,
    options: &str,
) -> Result<UpgradePlan, Refusal> {
    let in_use = snapshot.bundle()?;
    let bundle = find(&in_use.on_site(), wanted)?;
    let release = jobs.declarations().allowed(snapshot, &bundle).await?;
    let declaration = snapshot.declaration();
    let lacks = |name: &&NodeName| declaration.bundle_for(name) != Some(&bundle);
    let hosts: Vec<String> = declaration
        .nodes
        .keys()
        .filter(lacks)
        .map(ToString::to_string)
        .collect();
    let over = values(options, &bundle)?;
    let all: Vec<String> = declaration.nodes.keys().map(ToString::to_string).collect();
    let parts = host_parts(jobs, &bundle, &all).await?;
    let usual = usual_steps(app.store.as_ref(), UPGRADE).await?;
    let compiled = steps_of(jobs, UPGRADE, &Value::Object(over.clone())).await;
    let timed = compiled
        .as_ref()
        .ok()
        .map(|low| turns::of(&low.chunks, &usual));
    let timed = timed.unwrap_or_default();
    let against = Against {
        app,
        jobs,
        snapshot,
        bundle: &bundle,
        kubernetes: &release.kubernetes,
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
        bundle: release.bundle.to_string(),
        kubernetes: release.kubernetes.clone(),
        before: BundleRelease {
            bundle: in_use.version.to_string(),
            kubernetes: in_use.kubernetes.clone(),
        },
        hosts,
        id: sha256_hex(identity.to_string().as_bytes()),
        planned_by: OWN_VERSION.to_owned(),
        turns: timed.turns,
        estimate: timed.estimate,
        steps: timed.steps,
        unknown_steps: timed.unknown_steps,
        findings,
        run: open_run(app, &bundle).await?,
        states: parts.states,
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

/// The open run of an upgrade to this bundle.
async fn open_run(app: &App, bundle: &BundleVersion) -> Result<Option<JobId>, Refusal> {
    let open = app.store.open_runs().await?.into_iter();
    let mut own = open.filter(|run| {
        let pillar: Value = serde_json::from_str(&run.pillar_json).unwrap_or_default();
        run.sls == UPGRADE && !run.test && pillar["bundle"] == bundle.as_str()
    });
    Ok(own.next().map(|run| run.id))
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
        [one] => {
            let version = one.version.parse();
            version.map_err(|error: BundleVersionError| Refusal::invalid(chain(&error)))
        }
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
