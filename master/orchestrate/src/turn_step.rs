//! `halite.upgrade_turn`: before hosts change in an upgrade, the last place at which it can be paused,
//! and the comparison of their states with the confirmed plan.

use halite_core::declared::Direction;
use halite_names::{BundleVersion, BundleVersionError};
use halite_states::args::Args;
use halite_states::engine::Failure;
use halite_states::low::Chunk;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::host_parts::{HostParts, OWN_VERSION, differences, host_parts};
use super::step_options::direction;
use super::step_runner::{StepOutcome, StepRunner, failed};

/// The key of the confirmed plan in the pillar of an upgrade.
pub const PLAN: &str = "plan";
/// The key of a return to the previous bundle in the pillar of a run.
pub const BACK: &str = "back";

impl StepRunner<'_> {
    /// Runs `halite.upgrade_turn`.
    pub(super) async fn upgrade_turn(&self, chunk: &Chunk) -> Result<StepOutcome, Failure> {
        let args = Args::new(chunk);
        let (nodes, bundle) = (args.list("nodes")?, args.required("bundle")?);
        let direction = direction(chunk)?;
        if self.run.test {
            let comment = "a real run compares the plan, and can be paused here";
            return Ok((Map::new(), comment.to_owned()));
        }
        if let Some(by) = self.recorder.cancellation().paused_by() {
            self.recorder.cancellation().end_as_paused();
            return Err(Failure::new(format!(
                "paused by {by}; `ctl upgrade resume` continues here"
            )));
        }
        let Some(plan) = plan(&self.run.pillar_json)? else {
            return Ok((Map::new(), "the run has no plan to compare".to_owned()));
        };
        // The first host's highstate may have replaced the master's program. Digests of different
        // programs need not be equal.
        if let Some(version) = &plan.planned_by
            && version != OWN_VERSION
        {
            let comment = format!("planned by halite-master {version}; not compared");
            return Ok((Map::new(), comment));
        }
        let bundle: BundleVersion = bundle
            .parse()
            .map_err(|error: BundleVersionError| Failure::new(halite_errors::chain(&error)))?;
        let parts = host_parts(&self.jobs, &bundle, direction, &nodes).await;
        let parts = parts.map_err(failed)?;
        let changed = differences(&plan.states, &parts.states);
        let unreadable = parts.failures.iter();
        let unreadable =
            unreadable.map(|(node, why)| format!("{node}: cannot compile its states: {why}"));
        let changed: Vec<String> = unreadable.chain(changed).collect();
        if changed.is_empty() {
            return Ok((Map::new(), "as planned".to_owned()));
        }
        let command = match direction {
            Direction::Forward => format!("ctl upgrade {bundle}"),
            Direction::Back => "ctl upgrade back".to_owned(),
        };
        Err(Failure::new(format!(
            "the plan that was confirmed no longer holds, so nothing was changed here: {}; `{command} --test` shows the new plan, \
             and `{command}` continues with it",
            changed.join("; ")
        )))
    }
}

/// The confirmed plan in the pillar of a run.
#[derive(Debug, Deserialize)]
struct ConfirmedPlan {
    states: HostParts,
    /// The version of the master that computed it; `None` if the client has not named it.
    #[serde(default)]
    planned_by: Option<String>,
}

/// The confirmed plan; `None` if the run was started without one.
fn plan(pillar_json: &str) -> Result<Option<ConfirmedPlan>, Failure> {
    let pillar: Value = serde_json::from_str(pillar_json).unwrap_or_default();
    let Some(plan) = pillar.get(PLAN).filter(|plan| plan.get("states").is_some()) else {
        return Ok(None);
    };
    let plan = serde_json::from_value(plan.clone());
    plan.map(Some)
        .map_err(|error| Failure::new(format!("cannot read the plan of this run: {error}")))
}
