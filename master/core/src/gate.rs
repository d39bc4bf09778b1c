//! The gate, which knows the verified identities that may connect now. It is in memory, because
//! every handshake queries it; the store is behind it.

mod budget;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use halite_errors::chain;
use halite_proto::identity::IdentityKind;
use halite_proto::ids::MinionId;
use halite_proto::role::Role;
use halite_proto::transport::{Caller, NotAdmitted, Peer, PeerPolicy, source};
use halite_store::{Audit, KeyState, Millis, Operator, Store, StoreError};
use tokio::sync::{mpsc, watch};

use self::budget::Budget;
use crate::clock::Clock;
use crate::metrics::Metrics;

/// Capacity of the queue of refusals for the store.
const WAITING: usize = 256;
/// The interval at which summaries are written.
const SUMMARY_CHECK: Duration = Duration::from_secs(10);

/// The result of removing an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// The operator is removed, or was unknown.
    Out,
    /// Nothing changed: the operator is the last administrator.
    LastAdmin,
}

#[derive(Default)]
struct Welcome {
    /// Accepted minions with the fingerprint of the only key of each.
    minions: BTreeMap<MinionId, String>,
    /// Operators that are not revoked, by name.
    operators: BTreeMap<String, Operator>,
    /// Serial numbers of revoked identities.
    revoked: BTreeSet<String>,
}

impl Welcome {
    /// The role of a caller who is an operator, has the key of that name, and is not revoked. The
    /// expiry is not checked, because the certificate ends by itself.
    fn role(&self, caller: &Caller) -> Option<Role> {
        if caller.identity.kind() != IdentityKind::Operator {
            return None;
        }
        let operator = self.operators.get(caller.identity.id())?;
        let own = operator.fingerprint.as_ref();
        own.is_none_or(|own| *own == caller.fingerprint)
            .then_some(operator.role)
    }

    fn has_other_admin(&self, name: &str, now: Millis) -> bool {
        self.operators.values().any(|operator| {
            operator.name != name && operator.role == Role::Admin && operator.is_valid(now)
        })
    }
}

/// The identities that may connect.
pub struct Gate {
    welcome: RwLock<Welcome>,
    changes: watch::Sender<u64>,
    refusals: mpsc::Sender<Audit>,
    budget: Arc<Budget>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
}

impl Gate {
    /// Loads the gate from the store. A task that ends with the gate writes refusals to the store.
    ///
    /// # Errors
    /// The store fails.
    pub async fn load(
        store: Arc<Store>,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
    ) -> Result<Arc<Self>, StoreError> {
        let mut welcome = Welcome::default();
        for key in store.keys().await? {
            if key.state == KeyState::Accepted {
                welcome.minions.insert(key.id, key.fingerprint);
            }
        }
        // An operator may have expired before its certificate does.
        let now = clock.now();
        for operator in store.operators().await? {
            if operator.is_valid(now) {
                welcome.operators.insert(operator.name.clone(), operator);
            }
        }
        welcome.revoked = store
            .revocations()
            .await?
            .into_iter()
            .map(|r| r.serial)
            .collect();
        let (refusals, waiting) = mpsc::channel::<Audit>(WAITING);
        let budget: Arc<Budget> = Arc::default();
        tokio::spawn(write_refusals(
            store,
            Arc::clone(&clock),
            Arc::clone(&budget),
            waiting,
        ));
        Ok(Arc::new(Self {
            welcome: RwLock::new(welcome),
            changes: watch::Sender::new(0),
            refusals,
            budget,
            clock,
            metrics,
        }))
    }

    /// Admits a minion with this key, and only this one. Does nothing if it is admitted already, so
    /// that every answer that accepts a minion can call this.
    pub fn open(&self, minion: &MinionId, fingerprint: &str) {
        let before = {
            let mut welcome = self.welcome.write().unwrap_or_else(PoisonError::into_inner);
            let fingerprint = fingerprint.to_owned();
            welcome.minions.insert(minion.clone(), fingerprint)
        };
        // Each change makes every connection check its own caller. A minion that was not admitted
        // before has none: otherwise a thousand new hosts would cause a million checks.
        if before.is_some_and(|before| before != fingerprint) {
            self.changes.send_modify(|count| *count += 1);
        }
    }

    /// Stops admitting a minion, and disconnects it. `serial` of its certificate counts as revoked
    /// from now on.
    pub fn close(&self, minion: &MinionId, serial: Option<&str>) {
        self.change(|welcome| {
            welcome.revoked.extend(serial.map(str::to_owned));
            welcome.minions.remove(minion)
        });
    }

    /// Admits an operator with this key and role, and no other key of that name.
    pub fn open_for_operator(&self, operator: &Operator) {
        self.change(|welcome| {
            welcome
                .operators
                .insert(operator.name.clone(), operator.clone())
        });
    }

    /// Stops admitting an operator, and disconnects its callers. The last administrator stays, also
    /// when two administrators remove each other at once.
    pub fn remove_operator(&self, name: &str, now: Millis) -> Removal {
        self.change(|welcome| {
            let is_admin = welcome
                .operators
                .get(name)
                .is_some_and(|operator| operator.role == Role::Admin);
            if is_admin && !welcome.has_other_admin(name, now) {
                return Removal::LastAdmin;
            }
            welcome.operators.remove(name);
            Removal::Out
        })
    }

    /// Stops admitting the operator of a host that has lost its key, even the last administrator:
    /// the host is gone.
    pub fn remove_host_root(&self, name: &str) {
        self.change(|welcome| welcome.operators.remove(name));
    }

    /// Returns whether another operator than this one is a valid administrator.
    pub fn has_other_admin(&self, name: &str, now: Millis) -> bool {
        let welcome = self.welcome.read().unwrap_or_else(PoisonError::into_inner);
        welcome.has_other_admin(name, now)
    }

    /// Refuses certificates with this serial number from now on, and disconnects their callers.
    pub fn revoke(&self, serial: &str) {
        self.change(|welcome| welcome.revoked.insert(serial.to_owned()));
    }

    fn change<T>(&self, how: impl FnOnce(&mut Welcome) -> T) -> T {
        let result = how(&mut self.welcome.write().unwrap_or_else(PoisonError::into_inner));
        self.changes.send_modify(|count| *count += 1);
        result
    }

    /// Returns whether a certificate with this serial number is refused.
    pub fn is_revoked(&self, serial: &str) -> bool {
        let welcome = self.welcome.read().unwrap_or_else(PoisonError::into_inner);
        welcome.revoked.contains(serial)
    }

    /// Returns whether so many refusals of a source were noted in this minute that further ones are
    /// only counted.
    pub fn is_tired_of(&self, source: &str) -> bool {
        self.budget.is_used_up(source)
    }

    /// Writes a refusal to the audit, within the budget of its source: an address, or the name of a
    /// caller with a certificate. Does not block.
    pub fn note(&self, source: &str, line: Audit) {
        self.metrics.refusals.inc();
        if !self.budget.take(source, line.time) {
            return;
        }
        if self.refusals.try_send(line).is_err() {
            tracing::warn!("a refusal was not written to the audit: the store is slow");
        }
    }

    fn refusal(&self, who: String, method: &str, reason: &str) -> Audit {
        Audit {
            time: self.clock.now(),
            who,
            method: method.to_owned(),
            what: String::new(),
            outcome: format!("refused: {reason}"),
        }
    }
}

/// Writes refusals, and the summaries of refusals over the budget, until the gate is dropped.
async fn write_refusals(
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    budget: Arc<Budget>,
    mut waiting: mpsc::Receiver<Audit>,
) {
    let mut checks = tokio::time::interval(SUMMARY_CHECK);
    loop {
        let line = tokio::select! {
            line = waiting.recv() => match line {
                Some(line) => line,
                None => return,
            },
            _ = checks.tick() => {
                let now = clock.now();
                let Some(outcome) = budget.summary(now) else {
                    continue;
                };
                tracing::warn!(outcome, "refusals were not written to the audit: too many");
                Audit {
                    time: now,
                    who: "several".to_owned(),
                    method: "summary".to_owned(),
                    what: String::new(),
                    outcome,
                }
            }
        };
        if let Err(error) = store.append_audit(&line).await {
            tracing::error!(error = chain(&error), "cannot write a refusal to the audit");
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
            // Only the holder of the CA's key can issue its certificate.
            IdentityKind::Master => Ok(()),
            IdentityKind::Operator => match welcome.role(caller) {
                Some(_) => Ok(()),
                None => Err(NotAdmitted::NoOperator),
            },
            IdentityKind::Minion => match welcome.minions.get(caller.identity.id()) {
                None => Err(NotAdmitted::NotAccepted),
                Some(fingerprint) if *fingerprint == caller.fingerprint => Ok(()),
                Some(_) => Err(NotAdmitted::OtherKey),
            },
        }
    }

    fn role(&self, caller: &Caller) -> Option<Role> {
        let welcome = self.welcome.read().unwrap_or_else(PoisonError::into_inner);
        welcome.role(caller)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn refused(&self, peer: &Peer, path: &str, reason: &str) {
        let method = path.trim_start_matches("/halite.v1.");
        // The caller controls the path: truncate it, and never let it break a line.
        let method: String = method
            .chars()
            .filter(|c| !c.is_control())
            .take(80)
            .collect();
        let source = match peer.caller {
            Some(_) => peer.name(),
            None => peer.source(),
        };
        self.note(&source, self.refusal(peer.name(), &method, reason));
    }

    fn handshake_failed(&self, address: SocketAddr, reason: &str) {
        let line = self.refusal(address.ip().to_string(), "handshake", reason);
        self.note(&source(address.ip()), line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
    use crate::names::minion;

    #[tokio::test]
    async fn only_a_change_that_may_cut_a_connection_wakes_the_connections() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&directory.path().join("store.db"))
            .await
            .unwrap();
        let gate = Gate::load(Arc::new(store), Arc::new(SystemClock), Arc::default())
            .await
            .unwrap();
        let changes = gate.changes();
        for number in 0..1000 {
            gate.open(&minion(&format!("m{number}")), "its key");
            gate.open(&minion(&format!("m{number}")), "its key");
        }
        assert_eq!(*changes.borrow(), 0, "1000 new minions");
        gate.open(&minion("m7"), "another key");
        assert_eq!(*changes.borrow(), 1);
        gate.close(&minion("m7"), None);
        assert_eq!(*changes.borrow(), 2);
    }
}
