//! `halite.cordon`, `halite.drain`, `halite.uncordon`, `halite.rebalance` and `halite.node_delete`:
//! steps on nodes of the Kubernetes API.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use halite_cluster::kubernetes::drain::{Cordon, Drain, Options, set_cordon};
use halite_cluster::kubernetes::node::reference;
use halite_cluster::kubernetes::rebalance::Rebalance;
use halite_cluster::kubernetes::{Api, ApiError};
use halite_errors::chain;
use halite_etcd::{Pace as _, Wait};
use halite_proto::ids::MinionId;
use halite_states::args::Args;
use halite_states::engine::Failure;
use halite_states::low::Chunk;
use serde_json::{Map, Value, json};

use super::pace::StepPace;
use super::step_options::skips_offline;
use super::step_runner::{StepOutcome, StepRunner, failed, timeout};

/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(500);
/// The pause between two rounds of a drain: each requests the eviction of all remaining pods.
const ROUND: Duration = Duration::from_secs(2);

impl StepRunner<'_> {
    /// Marks a node unschedulable, or schedulable again.
    pub(super) async fn cordon(
        &self,
        chunk: &Chunk,
        index: usize,
        cordon: Cordon,
    ) -> Result<StepOutcome, Failure> {
        let node = Args::new(chunk).required("node")?;
        let (cordon, word) = match cordon {
            Cordon::Off if Args::new(chunk).flag("maintenance", false)? => {
                (Cordon::AfterMaintenance, "uncordoned")
            }
            Cordon::Off => (cordon, "uncordoned"),
            _ => (cordon, "cordoned"),
        };
        if self.run.test {
            return Ok((Map::new(), format!("a real run makes {node} {word}")));
        }
        if let Some(left_out) = self.left_out(chunk, &node, index).await? {
            return Ok(left_out);
        }
        let change = Change::Cordon(cordon);
        if self.patiently(chunk, index, &node, change).await? {
            let changes = Map::from_iter([(node.clone(), json!(word))]);
            return Ok((changes, format!("node/{node} {word}")));
        }
        if cordon == Cordon::AfterMaintenance {
            let comment = format!("node/{node} still accepts pods");
            return Ok((Map::new(), comment));
        }
        Ok((Map::new(), format!("node/{node} already {word}")))
    }

    /// Evicts the pods of a node.
    pub(super) async fn drain(&self, chunk: &Chunk, index: usize) -> Result<StepOutcome, Failure> {
        let node = Args::new(chunk).required("node")?;
        if self.run.test {
            return Ok((Map::new(), format!("a real run drains {node}")));
        }
        if let Some(left_out) = self.left_out(chunk, &node, index).await? {
            return Ok(left_out);
        }
        let api = self.api().await?;
        let maintenance = Args::new(chunk).flag("maintenance", false)?;
        let mut remedy = "scale up the owner or change the budget, and the drain continues; or end the pod yourself (kubectl \
                          delete pod)"
            .to_owned();
        if maintenance && !Args::new(chunk).flag("required", false)? {
            remedy.push_str("; the same command with --no-drain evicts none");
        }
        let pace = StepPace::new(self.recorder, index, ROUND).remedy(remedy);
        let drain = Drain {
            api: api.as_ref(),
            pace: &pace,
            node: &node,
            options: Options {
                delete_emptydir_data: Args::new(chunk).flag("delete_emptydir_data", false)?,
                force: Args::new(chunk).flag("force", false)?,
                grace_period: chunk.args.get("grace_period").and_then(Value::as_u64),
            },
            limit: timeout(chunk)?,
            maintenance,
            cleaned: Args::new(chunk)
                .flag("cleaned", false)?
                .then(|| self.jobs.app().clock.as_ref()),
        };
        let drained = drain.run().await;
        let drained = drained.map_err(|error| Failure::new(chain(&error)))?;
        if !drained.is_registered {
            return Ok((Map::new(), format!("the API has no node {node}")));
        }
        let evicted = drained.evicted.len();
        let mut comment = format!("node/{node} drained, {evicted} pods evicted");
        if let Some(remark) = drained.remark() {
            comment = format!("{comment}; {remark}");
            let note = json!([remark]);
            self.recorder.note(index, "warnings", note).await?;
        }
        let evicted = drained.evicted.into_iter();
        let left = drained.not_waited_for.into_iter();
        // A pod may be in both lists; the later entry counts.
        let evicted = evicted.map(|pod| (pod, json!("evicted")));
        let left = left.map(|pod| (pod, json!("ends with the host")));
        let changes: Map<String, Value> = evicted.chain(left).collect();
        Ok((changes, comment))
    }

    /// Spreads the pods of a Deployment over nodes that were added after them.
    pub(super) async fn rebalance(
        &self,
        chunk: &Chunk,
        index: usize,
    ) -> Result<StepOutcome, Failure> {
        let deployment = Args::new(chunk).required("deployment")?;
        let namespace = Args::new(chunk).required("namespace")?;
        if self.run.test {
            let comment = format!("a real run spreads deployment/{deployment}");
            return Ok((Map::new(), comment));
        }
        let api = self.api().await?;
        let pace = StepPace::new(self.recorder, index, PAUSE).remedy(format!(
            "`kubectl -n {namespace} get pods -o wide` and `kubectl -n {namespace} describe deployment {deployment}` show why"
        ));
        let rebalance = Rebalance {
            api: api.as_ref(),
            pace: &pace,
            namespace: &namespace,
            deployment: &deployment,
            limit: timeout(chunk)?,
        };
        let evicted = rebalance.run().await;
        let evicted = evicted.map_err(|error| Failure::new(chain(&error)))?;
        let comment = format!("deployment/{deployment}: {} pods evicted", evicted.len());
        let evicted = evicted.into_iter().map(|pod| (pod, json!("evicted")));
        Ok((evicted.collect(), comment))
    }

    /// Removes a node from the API. The objects that only the node needs, for example its lease,
    /// are removed with it.
    pub(super) async fn node_delete(
        &self,
        chunk: &Chunk,
        index: usize,
    ) -> Result<StepOutcome, Failure> {
        let node = Args::new(chunk).required("node")?;
        if self.run.test {
            return Ok((Map::new(), format!("a real run deletes the node {node}")));
        }
        if self.patiently(chunk, index, &node, Change::Delete).await? {
            let changes = Map::from_iter([(node.clone(), json!("deleted"))]);
            return Ok((changes, format!("node/{node} deleted")));
        }
        Ok((Map::new(), format!("the API has no node {node}")))
    }

    /// The outcome of a step that leaves out a host because its minion is not connected; `None` if
    /// the step continues.
    pub(super) async fn left_out(
        &self,
        chunk: &Chunk,
        node: &str,
        index: usize,
    ) -> Result<Option<StepOutcome>, Failure> {
        if !skips_offline(chunk)? || self.is_reachable(node).await? {
            return Ok(None);
        }
        self.recorder.note(index, "leftOut", json!([node])).await?;
        let comment = format!("{node} is not connected, so it is left out");
        Ok(Some((Map::new(), comment)))
    }

    /// The hosts that the drains before a step have left out. Their pods still run, so they are
    /// left out of the step, too, even if they are connected again.
    pub(super) fn undrained(&self, index: usize) -> Vec<MinionId> {
        let steps = self.low.chunks.iter().enumerate().take(index);
        let drains = steps.filter(|(_, chunk)| chunk.state == "halite" && chunk.fun == "drain");
        let noted = drains.filter_map(|(drain, _)| self.recorder.detail(drain).remove("leftOut"));
        let hosts = noted.filter_map(|hosts| serde_json::from_value::<Vec<MinionId>>(hosts).ok());
        hosts.flatten().collect()
    }

    /// The Kubernetes API of the declared cluster.
    pub(super) async fn api(&self) -> Result<Arc<dyn Api>, Failure> {
        let snapshot = self.jobs.declarations().load().await.map_err(failed)?;
        self.jobs.clusters().api(&snapshot).await.map_err(failed)
    }

    /// Retries a change while the API does not answer, until the step's limit.
    async fn patiently(
        &self,
        chunk: &Chunk,
        index: usize,
        node: &str,
        change: Change,
    ) -> Result<bool, Failure> {
        let (api, limit) = (self.api().await?, timeout(chunk)?);
        let pace = StepPace::new(self.recorder, index, PAUSE)
            .remedy("`ctl health` names the API servers and members of etcd that do not serve");
        let wait = |because: String| Wait {
            until: "the API answers".to_owned(),
            because,
            since: pace.now(),
            limit,
        };
        let cannot = |reason: &str| {
            let verb = chunk.fun.replace("node_delete", "delete the node");
            Failure::new(format!("cannot {verb} {node}: {reason}"))
        };
        loop {
            let mut attempt = pin!(change.make(api.as_ref(), node));
            let answer = loop {
                tokio::select! {
                    answer = &mut attempt => break answer,
                    () = pace.pause() => {}
                }
                // A connection to a dead address never answers.
                let silent = "the API has not answered yet";
                if pace.now() >= limit {
                    return Err(cannot(silent));
                }
                pace.report(&wait(silent.to_owned())).await;
            };
            let error = match answer {
                Ok(changed) => return Ok(changed),
                Err(error) => error,
            };
            if !error.is_transient() || pace.now() >= limit {
                return Err(cannot(&chain(&error)));
            }
            pace.report(&wait(chain(&error))).await;
            pace.pause().await;
        }
    }
}

/// A change of a node, safe to repeat.
#[derive(Clone, Copy)]
enum Change {
    /// Marks it unschedulable, or schedulable again.
    Cordon(Cordon),
    /// Removes it.
    Delete,
}

impl Change {
    /// Makes the change; returns whether anything differed.
    async fn make(self, api: &dyn Api, node: &str) -> Result<bool, ApiError> {
        match self {
            Self::Cordon(cordon) => set_cordon(api, node, cordon).await,
            Self::Delete => {
                let object = reference(node);
                Ok(api.get(&object).await?.is_some() && api.delete(&object).await?)
            }
        }
    }
}
