//! The records of upgrades and returns: to which hosts a run has begun to give a bundle, and
//! whether it has finished.

use std::collections::BTreeSet;

use halite_core::app::App;
use halite_core::refusal::Refusal;
use halite_errors::chain;
use halite_names::{BundleVersion, BundleVersionError, MASTER};
use halite_proto::ids::{JobId, MinionId};
use halite_states::args::Args;
use halite_states::low::{Chunk, LowState};
use halite_states::shipped::UPGRADE;
use halite_store::{Millis, Run, RunStatus, Step, StepStatus};
use serde_json::{Map, Value};

/// The key of a return to the previous bundle in the pillar of a run.
pub const BACK: &str = "back";
/// The newest runs that may belong to an upgrade that has not ended: it may have been repeated
/// often.
const RUNS: u32 = 100;
/// The SLS of a step that only pulls images: it changes nothing that a return would change back.
const IMAGES: &str = "halite.images.ahead";
/// The SLS of a step that replaces an API server.
const API_SERVER: &str = "halite.base.control_plane.running";

/// The values over the pillar of a run.
#[must_use]
pub fn pillar(run: &Run) -> Map<String, Value> {
    serde_json::from_str(&run.pillar_json).unwrap_or_default()
}

/// Returns whether the run with these values over the pillar returns hosts to the previous bundle.
#[must_use]
pub fn is_back(pillar: &Map<String, Value>) -> bool {
    pillar.get(BACK) == Some(&Value::Bool(true))
}

/// The changes of hosts since the last upgrade, or return, that has reached all of its hosts.
#[derive(Debug, Default)]
pub struct Records {
    /// The bundle of the newest upgrade; of the newest one that has changed a host, if one has.
    pub newest: Option<BundleVersion>,
    /// The newest first.
    changes: Vec<BundleChange>,
}

/// A step that has changed hosts, or the objects of the cluster (`master`).
#[derive(Debug)]
pub struct BundleChange {
    /// The bundle that it gives.
    pub bundle: BundleVersion,
    /// It belongs to a return.
    pub is_back: bool,
    /// It replaces API servers on control planes.
    pub has_api_server: bool,
    /// The time of its start.
    pub started: Millis,
    /// The minions that it has begun to change.
    begun: BTreeSet<MinionId>,
    /// Those among them that then had the whole bundle.
    done: BTreeSet<MinionId>,
}

impl Records {
    /// Reads the runs, from the newest on.
    ///
    /// # Errors
    /// The store failed, or a run has a bundle whose version cannot be read.
    pub async fn read(app: &App) -> Result<Self, Refusal> {
        let mut records = Self::default();
        let mut has_ended = false;
        // The bundle of an upgrade that has succeeded without a change: each host had it, so the
        // run with the change before it has ended, too.
        let mut completed: Option<BundleVersion> = None;
        for run in app.store.newest_runs_of(UPGRADE, RUNS).await? {
            let values = pillar(&run);
            let is_back = is_back(&values);
            let bundle = values.get("bundle").and_then(Value::as_str);
            let Some(bundle) = bundle.filter(|_| !has_ended || !is_back) else {
                continue;
            };
            let bundle: BundleVersion = bundle
                .parse()
                .map_err(|error: BundleVersionError| Refusal::invalid(chain(&error)))?;
            if !is_back {
                records.newest.get_or_insert_with(|| bundle.clone());
            }
            if has_ended {
                break;
            }
            let changes = of_run(app, &run, &bundle, is_back).await?;
            let is_good = run.status == RunStatus::Succeeded && !changes.has_left_out;
            if changes.found.is_empty() {
                if is_good && !is_back {
                    completed = Some(bundle);
                }
                continue;
            }
            let is_completed = !is_back && completed.as_ref() == Some(&bundle);
            has_ended = is_good || is_completed;
            if !has_ended {
                completed = None;
                records.changes.extend(changes.found);
            }
            if has_ended && records.newest.is_some() {
                break;
            }
        }
        let newest = records.forward().next().map(|change| change.bundle.clone());
        records.newest = newest.or(records.newest);
        Ok(records)
    }

    /// The changes by upgrades, the newest first.
    pub fn forward(&self) -> impl Iterator<Item = &BundleChange> {
        self.changes.iter().filter(|change| !change.is_back)
    }

    /// The bundles that runs have begun to give.
    #[must_use]
    pub fn bundles(&self) -> BTreeSet<BundleVersion> {
        let bundles = self.changes.iter().map(|change| &change.bundle);
        bundles.cloned().collect()
    }

    /// The bundle that the objects of the cluster had before upgrades gave them `from`; `None` if
    /// no record has it.
    #[must_use]
    pub fn objects_before(&self, from: &BundleVersion) -> Option<&BundleVersion> {
        let of_objects = self.changes.iter();
        let of_objects = of_objects.filter(|change| change.done.contains(MASTER));
        let mut bundles = of_objects.map(|change| &change.bundle);
        bundles.find(|bundle| *bundle != from)
    }

    /// The changes to other bundles than `to`, each with the minions that have not got all of `to`
    /// since.
    #[must_use]
    pub fn open(&self, to: &BundleVersion) -> Vec<(&BundleChange, BTreeSet<&MinionId>)> {
        let mut done = BTreeSet::new();
        let mut open = Vec::new();
        for change in &self.changes {
            if change.bundle == *to {
                done.extend(&change.done);
                continue;
            }
            let mut begun: BTreeSet<&MinionId> = change.begun.iter().collect();
            begun.retain(|minion| !done.contains(minion));
            open.push((change, begun));
        }
        open
    }
}

/// The changes of a run.
#[derive(Default)]
struct RunChanges {
    /// The newest first.
    found: Vec<BundleChange>,
    /// A host was not connected.
    has_left_out: bool,
}

async fn of_run(
    app: &App,
    run: &Run,
    bundle: &BundleVersion,
    is_back: bool,
) -> Result<RunChanges, Refusal> {
    let mut all = RunChanges::default();
    let Ok(low) = serde_json::from_str::<LowState>(&run.low_json) else {
        return Ok(all);
    };
    for step in app.store.steps(&run.id).await?.into_iter().rev() {
        let index = usize::try_from(step.index).unwrap_or(usize::MAX);
        let wanted = low.chunks.get(index).and_then(HostChange::from_step);
        let (Some(wanted), Some(started)) = (wanted, step.started) else {
            continue;
        };
        let parts = Parts::read(app, &step, &wanted).await?;
        all.has_left_out |= wanted.is_whole && parts.has_left_out;
        all.found.push(BundleChange {
            bundle: bundle.clone(),
            is_back,
            has_api_server: wanted.has_api_server,
            started,
            begun: parts.begun,
            done: parts.done,
        });
    }
    Ok(all)
}

/// A step that changes minions, as it was compiled.
struct HostChange {
    minions: Vec<MinionId>,
    /// It is the whole highstate.
    is_whole: bool,
    has_api_server: bool,
}

impl HostChange {
    fn from_step(step: &Chunk) -> Option<Self> {
        let args = Args::new(step);
        let text = |name: &str| args.text(name).ok().flatten();
        let target = text("tgt")?;
        text("bundle").filter(|_| step.fun == "state")?;
        let is_whole = args.flag("highstate", false).unwrap_or_default();
        let sls = args.list("sls").unwrap_or_default();
        // Objects that are created ahead of the new API servers stay.
        if sls.iter().any(|sls| sls == IMAGES) || (target == MASTER && !is_whole) {
            return None;
        }
        Some(Self {
            minions: target.split(',').filter_map(|id| id.parse().ok()).collect(),
            is_whole,
            has_api_server: is_whole || sls.iter().any(|sls| sls == API_SERVER),
        })
    }
}

/// The minions of a step that its jobs have reached.
struct Parts {
    begun: BTreeSet<MinionId>,
    done: BTreeSet<MinionId>,
    has_left_out: bool,
}

impl Parts {
    async fn read(app: &App, step: &Step, wanted: &HostChange) -> Result<Self, Refusal> {
        let detail: Value = serde_json::from_str(&step.detail_json).unwrap_or_default();
        let texts = |key: &str| -> Vec<&str> {
            let list = detail.get(key).and_then(Value::as_array);
            list.into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect()
        };
        let left_out = texts("leftOut");
        let jobs: Vec<JobId> = texts("jobs")
            .iter()
            .filter_map(|job_id| job_id.parse().ok())
            .collect();
        let mut parts = Self {
            begun: BTreeSet::new(),
            done: BTreeSet::new(),
            has_left_out: !left_out.is_empty(),
        };
        for job_id in &jobs {
            for part in app.store.parts(job_id).await? {
                if wanted.is_whole && part.retcode == Some(0) {
                    parts.done.insert(part.minion.clone());
                }
                parts.begun.insert(part.minion);
            }
        }
        // The store no longer has old jobs.
        if parts.begun.is_empty() && !jobs.is_empty() {
            parts.begun = wanted.minions.iter().cloned().collect();
            if wanted.is_whole && step.status == StepStatus::Succeeded {
                parts.done = parts.begun.clone();
                parts
                    .done
                    .retain(|minion| !left_out.contains(&minion.as_str()));
            }
        }
        Ok(parts)
    }
}
