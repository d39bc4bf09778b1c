//! `halite.vip_moved_off`: moves the virtual address off a host on purpose, before its API server
//! stops.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use futures_util::future::join_all;
use halite_core::declared::Snapshot;
use halite_etcd::Pace as _;
use halite_host_reports::health::{FUNCTION, HostHealth};
use halite_names::NodeName;
use halite_pillar::role::Role;
use halite_states::args::Args;
use halite_states::engine::Failure;
use halite_states::low::Chunk;
use halite_states::shipped;
use serde_json::{Map, Value, json};

use super::pace::StepPace;
use super::step_runner::{StepOutcome, StepRunner, failed, timeout};

/// Polling interval.
const PAUSE: Duration = Duration::from_millis(500);
/// The timeout for a host's report of its addresses.
const ANSWER: Duration = Duration::from_secs(3);
/// The timeout for an API server to report that it is ready: keepalived gives it no more, and takes
/// no address if the answer comes later (`check-apiserver.j2`).
const READY: Duration = Duration::from_secs(1);
/// The share of the step's time that passes between two attempts, also after an attempt that
/// succeeded before the address came back. During each attempt, no host may have the address for a
/// while.
const SHARE: u32 = 8;

impl StepRunner<'_> {
    /// Moves the virtual address to another host, and waits until that host has it; moves it again
    /// if the address comes back within the limit. Does nothing if keepalived holds no address, or
    /// on a host that does not have it.
    pub(super) async fn vip_moved_off(
        &self,
        chunk: &Chunk,
        index: usize,
    ) -> Result<StepOutcome, Failure> {
        let node = Args::new(chunk).required("node")?;
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
        let limit = timeout(chunk)?;
        let pace = StepPace::new(self.recorder, index, PAUSE).remedy(
            "`ctl health` shows which API servers are ready; `systemctl status keepalived` on their hosts says more",
        );
        let mut last: Option<Attempt> = None;
        loop {
            let held = self.holders(&planes, vip).await;
            let own = held.get(node.as_str()).copied();
            let mut others = held.iter().filter(|(name, has)| **name != node && **has);
            let other = others.next().map(|(name, _)| *name);
            // At the limit there is one last check, but no further attempt.
            let rests = |attempt: &Attempt| {
                let now = pace.now();
                now >= limit || now - attempt.ended < limit / SHARE
            };
            let because = match (own, other) {
                (Some(false), Some(other)) => {
                    if last.as_ref().is_some_and(|last| !last.has_succeeded()) {
                        // An attempt that was cut off may have left keepalived stopped. Its states
                        // start it.
                        self.state(&aside(chunk, &node), index).await?;
                        self.recorder.check_store()?;
                    }
                    let moved = last.map(|_| (vip.to_string(), json!("moved")));
                    return Ok((moved.into_iter().collect(), format!("{other} holds {vip}")));
                }
                (Some(true), _) => match &last {
                    Some(attempt) if rests(attempt) => format!("{node} has it again"),
                    _ if self.another_serves(&snapshot, &node).await => {
                        if last.as_ref().is_some_and(Attempt::has_succeeded) {
                            // A step does not repeat its own finished job; but this one was undone.
                            self.recorder.note(index, "jobs", json!([])).await?;
                        }
                        // Its states determine whether the host still has the address.
                        let moved = self.state(&aside(chunk, &node), index).await;
                        self.recorder.check_store()?;
                        let failure = moved.err().map(|failure| failure.text());
                        let ended = pace.now();
                        let attempt = last.insert(Attempt { ended, failure });
                        if attempt.has_succeeded() {
                            continue;
                        }
                        format!("{node} did not give it to another host")
                    }
                    _ => format!("no API server except the one on {node} is ready"),
                },
                (Some(false), None) => "no host that answers has it".to_owned(),
                (None, _) => format!("{node} does not say which addresses it has"),
            };
            let failure = last.as_ref().and_then(|attempt| attempt.failure.as_ref());
            let because = match failure {
                Some(failure) => format!("{because}; the last attempt failed: {failure}"),
                None => because,
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

    /// The control plane that holds the virtual address once it has left this host: the one that
    /// reports it, or else the one with the highest priority among those that answer. `None` if
    /// keepalived holds no address, or no other host answers.
    pub(super) async fn next_vip_holder(&self, snapshot: &Snapshot, but: &str) -> Option<String> {
        let declaration = snapshot.declaration();
        let api = &declaration.cluster.api_server;
        let vip = api.vip.filter(|_| api.keeps_vip())?;
        let planes = declaration.nodes.iter();
        let others = planes.filter(|(name, node)| **name != *but && node.has(Role::ControlPlane));
        let others: Vec<&NodeName> = others.map(|(name, _)| name).collect();
        let held = self.holders(&others, vip).await.into_iter();
        let next = held.max_by_key(|(name, has)| (*has, declaration.vrrp_priority(name)));
        next.map(|(name, _)| name.to_owned())
    }

    /// Returns for each of these hosts whether it has an address; silent hosts are left out.
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

    /// The answer of a host to the query for its health; `None` without one.
    pub(super) async fn health(&self, host: &str) -> Option<HostHealth> {
        let minion = host.parse().ok()?;
        let answer = self.jobs.ask(&minion, FUNCTION, &json!({}), ANSWER).await;
        let answer = answer.inspect_err(|error| tracing::debug!(%minion, %error, "no health"));
        serde_json::from_value(answer.ok()?).ok()
    }

    /// Returns whether the API server of another host is ready: keepalived takes the address only
    /// there. It asks more than once.
    async fn another_serves(&self, snapshot: &Snapshot, node: &str) -> bool {
        // An error means that no server can be asked at all.
        let servers = self.jobs.clusters().servers(snapshot).await;
        let servers = servers.unwrap_or_default().into_iter();
        let others = servers.filter(|server| server.host != *node);
        let asked = others.map(async |server| {
            let api = server.api.as_ref();
            is_ready_for_keepalived(|| async { api.ready().await.is_ok() }).await
        });
        join_all(asked).await.contains(&true)
    }
}

/// An attempt to move the address.
struct Attempt {
    /// The time within the step at which it ended.
    ended: Duration,
    /// The reason of its failure; `None` if the host has released the address.
    failure: Option<String>,
}

impl Attempt {
    fn has_succeeded(&self) -> bool {
        self.failure.is_none()
    }
}

/// Returns whether keepalived considers an API server ready: one of two answers comes in time,
/// because the check fails after two late ones.
async fn is_ready_for_keepalived<A: Future<Output = bool>>(ask: impl Fn() -> A) -> bool {
    if tokio::time::timeout(READY, ask()).await == Ok(true) {
        return true;
    }
    tokio::time::sleep(PAUSE).await;
    tokio::time::timeout(READY, ask()).await == Ok(true)
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn an_api_server_is_ready_only_where_keepalived_finds_it_ready() {
        // The milliseconds of each answer, and whether it says ready.
        let cases = [
            ([(0, true), (100, true)], true),
            ([(600_000, true), (0, true)], true),
            ([(0, true), (600_000, true)], true),
            ([(0, false), (0, true)], true),
            ([(600_000, true), (600_000, true)], false),
            ([(600_000, true), (0, false)], false),
        ];
        let asked = cases.map(async |(answers, ready)| {
            let next = AtomicUsize::new(0);
            let ask = || {
                let (after, answer) = answers[next.fetch_add(1, Ordering::Relaxed)];
                async move {
                    tokio::time::sleep(Duration::from_millis(after)).await;
                    answer
                }
            };
            assert_eq!(is_ready_for_keepalived(ask).await, ready, "{answers:?}");
        });
        join_all(asked).await;
    }
}
