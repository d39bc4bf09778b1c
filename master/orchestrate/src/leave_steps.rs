//! `halite.node_may_leave`, `halite.node_forget`, `halite.key_reject` and `halite.key_delete`: the
//! master's part of a host's departure.

use std::time::Duration;

use halite_cluster::leaving::{Confirmed, Leaving};
use halite_errors::chain;
use halite_etcd::{Pace as _, Wait};
use halite_fleet::keys::{KeyOrder, change};
use halite_proto::identity::IdentityError;
use halite_proto::ids::MinionId;
use halite_standby::take_over;
use halite_states::args::Args;
use halite_states::engine::Failure;
use halite_states::low::Chunk;
use serde_json::{Map, json};

use super::pace::StepPace;
use super::roles_step::roles;
use super::step_runner::{StepOutcome, StepRunner, failed, timeout};

/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(250);
/// The time that the step gives a minion to reconnect after a restart of the master.
const RECONNECT: Duration = Duration::from_secs(10);

impl StepRunner<'_> {
    /// Refuses the departure of a host that the cluster cannot lose, or of the etcd member and
    /// control plane of a host that stays.
    pub(super) async fn node_may_leave(
        &self,
        chunk: &Chunk,
        index: usize,
    ) -> Result<StepOutcome, Failure> {
        let node = Args::new(chunk).required("node")?;
        let confirmed = Confirmed {
            dead: Args::new(chunk).flag("dead", false)?,
            force: Args::new(chunk).flag("force", false)?,
            cluster: Args::new(chunk).text("cluster")?.unwrap_or_default(),
        };
        // In the form in which it will be written: an invalid document is refused while everything
        // still exists.
        let kept = match chunk.args.contains_key("roles") {
            true => Some(roles(chunk)?),
            false => None,
        };
        let warnings = match &kept {
            Some(kept) => {
                let allowed = self.jobs.declarations().allow_roles(&node, kept).await;
                allowed.map_err(failed)?
            }
            None => Vec::new(),
        };
        let snapshot = self.jobs.declarations().load().await.map_err(failed)?;
        if confirmed.dead && !self.run.test {
            self.wait_disconnected(chunk, &node, index).await?;
        } else if snapshot.declaration().nodes.contains_key(node.as_str()) {
            let connections = &self.jobs.app().connections;
            connections.wait_connected(&minion(&node)?, RECONNECT).await;
        }
        let (app, clusters) = (self.jobs.app(), self.jobs.clusters());
        let leaving = Leaving::gather(app, clusters, &snapshot, &node).await;
        let mut leaving = leaving.map_err(failed)?;
        let (verb, may) = match &kept {
            Some(kept) => {
                leaving = leaving.staying(kept);
                ("change the roles of", "may change its roles")
            }
            None => ("remove", "may leave"),
        };
        let reasons = leaving.refusals(&confirmed);
        if !reasons.is_empty() {
            return Err(Failure::new(format!(
                "cannot {verb} {node}: {}",
                reasons.join("\n")
            )));
        }
        if !warnings.is_empty() {
            let note = json!(warnings);
            self.recorder.note(index, "warnings", note).await?;
        }
        let losses = leaving.losses(confirmed.dead).join("; ");
        let colon = if losses.is_empty() { "" } else { ": " };
        Ok((Map::new(), format!("{node} {may}{colon}{losses}")))
    }

    /// Waits until a minion is disconnected. A host whose power was cut counts as connected until
    /// it has not answered for a while.
    async fn wait_disconnected(
        &self,
        chunk: &Chunk,
        node: &str,
        index: usize,
    ) -> Result<(), Failure> {
        let (id, limit) = (minion(node)?, timeout(chunk)?);
        let pace = StepPace::new(self.recorder, index, PAUSE)
            .remedy("it continues by itself when the master has noticed that the host is silent");
        while self.jobs.app().connections.is_connected(&id) && pace.now() < limit {
            let wait = Wait {
                until: format!("{node} is disconnected"),
                because: "it answered a moment ago".to_owned(),
                since: pace.now(),
                limit,
            };
            pace.report(&wait).await;
            pace.pause().await;
        }
        Ok(())
    }

    /// Removes the document of a node, or with `keep` only Halite's records in it.
    pub(super) async fn node_forget(&self, chunk: &Chunk) -> Result<StepOutcome, Failure> {
        let node = Args::new(chunk).required("node")?;
        if self.run.test {
            return Ok((
                Map::new(),
                format!("a real run removes the records of {node}"),
            ));
        }
        let keep = Args::new(chunk).flag("keep", false)?;
        let forgotten = self.jobs.declarations().forget_node(&node, keep).await;
        if forgotten.map_err(failed)? {
            let changes = Map::from_iter([(node.clone(), json!("forgotten"))]);
            return Ok((changes, format!("the records of {node} are removed")));
        }
        Ok((Map::new(), format!("no records of {node} are left")))
    }

    /// Rejects the key of a host, which cuts it off, or deletes it.
    pub(super) async fn key(&self, chunk: &Chunk, action: &str) -> Result<StepOutcome, Failure> {
        let name = Args::new(chunk).required("node")?;
        if self.run.test {
            return Ok((
                Map::new(),
                format!("a real run does it: {action} the key of {name}"),
            ));
        }
        let app = self.jobs.app();
        let id = minion(&name)?;
        // Also the tokens of a host that never came: its name must not enrol later.
        let tokens = app.store.take_tokens(&id, None).await;
        let tokens = tokens.map_err(|error| Failure::new(chain(&error)))?;
        let key = app.store.key(&id).await;
        if key.map_err(|error| Failure::new(chain(&error)))?.is_none() {
            let mut changes = Map::new();
            if !tokens.is_empty() {
                changes.insert(name.clone(), json!({"tokens": tokens}));
            }
            return Ok((changes, format!("{name} has no key")));
        }
        let order = KeyOrder {
            id: name.clone(),
            action: action.to_owned(),
            cluster: app.config.cluster.clone(),
            force: true,
            ..KeyOrder::default()
        };
        change(app, &order).await.map_err(failed)?;
        if action == "delete" {
            // The last step of a host that has left: its retirement is done.
            let forgotten = take_over::forget(&app.config, &name);
            forgotten.map_err(|error| Failure::new(chain(&error)))?;
        }
        let changes = Map::from_iter([(name.clone(), json!(action))]);
        Ok((changes, format!("the key of {name}: {action}")))
    }
}

fn minion(name: &str) -> Result<MinionId, Failure> {
    name.parse()
        .map_err(|error: IdentityError| Failure::new(chain(&error)))
}
