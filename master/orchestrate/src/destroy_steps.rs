//! `halite.destroy_allowed` and `halite.hosts_leave`: the end of a whole cluster, host by host.

use halite_errors::chain;
use halite_fleet::jobs::failure::succeeded;
use halite_fleet::jobs::target::accepted;
use halite_fleet::keys::{KeyOrder, change};
use halite_proto::identity::IdentityError;
use halite_proto::ids::MinionId;
use halite_states::args::Args;
use halite_states::engine::Failure;
use halite_states::low::Chunk;
use halite_store::RowState;
use serde_json::{Map, json};

use super::step_options::skips_offline;
use super::step_runner::{StepOutcome, StepRunner, failed};

/// The facts about the hosts of a cluster that is about to end.
#[derive(Debug, Default)]
struct Ending {
    /// The cluster's name.
    cluster: String,
    /// The host with the master.
    master: Option<String>,
    /// Declared hosts that have a key and are connected.
    connected: Vec<String>,
    /// Declared hosts that have a key and are not connected.
    offline: Vec<String>,
    /// Minions that have a key and are not declared.
    undeclared: Vec<String>,
}

impl Ending {
    /// All reasons why the cluster may not end yet. `confirmed` is the cluster's name as the
    /// operator gave it; `skips` leaves out disconnected hosts.
    fn refusals(&self, confirmed: Option<&str>, skips: bool) -> Vec<String> {
        let cluster = &self.cluster;
        let mut reasons = Vec::new();
        match confirmed {
            Some(name) if name == cluster => {}
            Some(name) => reasons.push(format!(
                "--cluster {name} is not this cluster, which is {cluster}"
            )),
            None => reasons.push(format!(
                "it takes --force --cluster {cluster}: everything that the cluster stores is lost"
            )),
        }
        match &self.master {
            Some(master) if self.connected.contains(master) => {}
            Some(master) => reasons.push(format!(
                "the minion of {master}, which has the master, is not connected: systemctl start halite-minion there"
            )),
            None => reasons.push("no declared host has the master".to_owned()),
        }
        let others = self.offline.iter();
        let others = others.filter(|host| self.master.as_ref() != Some(host));
        let others: Vec<&str> = others.map(String::as_str).collect();
        if !others.is_empty() && !skips {
            reasons.push(format!(
                "not connected: {}; start them, or leave what is on them with --skip-offline",
                others.join(", ")
            ));
        }
        reasons
    }

    /// The omissions, as text for an operator.
    fn warnings(&self) -> Vec<String> {
        let offline = self.offline.iter().map(|host| {
            format!(
                "{host} is not connected: what Halite put there stays, until its disk is erased"
            )
        });
        let undeclared = self.undeclared.iter().map(|host| {
            format!("{host} has a minion and is not declared: what Halite put there stays")
        });
        offline.chain(undeclared).collect()
    }
}

impl StepRunner<'_> {
    /// Refuses the end of the cluster unless it was confirmed and each host can be asked.
    pub(super) async fn destroy_allowed(
        &self,
        chunk: &Chunk,
        index: usize,
    ) -> Result<StepOutcome, Failure> {
        let skips = skips_offline(chunk)?;
        let ending = self.ending().await?;
        let cluster = Args::new(chunk).text("cluster")?.unwrap_or_default();
        let confirmed = Args::new(chunk).flag("force", false)?.then_some(cluster);
        let reasons = ending.refusals(confirmed.as_deref(), skips);
        if !reasons.is_empty() {
            return Err(Failure::new(format!(
                "cannot destroy the cluster: {}",
                reasons.join("\n")
            )));
        }
        let warnings = ending.warnings();
        if !warnings.is_empty() {
            self.recorder
                .note(index, "warnings", json!(warnings))
                .await?;
        }
        let hosts = ending.connected.join(", ");
        Ok((Map::new(), format!("{} may end: {hosts}", ending.cluster)))
    }

    async fn ending(&self) -> Result<Ending, Failure> {
        let snapshot = self.jobs.declarations().load().await.map_err(failed)?;
        let declaration = snapshot.declaration();
        let with_key = accepted(self.jobs.app()).await.map_err(failed)?;
        let mut ending = Ending {
            cluster: snapshot.cluster().to_owned(),
            master: (declaration.master_node()).map(|node| node.metadata.name.to_string()),
            ..Ending::default()
        };
        let is_declared = |id: &MinionId| declaration.nodes.contains_key(id.as_str());
        let (declared, undeclared) = with_key.into_iter().partition(is_declared);
        let (connected, offline) = self.reachable(declared).await;
        let names = |ids: Vec<MinionId>| ids.into_iter().map(String::from).collect();
        ending.undeclared = names(undeclared);
        ending.connected = names(connected);
        ending.offline = names(offline);
        Ok(ending)
    }

    /// Applies states of departure on the hosts that still have a key. With `gone` the hosts on
    /// which they succeeded lose their keys.
    pub(super) async fn hosts_leave(
        &self,
        chunk: &Chunk,
        index: usize,
    ) -> Result<StepOutcome, Failure> {
        let with_key = accepted(self.jobs.app()).await.map_err(failed)?;
        let named = Args::new(chunk).list("nodes")?;
        let mut left = Vec::new();
        for name in &named {
            let id = name.parse();
            let id: MinionId = id.map_err(|error: IdentityError| Failure::new(chain(&error)))?;
            if with_key.contains(&id) {
                left.push(id);
            }
        }
        if left.is_empty() {
            let names = named.join(", ");
            return Ok((Map::new(), format!("{names}: have already left")));
        }
        let mut on_them = chunk.clone();
        let target = left.iter().map(MinionId::as_str).collect::<Vec<_>>();
        on_them
            .args
            .insert("tgt".to_owned(), json!(target.join(",")));
        on_them.args.insert("tgt_type".to_owned(), json!("list"));
        let outcome = self.state(&on_them, index).await;
        if !Args::new(chunk).flag("gone", false)? || self.run.test {
            return outcome;
        }
        // Also for a job in which another host failed: hosts that have left cannot be asked again.
        let mut remaining = left;
        for row in self.rows(index).await? {
            let connections = &self.jobs.app().connections;
            // It had started, and its end was not received: it has removed itself. A cancelled run
            // did not wait for its end.
            let has_begun = row.state == RowState::Lost
                && row.started.is_some()
                && self.recorder.cancellation().by().is_none();
            if succeeded(&row) || has_begun && !connections.is_connected(&row.minion) {
                self.delete_key(&row.minion).await?;
                remaining.retain(|minion| *minion != row.minion);
            }
        }
        if remaining.is_empty() && outcome.is_err() {
            return Ok((Map::new(), format!("{} left", named.join(", "))));
        }
        outcome
    }

    async fn delete_key(&self, id: &MinionId) -> Result<(), Failure> {
        let app = self.jobs.app();
        let key = app.store.key(id).await;
        if key.map_err(|error| Failure::new(chain(&error)))?.is_none() {
            return Ok(());
        }
        let order = KeyOrder {
            id: id.to_string(),
            action: "delete".to_owned(),
            cluster: app.config.cluster.clone(),
            force: true,
            ..KeyOrder::default()
        };
        change(app, &order).await.map(drop).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending() -> Ending {
        Ending {
            cluster: "prod".to_owned(),
            master: Some("cp-1".to_owned()),
            connected: vec!["cp-1".to_owned(), "worker-1".to_owned()],
            ..Ending::default()
        }
    }

    #[test]
    fn the_cluster_has_to_be_named() {
        assert!(ending().refusals(Some("prod"), false).is_empty());
        let other = ending().refusals(Some("test"), false);
        assert_eq!(other, ["--cluster test is not this cluster, which is prod"]);
        let none = ending().refusals(None, false);
        assert!(none[0].contains("--force --cluster prod"), "{none:?}");
    }

    #[test]
    fn hosts_that_are_not_connected_are_named_and_can_be_left_out() {
        let ending = Ending {
            offline: vec!["worker-2".to_owned(), "worker-3".to_owned()],
            undeclared: vec!["stray".to_owned()],
            ..ending()
        };
        let reasons = ending.refusals(Some("prod"), false);
        assert_eq!(reasons.len(), 1, "{reasons:?}");
        assert!(
            reasons[0].contains("worker-2, worker-3") && reasons[0].contains("--skip-offline"),
            "{reasons:?}"
        );
        assert!(ending.refusals(Some("prod"), true).is_empty());
        assert_eq!(ending.warnings().len(), 3);
    }

    #[test]
    fn the_masters_host_is_not_left_out() {
        let ending = Ending {
            connected: vec!["worker-1".to_owned()],
            offline: vec!["cp-1".to_owned()],
            ..ending()
        };
        for skips in [true, false] {
            let reasons = ending.refusals(Some("prod"), skips);
            assert_eq!(reasons.len(), 1, "{reasons:?}");
            assert!(
                reasons[0].contains("cp-1, which has the master"),
                "{reasons:?}"
            );
        }
    }
}
