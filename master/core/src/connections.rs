//! The connected minions and their streams.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use halite_proto::ids::MinionId;
use halite_proto::v1;
use tokio::sync::mpsc::error::SendTimeoutError;
use tokio::sync::{mpsc, watch};

/// Capacity of the queue of one minion's stream.
const QUEUE: usize = 64;

/// Timeout for space in that queue. A minion that reads nothing for so long is disconnected,
/// because the jobs of other minions wait for it: it reconnects when it works again, and then
/// receives what is due.
const ROOM: Duration = Duration::from_secs(2);

/// The minion has no open stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("minion {0:?} is not connected")]
pub struct NotConnected(pub MinionId);

/// Keeps one minion connected; its stream owns the guard. Dropping it disconnects the minion,
/// unless a newer stream of the same minion has replaced it.
pub struct ConnectionGuard {
    connections: Arc<Connections>,
    minion: MinionId,
    number: u64,
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.connections.leave(self);
    }
}

/// The sending half of one minion's stream.
struct Connection {
    number: u64,
    sender: mpsc::Sender<v1::MasterMessage>,
    /// The address from which the stream comes.
    address: IpAddr,
    /// The masters, as `HOST:PORT`, that were last sent to the minion.
    masters: Vec<String>,
    /// The minion's protocol version.
    protocol: u32,
    /// The CAs of identities that the minion trusts, as its hello shows them.
    trust: Option<v1::MinionTrust>,
}

/// The open streams, one for each connected minion.
#[derive(Default)]
pub struct Connections {
    open: Mutex<BTreeMap<MinionId, Connection>>,
    /// The number of the newest connection, watched by callers that wait for a minion.
    newest: watch::Sender<u64>,
}

impl Connections {
    /// Registers a minion's new stream, with the protocol of this version.
    #[cfg(any(test, feature = "testing"))]
    pub fn join(
        self: &Arc<Self>,
        minion: &MinionId,
        address: IpAddr,
    ) -> (ConnectionGuard, mpsc::Receiver<v1::MasterMessage>) {
        self.join_speaking(minion, address, halite_proto::PROTOCOL)
    }

    /// Registers a minion's new stream from an address, with the protocol of its hello. An older
    /// stream of the same minion ends: its receiver closes.
    pub fn join_speaking(
        self: &Arc<Self>,
        minion: &MinionId,
        address: IpAddr,
        protocol: u32,
    ) -> (ConnectionGuard, mpsc::Receiver<v1::MasterMessage>) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let mut open = self.open();
        let number = *self.newest.borrow() + 1;
        let connection = Connection {
            number,
            sender,
            address: address.to_canonical(),
            masters: Vec::new(),
            protocol,
            trust: None,
        };
        open.insert(minion.clone(), connection);
        // Inside the lock: two streams must not get the same number.
        self.newest.send_replace(number);
        drop(open);
        (
            ConnectionGuard {
                connections: Arc::clone(self),
                minion: minion.clone(),
                number,
            },
            receiver,
        )
    }

    /// Ends a minion's stream from the master's side; returns `true` if it was connected.
    pub fn disconnect(&self, minion: &MinionId) -> bool {
        self.open().remove(minion).is_some()
    }

    /// Ends exactly the stream of this guard; a newer stream of the same minion stays.
    pub fn leave(&self, guard: &ConnectionGuard) {
        self.end(&guard.minion, guard.number);
    }

    /// Queues a message on a minion's stream, waiting briefly while its queue is full. Success
    /// means queued, not received.
    ///
    /// # Errors
    /// The minion has no open stream, or the stream ended during the wait: by itself, or because
    /// the minion does not read.
    pub async fn send(
        &self,
        minion: &MinionId,
        message: v1::MasterMessage,
    ) -> Result<(), NotConnected> {
        let not_connected = || NotConnected(minion.clone());
        let connection = self
            .open()
            .get(minion)
            .map(|connection| (connection.number, connection.sender.clone()));
        let (number, sender) = connection.ok_or_else(not_connected)?;
        match sender.send_timeout(message, ROOM).await {
            Ok(()) => Ok(()),
            Err(SendTimeoutError::Closed(_)) => Err(not_connected()),
            Err(SendTimeoutError::Timeout(_)) => {
                tracing::warn!(
                    %minion,
                    "disconnected: it has read nothing for {} s; `systemctl status halite-minion` on the host shows its state",
                    ROOM.as_secs()
                );
                self.end(minion, number);
                Err(not_connected())
            }
        }
    }

    /// Ends the stream of this number; a newer stream of the same minion stays.
    fn end(&self, minion: &MinionId, number: u64) {
        let mut open = self.open();
        if open
            .get(minion)
            .is_some_and(|connection| connection.number == number)
        {
            open.remove(minion);
        }
    }

    /// Records the masters, as `HOST:PORT`, that were sent to a connected minion.
    pub fn knows(&self, minion: &MinionId, masters: Vec<String>) {
        if let Some(connection) = self.open().get_mut(minion) {
            connection.masters = masters;
        }
    }

    /// Records the CAs of identities that a connected minion trusts.
    pub fn shows(&self, minion: &MinionId, trust: Option<v1::MinionTrust>) {
        if let Some(connection) = self.open().get_mut(minion) {
            connection.trust = trust;
        }
    }

    /// The CAs of identities that a minion trusts; `None` if it is not connected, or of an earlier
    /// version that does not show them.
    #[must_use]
    pub fn trust(&self, minion: &MinionId) -> Option<v1::MinionTrust> {
        self.open().get(minion)?.trust.clone()
    }

    /// Records the protocol version of a connected minion.
    #[cfg(any(test, feature = "testing"))]
    pub fn speaks(&self, minion: &MinionId, protocol: u32) {
        if let Some(connection) = self.open().get_mut(minion) {
            connection.protocol = protocol;
        }
    }

    /// The protocol version of a minion; `None` if it is not connected.
    #[must_use]
    pub fn protocol(&self, minion: &MinionId) -> Option<u32> {
        self.open().get(minion).map(|open| open.protocol)
    }

    /// Ids of the connected minions to which other masters than these were sent last, sorted.
    #[must_use]
    pub fn unaware_of(&self, masters: &[String]) -> Vec<MinionId> {
        let open = self.open();
        open.iter()
            .filter(|(_, connection)| connection.masters != masters)
            .map(|(minion, _)| minion.clone())
            .collect()
    }

    /// Ids of the connected minions, sorted.
    #[must_use]
    pub fn connected(&self) -> Vec<MinionId> {
        self.open().keys().cloned().collect()
    }

    /// The address from which a minion's open stream comes.
    #[must_use]
    pub fn address(&self, minion: &MinionId) -> Option<IpAddr> {
        self.open().get(minion).map(|connection| connection.address)
    }

    /// Returns whether a minion has an open stream.
    #[must_use]
    pub fn is_connected(&self, minion: &MinionId) -> bool {
        self.open().contains_key(minion)
    }

    /// The number of the newest connection, which changes when a minion connects.
    #[must_use]
    pub fn joins(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// Waits until a minion is connected; returns `false` if `timeout` passes first.
    pub async fn wait_connected(&self, minion: &MinionId, timeout: Duration) -> bool {
        let mut newest = self.newest.subscribe();
        let wait = async {
            loop {
                newest.borrow_and_update();
                if self.is_connected(minion) {
                    return true;
                }
                if newest.changed().await.is_err() {
                    return false;
                }
            }
        };
        tokio::time::timeout(timeout, wait).await.unwrap_or(false)
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<MinionId, Connection>> {
        // No code panics while it holds the lock; a poisoned lock still holds a valid map.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::names::minion;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[tokio::test]
    async fn waiting_ends_with_the_connection_or_the_time() {
        let connections: Arc<Connections> = Arc::default();
        assert!(
            !connections
                .wait_connected(&minion("a"), Duration::from_millis(1))
                .await
        );
        let waiting = tokio::spawn({
            let connections = Arc::clone(&connections);
            async move {
                connections
                    .wait_connected(&minion("a"), Duration::from_secs(20))
                    .await
            }
        });
        let (_other, _messages) = connections.join(&minion("b"), HERE);
        let (guard, _messages) = connections.join(&minion("a"), HERE);
        assert!(waiting.await.unwrap());
        assert_eq!(connections.connected(), ["a", "b"]);
        drop(guard);
        assert!(!connections.is_connected(&minion("a")));
        assert_eq!(
            connections
                .send(&minion("a"), v1::MasterMessage::default())
                .await,
            Err(NotConnected(minion("a")))
        );
    }

    #[tokio::test]
    async fn an_old_connection_does_not_end_a_newer_one() {
        let connections: Arc<Connections> = Arc::default();
        let (old, mut old_messages) = connections.join(&minion("a"), HERE);
        let (_new, _new_messages) = connections.join(&minion("a"), HERE);
        assert!(old_messages.recv().await.is_none());
        connections.leave(&old);
        drop(old);
        assert!(connections.is_connected(&minion("a")));
        assert!(connections.disconnect(&minion("a")));
        assert!(!connections.disconnect(&minion("a")));
    }

    #[tokio::test]
    async fn a_minion_is_unaware_of_masters_until_it_was_sent_exactly_these() {
        let connections: Arc<Connections> = Arc::default();
        let [one, two] = ["10.0.0.1:4550", "10.0.0.2:4550"].map(str::to_owned);
        let (first, _messages) = connections.join(&minion("a"), HERE);
        connections.knows(&minion("a"), vec![one.clone()]);
        assert!(
            connections
                .unaware_of(std::slice::from_ref(&one))
                .is_empty()
        );
        // A different list was declared while this minion connected.
        let both = [one, two];
        assert_eq!(connections.unaware_of(&both), ["a"]);
        connections.knows(&minion("a"), both.to_vec());
        assert!(connections.unaware_of(&both).is_empty());
        drop(first);
        let (_again, _messages) = connections.join(&minion("a"), HERE);
        assert_eq!(connections.unaware_of(&both), ["a"]);
    }
}
