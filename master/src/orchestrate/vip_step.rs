//! `halite.vip_moved_off`: the virtual address leaves a host on purpose, before its API server
//! does.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use futures_util::future::join_all;
use halite_etcd::Pace as _;
use halite_host_reports::health::{FUNCTION, HostHealth};
use halite_names::NodeName;
use halite_pillar::role::Role;
use halite_states::engine::Failure;
use halite_states::low::Chunk;
use halite_states::shipped;
use serde_json::{Map, Value, json};

use super::pace::StepPace;
use super::step_runner::{Outcome, StepRunner, failed, required, timeout};
use crate::declared::Snapshot;

/// The pause between two looks at the hosts.
const PAUSE: Duration = Duration::from_millis(500);
/// The time that a host has to say which addresses it has, and an API server to say that it is
/// ready.
const ANSWER: Duration = Duration::from_secs(3);

impl StepRunner<'_> {
    /// Moves the virtual address to another host, and waits until that one has it. Does nothing
    /// where keepalived holds none, and on a host that does not have it.
    pub(super) async fn vip_moved_off(
        &self,
        chunk: &Chunk,
        index: usize,
    ) -> Result<Outcome, Failure> {
        let node = required(chunk, "node")?;
        let snapshot = self.jobs.declarations().load().await.map_err(failed)?;
        let declaration = snapshot.declaration();
        let api = &declaration.cluster.api_server;
        let kept = api.vip.filter(|_| api.keeps_vip());
        let planes = declaration.nodes.iter();
        let planes = planes.filter(|(_, node)| node.has(Role::ControlPlane));
        let planes: Vec<&NodeName> = planes.map(|(name, _)| name).collect();
        let none = |why: String| Ok((Map::new(), format!("no address to move: {why}")));
        let Some(vip) = kept else {
            return none("keepalived holds none".to_owned());
        };
        if !planes.iter().any(|name| **name == *node) {
            return none(format!("{node} has no control plane"));
        }
        if planes.len() == 1 {
            return none(format!("{node} has the only control plane"));
        }
        if let Some(outcome) = self.left_out(chunk, &node, index).await? {
            return Ok(outcome);
        }
        if self.run.test {
            return Ok((
                Map::new(),
                format!("a real run moves {vip} to another host"),
            ));
        }
        let limit = timeout(chunk);
        let pace = StepPace::new(self.recorder, index, PAUSE).remedy(
            "`ctl health` shows which API servers are ready; `systemctl status keepalived` on their hosts says more",
        );
        let mut changes = Map::new();
        loop {
            let held = self.holders(&planes, vip).await;
            let own = held.get(node.as_str()).copied();
            let mut others = held.iter().filter(|(name, has)| **name != node && **has);
            let other = others.next().map(|(name, _)| *name);
            let because = match (own, other) {
                (Some(false), Some(other)) => {
                    return Ok((changes, format!("{other} holds {vip}")));
                }
                (Some(true), _) if changes.is_empty() => {
                    if self.another_serves(&snapshot, &node).await {
                        // Its states find out whether the host has the address still.
                        self.state(&aside(chunk, &node), index).await?;
                        changes.insert(vip.to_string(), json!("moved"));
                        continue;
                    }
                    format!("no API server but that of {node} is ready")
                }
                (Some(true), _) => format!("{node} has it still"),
                (Some(false), None) => "no host that answers has it".to_owned(),
                (None, _) => format!("{node} does not say which addresses it has"),
            };
            if pace.now() >= limit {
                return Err(Failure::new(format!(
                    "cannot move {vip} off {node}: {because} (waited {} s); see `ctl health`",
                    limit.as_secs()
                )));
            }
            pace.say(format!("another host holds {vip}"), because, limit)
                .await;
            pace.pause().await;
        }
    }

    /// The control plane that holds the virtual address, this one left out; none where keepalived
    /// holds none, or no other host says that it has it.
    pub(super) async fn vip_holder(&self, snapshot: &Snapshot, but: &str) -> Option<String> {
        let declaration = snapshot.declaration();
        let api = &declaration.cluster.api_server;
        let vip = api.vip.filter(|_| api.keeps_vip())?;
        let planes = declaration.nodes.iter();
        let others = planes.filter(|(name, node)| **name != *but && node.has(Role::ControlPlane));
        let others: Vec<&NodeName> = others.map(|(name, _)| name).collect();
        let held = self.holders(&others, vip).await;
        let holder = held.into_iter().find(|(_, has)| *has);
        holder.map(|(name, _)| name.to_owned())
    }

    /// Whether each of these hosts has an address; those that do not answer are left out.
    async fn holders<'a>(
        &self,
        hosts: &[&'a NodeName],
        address: Ipv4Addr,
    ) -> BTreeMap<&'a str, bool> {
        let ask = |host: &'a NodeName| async move {
            let health = self.health(host.as_str()).await?;
            Some((host.as_str(), health.addresses.contains(&address)))
        };
        let answers = join_all(hosts.iter().map(|host| ask(host))).await;
        answers.into_iter().flatten().collect()
    }

    /// The answer of a host to the question for its health; none without one.
    pub(super) async fn health(&self, host: &str) -> Option<HostHealth> {
        let minion = host.parse().ok()?;
        let answer = self.jobs.ask(&minion, FUNCTION, &json!({}), ANSWER).await;
        let answer = answer.inspect_err(|error| tracing::debug!(%minion, %error, "no health"));
        serde_json::from_value(answer.ok()?).ok()
    }

    /// Whether the API server of another host is ready: only there keepalived takes the address.
    async fn another_serves(&self, snapshot: &Snapshot, node: &str) -> bool {
        // An error means that no server can be asked at all.
        let servers = self.jobs.clusters().servers(snapshot).await;
        let servers = servers.unwrap_or_default().into_iter();
        let others = servers.filter(|server| server.host != *node);
        let asked = others.map(async |server| {
            let ready = tokio::time::timeout(ANSWER, server.api.ready()).await;
            matches!(ready, Ok(Ok(())))
        });
        join_all(asked).await.contains(&true)
    }
}

/// The step that moves the address, as `halite.state`.
fn aside(chunk: &Chunk, node: &str) -> Chunk {
    let args = [
        ("tgt", json!(node)),
        ("sls", json!([shipped::VIP_ASIDE])),
        ("timeout", json!(60)),
    ];
    let args = args.map(|(key, value): (&str, Value)| (key.to_owned(), value));
    Chunk {
        args: args.into_iter().collect(),
        ..chunk.clone()
    }
}
