//! The gate: which verified identities are welcome now. In memory, because every handshake asks it;
//! the store is behind it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use halite_errors::chain;
use halite_proto::identity::Kind;
use halite_proto::transport::{Caller, NotAdmitted, Peer, PeerPolicy};
use tokio::sync::{mpsc, watch};

use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::store::{Audit, KeyState, Millis, Store, StoreError};

/// Refusals that may wait for the store.
const WAITING: usize = 256;
/// Refusals that are written a minute; further ones are only counted, so that a stranger cannot
/// fill the disk.
const A_MINUTE: u32 = 120;

#[derive(Default)]
struct Welcome {
    /// Accepted minions and the fingerprint of the one key of each.
    minions: BTreeMap<String, String>,
    /// Serial numbers of identities that are not valid any more.
    revoked: BTreeSet<String>,
}

#[derive(Default)]
struct Minute {
    begin: Millis,
    written: u32,
    dropped: u32,
}

/// Which identities may come in.
pub struct Gate {
    welcome: RwLock<Welcome>,
    changes: watch::Sender<u64>,
    refusals: mpsc::Sender<Audit>,
    minute: Mutex<Minute>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
}

impl Gate {
    /// The gate as the store has it. Refusals are written to the store by a task that ends with the
    /// gate.
    ///
    /// # Errors
    /// The store fails.
    pub async fn load(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
    ) -> Result<Arc<Self>, StoreError> {
        let mut welcome = Welcome::default();
        for key in store.keys().await? {
            if key.state == KeyState::Accepted {
                welcome.minions.insert(key.id, key.fingerprint);
            }
        }
        welcome.revoked = store
            .revocations()
            .await?
            .into_iter()
            .map(|r| r.serial)
            .collect();
        let (refusals, mut waiting) = mpsc::channel::<Audit>(WAITING);
        tokio::spawn(async move {
            while let Some(line) = waiting.recv().await {
                if let Err(error) = store.append_audit(&line).await {
                    tracing::error!(
                        error = chain(&error),
                        "a refusal could not be written to the audit"
                    );
                }
            }
        });
        Ok(Arc::new(Self {
            welcome: RwLock::new(welcome),
            changes: watch::Sender::new(0),
            refusals,
            minute: Mutex::default(),
            clock,
            metrics,
        }))
    }

    /// Lets a minion in with this key, and only this one.
    pub fn open(&self, minion: &str, fingerprint: &str) {
        self.change(|welcome| {
            welcome
                .minions
                .insert(minion.to_owned(), fingerprint.to_owned())
        });
    }

    /// Lets a minion in no more, and cuts it off. `serial` of its certificate counts as revoked
    /// from now on.
    pub fn close(&self, minion: &str, serial: Option<&str>) {
        self.change(|welcome| {
            welcome.revoked.extend(serial.map(str::to_owned));
            welcome.minions.remove(minion)
        });
    }

    /// Refuses certificates with this serial number from now on, and cuts off who came in with one.
    pub fn revoke(&self, serial: &str) {
        self.change(|welcome| welcome.revoked.insert(serial.to_owned()));
    }

    fn change<T>(&self, how: impl FnOnce(&mut Welcome) -> T) {
        how(&mut self.welcome.write().unwrap_or_else(PoisonError::into_inner));
        self.changes.send_modify(|count| *count += 1);
    }

    fn note(&self, who: String, method: &str, reason: &str) {
        self.metrics.refusals.inc();
        let now = self.clock.now();
        {
            let mut minute = self.minute.lock().unwrap_or_else(PoisonError::into_inner);
            if now - minute.begin >= 60_000 {
                if minute.dropped > 0 {
                    tracing::warn!(
                        refusals = minute.dropped,
                        "refusals were not written to the audit: too many"
                    );
                }
                *minute = Minute {
                    begin: now,
                    ..Minute::default()
                };
            }
            if minute.written >= A_MINUTE {
                minute.dropped += 1;
                return;
            }
            minute.written += 1;
        }
        let line = Audit {
            time: now,
            who,
            method: method.to_owned(),
            what: String::new(),
            outcome: format!("refused: {reason}"),
        };
        if self.refusals.try_send(line).is_err() {
            tracing::warn!(
                method,
                reason,
                "a refusal was not written to the audit: the store is slow"
            );
        }
    }
}

impl PeerPolicy for Gate {
    fn admit(&self, caller: &Caller) -> Result<(), NotAdmitted> {
        let welcome = self.welcome.read().unwrap_or_else(PoisonError::into_inner);
        if welcome.revoked.contains(&caller.serial) {
            return Err(NotAdmitted::Revoked);
        }
        match caller.identity.kind() {
            // Their certificates come from the holder of the CA's key; they are revoked by serial
            // number.
            Kind::Operator | Kind::Master => Ok(()),
            Kind::Minion => match welcome.minions.get(caller.identity.id()) {
                None => Err(NotAdmitted::NotAccepted),
                Some(fingerprint) if *fingerprint == caller.fingerprint => Ok(()),
                Some(_) => Err(NotAdmitted::OtherKey),
            },
        }
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn refused(&self, peer: &Peer, path: &str, reason: &str) {
        let method = path.trim_start_matches("/halite.v1.");
        // A path is what the caller wrote: cut it, and never let it break a line.
        let method: String = method
            .chars()
            .filter(|c| !c.is_control())
            .take(80)
            .collect();
        tracing::info!(peer = peer.name(), method, reason, "call refused");
        self.note(peer.name(), &method, reason);
    }

    fn handshake_failed(&self, address: SocketAddr, reason: &str) {
        tracing::info!(%address, reason, "handshake failed");
        self.note(address.ip().to_string(), "handshake", reason);
    }
}
