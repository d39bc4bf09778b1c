//! `halite.wait_for_minion` and `halite.wait_for_node`: waits with a deadline, whose failure names
//! the missing condition.

use std::time::Duration;

use halite_cluster::kubernetes::node::{Readiness, last_events, readiness, reference};
use halite_errors::chain;
use halite_etcd::Pace as _;
use halite_proto::identity::IdentityError;
use halite_proto::ids::MinionId;
use halite_states::args::Args;
use halite_states::engine::Failure;
use halite_states::low::Chunk;
use halite_store::KeyState;
use serde_json::{Map, json};
use tokio::time::Instant;

use super::pace::StepPace;
use super::step_runner::{StepOutcome, StepRunner, failed, timeout};

/// The pause between two checks.
const PAUSE: Duration = Duration::from_millis(250);
/// The number of events of a node that a failed wait shows.
const EVENTS: usize = 5;

impl StepRunner<'_> {
    /// Waits until the minion is accepted and connected and its facts are stored. Records the
    /// fingerprint of its key, so that an operator can compare it with the fingerprint on the host.
    pub(super) async fn wait_for_minion(
        &self,
        chunk: &Chunk,
        index: usize,
    ) -> Result<StepOutcome, Failure> {
        let id: MinionId = Args::new(chunk)
            .required("id")?
            .parse()
            .map_err(|error: IdentityError| Failure::new(chain(&error)))?;
        let limit = timeout(chunk)?;
        let deadline = Instant::now() + limit;
        let pace = StepPace::new(self.recorder, index, PAUSE);
        let app = self.jobs.app();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let pause = if self.run.test {
                Duration::ZERO
            } else {
                left.min(PAUSE * 4)
            };
            let connected = app.connections.wait_connected(&id, pause).await;
            let known = app
                .store
                .facts(&id)
                .await
                .map_err(|error| Failure::new(chain(&error)))?
                .is_some();
            if connected && known {
                let key = app
                    .store
                    .key(&id)
                    .await
                    .map_err(|error| Failure::new(chain(&error)))?;
                if let Some(key) = key {
                    self.recorder
                        .note(index, "fingerprint", json!(key.fingerprint))
                        .await?;
                }
                return Ok((Map::new(), format!("{id} is connected")));
            }
            if self.run.test {
                return Ok((
                    Map::new(),
                    format!(
                        "{id} is not connected yet; a real run waits {} s for it",
                        limit.as_secs()
                    ),
                ));
            }
            let why = self.why_absent(&id).await?;
            if why.hopeless || left.is_zero() {
                let waited = if why.hopeless {
                    String::new()
                } else {
                    format!(" (waited {} s)", limit.as_secs())
                };
                return Err(Failure::new(format!("{}{waited}", why.text)));
            }
            // The reason contains the remedy.
            pace.say(format!("{id} is connected"), why.text, limit)
                .await;
            pace.leave_if_cancelled().await;
            if connected {
                pace.pause().await;
            }
        }
    }

    async fn why_absent(&self, id: &MinionId) -> Result<Absent, Failure> {
        let key = self
            .jobs
            .app()
            .store
            .key(id)
            .await
            .map_err(|error| Failure::new(chain(&error)))?;
        let (text, hopeless) = match key.map(|key| (key.state, key.fingerprint)) {
            None => (
                format!(
                    "{id} has not enrolled: run the command there that `ctl node add` or `ctl node replace` printed"
                ),
                false,
            ),
            Some((KeyState::Pending, fingerprint)) => (
                format!(
                    "the key of {id} is pending: compare its fingerprint {fingerprint} with what the host shows, then `ctl key accept {id} --fingerprint` with that"
                ),
                false,
            ),
            Some((KeyState::Rejected, _)) => (
                format!("the key of {id} was rejected: `ctl key delete {id}`, then enrol it again"),
                true,
            ),
            Some((KeyState::Accepted, _)) => (
                format!(
                    "{id} is accepted but not connected: check that halite-minion runs there (`systemctl status halite-minion`)"
                ),
                false,
            ),
        };
        Ok(Absent { text, hopeless })
    }

    /// Waits until the Kubernetes node is Ready and schedulable. The wait includes a node under
    /// pressure: the kubelet removes such a condition some minutes after space was freed.
    pub(super) async fn wait_for_node(
        &self,
        chunk: &Chunk,
        index: usize,
    ) -> Result<StepOutcome, Failure> {
        let name = Args::new(chunk).required("node")?;
        if let Some(left_out) = self.left_out(chunk, &name, index).await? {
            return Ok(left_out);
        }
        let limit = timeout(chunk)?;
        let deadline = Instant::now() + limit;
        let pace = StepPace::new(self.recorder, index, PAUSE).remedy(format!(
            "`kubectl describe node {name}` and `journalctl -u kubelet` there show more"
        ));
        let snapshot = self.jobs.declarations().load().await.map_err(failed)?;
        let api = self.jobs.clusters().api(&snapshot).await.map_err(failed)?;
        let node = reference(&name);
        loop {
            let found = api.get(&node).await;
            let missing = match found.map(|live| readiness(live.as_ref())) {
                Ok(Readiness::Ready) => return Ok((Map::new(), format!("{name} is Ready"))),
                Ok(Readiness::UnderPressure(reasons)) => format!(
                    "{name} is Ready but accepts no pods: {}; free some space on that host (the condition goes some minutes later), \
                     or set kubelet.config.evictionHard in the cluster document, and run this again",
                    reasons.join("; ")
                ),
                Ok(Readiness::NotReady(reasons)) => {
                    format!("{name} is not Ready: {}", reasons.join("; "))
                }
                Ok(Readiness::Missing) => format!(
                    "{name} has not registered with the API: check that kubelet runs there (`systemctl status kubelet`)"
                ),
                Err(error) => chain(&error),
            };
            if self.run.test {
                return Ok((
                    Map::new(),
                    format!("{missing}; a real run waits {} s for it", limit.as_secs()),
                ));
            }
            if Instant::now() >= deadline {
                let events = last_events(api.as_ref(), &name, EVENTS)
                    .await
                    .unwrap_or_default();
                let events = events
                    .iter()
                    .map(|event| format!("\n  event: {event}"))
                    .collect::<String>();
                return Err(Failure::new(format!(
                    "{missing} (waited {} s){events}",
                    limit.as_secs()
                )));
            }
            pace.say(format!("{name} is Ready"), missing, limit).await;
            pace.pause().await;
        }
    }
}

/// The reason why a minion is absent.
struct Absent {
    text: String,
    /// `true` if waiting longer cannot help.
    hopeless: bool,
}
