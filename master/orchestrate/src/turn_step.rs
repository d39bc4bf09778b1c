//! `halite.upgrade_turn`: before hosts change in an upgrade, the last place at which it can be
//! paused, the comparison of their states with the confirmed plan, and the last look for obstacles.

use halite_api::{ConfirmedPlan, UpgradeTurn};
use halite_core::declared::Direction;
use halite_names::{BundleVersion, BundleVersionError};
use halite_proto::identity::IdentityError;
use halite_proto::ids::MinionId;
use halite_states::args::Args;
use halite_states::engine::Failure;
use halite_states::low::Chunk;
use halite_store::Run;
use serde_json::Map;

use super::host_findings::{Against, before_turn};
use super::host_parts::{HostParts, OWN_VERSION, differences, host_parts};
use super::step_options::direction;
use super::step_runner::{StepOutcome, StepRunner, failed};
use super::upgrade_records::{Records, pillar};

/// The key of the confirmed plan in the pillar of an upgrade.
pub const PLAN: &str = "plan";

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
        let Some(plan) = plan(self.run)? else {
            return Ok((Map::new(), "the run has no plan to compare".to_owned()));
        };
        let nodes = nodes.iter().map(|node| node.parse());
        let nodes: Vec<MinionId> = nodes
            .collect::<Result<_, IdentityError>>()
            .map_err(|error| Failure::new(halite_errors::chain(&error)))?;
        let bundle: BundleVersion = bundle
            .parse()
            .map_err(|error: BundleVersionError| Failure::new(halite_errors::chain(&error)))?;
        let turn = Turn {
            nodes: &nodes,
            bundle: &bundle,
            direction,
        };
        // The first host's highstate may have replaced the master's program. Digests of different
        // programs need not be equal.
        let comment = match plan.planned_by.as_deref() {
            Some(version) if version != OWN_VERSION => {
                format!("planned by halite-master {version}; not compared")
            }
            _ => {
                self.compare_states(&turn, &plan).await?;
                "as planned".to_owned()
            }
        };
        self.refuse_new_errors(&turn, &plan.errors).await?;
        Ok((Map::new(), comment))
    }

    async fn compare_states(&self, turn: &Turn<'_>, plan: &ConfirmedPlan) -> Result<(), Failure> {
        let parts = host_parts(&self.jobs, turn.bundle, turn.direction, turn.nodes).await;
        let parts = parts.map_err(failed)?;
        let none = HostParts::new();
        let changed = differences(plan.states.as_ref().unwrap_or(&none), &parts.states);
        let unreadable = parts.failures.iter();
        let unreadable =
            unreadable.map(|(node, why)| format!("{node}: cannot compile its states: {why}"));
        let changed: Vec<String> = unreadable.chain(changed).collect();
        if changed.is_empty() {
            return Ok(());
        }
        let command = turn.command();
        Err(Failure::new(format!(
            "the plan that was confirmed no longer holds, so nothing was changed here: {}; `{command} --test` shows the new plan, \
             and `{command}` continues with it",
            changed.join("; ")
        )))
    }

    /// Stops before hosts with an obstacle that the confirmed plan did not have.
    async fn refuse_new_errors(&self, turn: &Turn<'_>, known: &[String]) -> Result<(), Failure> {
        let declarations = self.jobs.declarations();
        let snapshot = declarations.load().await.map_err(failed)?;
        let release = declarations.allowed(&snapshot, turn.bundle, turn.direction);
        let release = release.await.map_err(failed)?;
        let records = Records::read(self.jobs.app()).await.map_err(failed)?;
        let drained = turn.nodes.iter().filter(|node| self.drains(node));
        let turns = [UpgradeTurn {
            hosts: turn.nodes.to_vec(),
            drained: drained.cloned().collect(),
            estimate: None,
        }];
        let against = Against {
            jobs: &self.jobs,
            snapshot: &snapshot,
            bundle: turn.bundle,
            given: &records.bundles(),
            kubernetes: &release.kubernetes,
            direction: turn.direction,
            options: &pillar(self.run),
            turns: &turns,
            estimate: None,
        };
        let mut found = before_turn(&against).await.map_err(failed)?;
        found.retain(|finding| !known.contains(&finding.message));
        if found.is_empty() {
            return Ok(());
        }
        let found = found.iter();
        let found = found.map(|finding| format!("{}; {}", finding.message, finding.remedy));
        Err(Failure::new(format!(
            "an obstacle has appeared since the plan was confirmed, so nothing was changed here: {}; then `{}` continues",
            found.collect::<Vec<_>>().join("; "),
            turn.command()
        )))
    }

    /// Returns whether this run drains a node.
    fn drains(&self, node: &str) -> bool {
        let mut drains = self.low.chunks.iter().filter(|chunk| chunk.fun == "drain");
        drains.any(|chunk| Args::new(chunk).text("node").ok().flatten().as_deref() == Some(node))
    }
}

/// The hosts that change next.
struct Turn<'a> {
    nodes: &'a [MinionId],
    bundle: &'a BundleVersion,
    direction: Direction,
}

impl Turn<'_> {
    /// The command that continues the run.
    fn command(&self) -> String {
        match self.direction {
            Direction::Forward => format!("ctl upgrade {}", self.bundle),
            Direction::Back => "ctl upgrade back".to_owned(),
        }
    }
}

/// The confirmed plan; `None` if the run was started without one.
fn plan(run: &Run) -> Result<Option<ConfirmedPlan>, Failure> {
    let pillar = pillar(run);
    let Some(plan) = pillar.get(PLAN).filter(|plan| plan.get("states").is_some()) else {
        return Ok(None);
    };
    let plan = serde_json::from_value(plan.clone());
    plan.map(Some)
        .map_err(|error| Failure::new(format!("cannot read the plan of this run: {error}")))
}
