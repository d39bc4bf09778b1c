//! What the master sees of its standbys and minions, before it begins something.

use std::time::Duration;

use halite_core::isolation::Surroundings;
use halite_core::refusal::Refusal;
use halite_proto::ids::MinionId;
use halite_store::KeyState;

use super::Jobs;

/// The pause between two looks of an order that waits.
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

    /// Looks again, while no look since the start has found that this master may act. Later looks are those
    /// of the watch for other masters.
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

    /// Refuses to begin something that changes a host or the cluster while this master is isolated. Shortly after its
    /// start it waits for minions and standbys first, which are about to call.
    ///
    /// # Errors
    /// This master is isolated, or cannot see whether it is.
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
