//! The progress of the last upgrade, or of the one that is open, from the record of its run and the
//! bundles of the hosts.

use halite_api::{Time, UpgradeOptions, UpgradeState, UpgradeStatus};
use halite_core::app::App;
use halite_core::refusal::Refusal;
use halite_fleet::jobs::Jobs;
use halite_orchestrate::step;
use halite_orchestrate::upgrade_records::{Records, is_back, pillar};
use halite_states::shipped::UPGRADE;
use halite_store::{Run, RunStatus, StepStatus};
use serde_json::Value;

/// The progress of the last upgrade.
///
/// # Errors
/// The documents cannot be read, or the store failed.
pub(crate) async fn status(app: &App, jobs: &Jobs) -> Result<UpgradeStatus, Refusal> {
    let Some(run) = last(app).await? else {
        return Ok(without_run());
    };
    let steps = app.store.steps(&run.id).await?;
    let pillar = pillar(&run);
    let back = is_back(&pillar);
    let bundle = pillar
        .get("bundle")
        .and_then(Value::as_str)
        .map(str::to_owned);
    let snapshot = jobs.declarations().in_force().await?;
    let declaration = snapshot.declaration();
    let (mut done, mut left) = (Vec::new(), Vec::new());
    for name in declaration.nodes.keys() {
        let own = declaration.bundle_for(name).map(|own| own.as_str());
        match own == bundle.as_deref() {
            true => done.push(name.clone().into()),
            false => left.push(name.clone().into()),
        }
    }
    let state = match (run.status, &run.paused_by) {
        (RunStatus::Running, None) => UpgradeState::Running,
        (RunStatus::Running, Some(_)) => UpgradeState::Pausing,
        (RunStatus::Paused, _) => UpgradeState::Paused,
        (RunStatus::Failed | RunStatus::Cancelled, _) => UpgradeState::Stopped,
        (RunStatus::Succeeded, _) if !left.is_empty() => UpgradeState::Incomplete,
        (RunStatus::Succeeded, _) => UpgradeState::Done,
    };
    let at = match state {
        UpgradeState::Running | UpgradeState::Pausing => StepStatus::Running,
        _ => StepStatus::Failed,
    };
    let at = steps.iter().find(|own| own.status == at).map(step);
    let options = UpgradeOptions::from_pillar(&pillar).map_err(|error| {
        Refusal::internal(format!(
            "cannot read the options of the run {}: {error}",
            run.id
        ))
    });
    let mut options = match state {
        // The place of the pause was reached.
        UpgradeState::Paused => Some(UpgradeOptions {
            pause_after: None,
            ..options?
        }),
        // `ctl upgrade` makes its own plan.
        UpgradeState::Stopped | UpgradeState::Incomplete => {
            options.ok().map(|options| UpgradeOptions {
                plan: None,
                ..options
            })
        }
        _ => None,
    };
    let planned = options.as_mut().and_then(|options| options.plan.as_mut());
    if let Some(plan) = planned
        && let Some(to) = bundle.as_deref().and_then(|bundle| bundle.parse().ok())
    {
        // The hosts that have changed before the pause do not change again.
        let records = Records::read(app).await?;
        let open = records.open(&to);
        plan.begun.retain(|host| {
            let mut open = open.iter();
            open.any(|(_, begun)| begun.contains(host))
        });
    }
    Ok(UpgradeStatus {
        options,
        state,
        bundle,
        back,
        step: at.as_ref().map(|step| step.name.clone()),
        error: at.and_then(|step| step.detail.error),
        operator: Some(run.operator),
        created: Some(Time::from_millis(run.created)),
        changed: Some(Time::from_millis(run.changed)),
        run: Some(run.id),
        paused_by: run.paused_by,
        done,
        left,
    })
}

/// The finding about an upgrade that is paused; `None` if none is.
///
/// # Errors
/// The store failed.
pub(crate) async fn paused(app: &App) -> Result<Option<String>, Refusal> {
    let run = last(app)
        .await?
        .filter(|run| run.status == RunStatus::Paused);
    Ok(run.map(|run| {
        let pillar = pillar(&run);
        let bundle = pillar.get("bundle").and_then(Value::as_str).unwrap_or_default();
        let (what, end) = match is_back(&pillar) {
            true => ("return", ""),
            false => ("upgrade", ", `ctl upgrade back` ends it"),
        };
        format!(
            "the {what} to the bundle {bundle} is paused since {} (by {}): `ctl upgrade resume` continues it{end}",
            halite_core::clock::rfc3339(run.changed),
            run.paused_by.as_deref().unwrap_or_default()
        )
    }))
}

/// Returns whether the last upgrade is a return that has not succeeded.
///
/// # Errors
/// The store failed.
pub(crate) async fn is_open_return(app: &App) -> Result<bool, Refusal> {
    let run = last(app).await?;
    Ok(run.is_some_and(|run| run.status != RunStatus::Succeeded && is_back(&pillar(&run))))
}

/// The upgrade that works: the oldest open one, for which the others wait. Without one, the newest.
async fn last(app: &App) -> Result<Option<Run>, Refusal> {
    let open = app.store.open_runs().await?.into_iter();
    let mut open = open.filter(|run| run.sls == UPGRADE && !run.test);
    if let Some(run) = open.next() {
        return Ok(Some(run));
    }
    let mut newest = app.store.newest_runs_of(UPGRADE, 1).await?;
    Ok(newest.pop())
}

fn without_run() -> UpgradeStatus {
    UpgradeStatus {
        state: UpgradeState::None,
        run: None,
        bundle: None,
        back: false,
        operator: None,
        created: None,
        changed: None,
        step: None,
        error: None,
        paused_by: None,
        done: Vec::new(),
        left: Vec::new(),
        options: None,
    }
}
