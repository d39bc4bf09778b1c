//! The master's view of its standbys and minions, before it starts something.

use std::time::Duration;

use halite_core::isolation::Surroundings;
use halite_core::refusal::Refusal;
use halite_proto::ids::MinionId;
use halite_store::KeyState;

use super::Jobs;

/// The interval between two checks for a waiting order.
const PAUSE: Duration = Duration::from_millis(250);

impl Jobs {
    /// The standbys and minions that this master sees.
    ///
    /// # Errors
    /// The documents or the store cannot be read.
    pub async fn surroundings(&self) -> Result<Surroundings, Refusal> {
        let snapshot = self.declarations.in_force().await?;
        let declaration = snapshot.declaration();
        let keys = self.app.store.keys().await?.into_iter();
        let accepted: Vec<MinionId> = keys
            .filter(|key| key.state == KeyState::Accepted)
            .filter(|key| declaration.nodes.contains_key(key.id.as_str()))
            .map(|key| key.id)
            .collect();
        let connections = &self.app.connections;
        let connected = accepted.iter().filter(|id| connections.is_connected(id));
        Ok(Surroundings {
            standbys: declaration.standbys().len(),
            alone_since: self.app.standbys.alone_since(),
            connected: connected.count(),
            accepted: accepted.len(),
        })
    }

    /// Checks again, while no check since the start has found that this master may act. Later
    /// checks are made by the watch for other masters.
    ///
    /// # Errors
    /// The documents or the store cannot be read: then it may not act.
    pub async fn look_if_new(&self) -> Result<(), Refusal> {
        let isolation = &self.app.isolation;
        if !isolation.is_new() {
            return Ok(());
        }
        let seen = self.surroundings().await.inspect_err(|refusal| {
            isolation.unknown(&refusal.message);
        })?;
        isolation.look(self.app.clock.steady(), seen);
        Ok(())
    }

    /// Refuses to start something that changes a host or the cluster while this master is isolated.
    /// Shortly after its start it first waits for minions and standbys, which are about to connect.
    ///
    /// # Errors
    /// This master is isolated, or cannot determine whether it is.
    pub async fn check_may_act(&self, what: &str) -> Result<(), Refusal> {
        let isolation = &self.app.isolation;
        loop {
            self.look_if_new().await?;
            if !isolation.is_new() || isolation.is_settled() {
                return isolation.check(what);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}
