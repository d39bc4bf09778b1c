//! `halite.wait_for_minion` and `halite.wait_for_node`: waits with a deadline that say what was
//! missing.

use std::time::{Duration, Instant};

use halite_states::engine::Failure;
use halite_states::low::Chunk;
use serde_json::{Map, json};

use super::step_runner::{Outcome, StepRunner, failed, required, timeout};
use crate::kubernetes::node::{Readiness, last_events, readiness, reference};
use crate::store::KeyState;

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(250);
/// Events of a node that a failed wait shows.
const EVENTS: usize = 5;

impl StepRunner<'_> {
    /// Until the minion is accepted, connected, and has said what host it is. Its key's fingerprint
    /// is noted, so that an operator can compare it with what the host shows.
    pub(super) async fn wait_for_minion(
        &self,
        chunk: &Chunk,
        index: usize,
    ) -> Result<Outcome, Failure> {
        let id = required(chunk, "id")?;
        let limit = timeout(chunk);
        let deadline = Instant::now() + limit;
        let app = self.jobs.app();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let look = if self.run.test {
                Duration::ZERO
            } else {
                left.min(PAUSE * 4)
            };
            let connected = app.connections.wait_connected(&id, look).await;
            let known = app
                .store
                .facts(&id)
                .await
                .map_err(|error| Failure(error.to_string()))?
                .is_some();
            if connected && known {
                let key = app
                    .store
                    .key(&id)
                    .await
                    .map_err(|error| Failure(error.to_string()))?;
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
                        "{id} is not connected yet; a run waits {} s for it",
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
                return Err(Failure(format!("{}{waited}", why.text)));
            }
            if connected {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    async fn why_absent(&self, id: &str) -> Result<Absent, Failure> {
        let key = self
            .jobs
            .app()
            .store
            .key(id)
            .await
            .map_err(|error| Failure(error.to_string()))?;
        let (text, hopeless) = match key.map(|key| (key.state, key.fingerprint)) {
            None => (
                format!(
                    "{id} has not enrolled: run there the command that `ctl node add {id}` printed"
                ),
                false,
            ),
            Some((KeyState::Pending, fingerprint)) => (
                format!(
                    "{id} waits to be accepted: compare its fingerprint {fingerprint}, then `ctl key accept {id}`"
                ),
                false,
            ),
            Some((KeyState::Rejected, _)) => (
                format!("the key of {id} was rejected: `ctl key delete {id}`, then enrol it again"),
                true,
            ),
            Some((KeyState::Accepted, _)) => (
                format!(
                    "{id} is accepted but not connected: does halite-minion run there? (`systemctl status halite-minion`)"
                ),
                false,
            ),
        };
        Ok(Absent { text, hopeless })
    }

    /// Until the Kubernetes node is Ready and takes pods. Under pressure it is waited for too: the
    /// kubelet takes such a condition back minutes after there is room again.
    pub(super) async fn wait_for_node(&self, chunk: &Chunk) -> Result<Outcome, Failure> {
        let name = required(chunk, "node")?;
        let limit = timeout(chunk);
        let deadline = Instant::now() + limit;
        let snapshot = self.jobs.declarations().load().map_err(failed)?;
        let api = self.jobs.clusters().api(&snapshot).await.map_err(failed)?;
        let node = reference(&name);
        loop {
            let found = api.get(&node).await;
            let missing = match found.map(|live| readiness(live.as_ref())) {
                Ok(Readiness::Ready) => return Ok((Map::new(), format!("{name} is Ready"))),
                Ok(Readiness::UnderPressure(reasons)) => format!(
                    "{name} is Ready but takes no pods: {}; make room on that host (the condition goes some minutes later), \
                     or set kubelet.config.evictionHard in the cluster document and run this again",
                    reasons.join("; ")
                ),
                Ok(Readiness::NotReady(reasons)) => {
                    format!("{name} is not Ready: {}", reasons.join("; "))
                }
                Ok(Readiness::Missing) => format!(
                    "{name} has not registered with the API: does kubelet run there? (`systemctl status kubelet`)"
                ),
                Err(error) => error.to_string(),
            };
            if self.run.test {
                return Ok((
                    Map::new(),
                    format!("{missing}; a run waits {} s for it", limit.as_secs()),
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
                return Err(Failure(format!(
                    "{missing} (waited {} s){events}",
                    limit.as_secs()
                )));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Why a minion is not there.
struct Absent {
    text: String,
    /// Waiting on cannot help.
    hopeless: bool,
}
