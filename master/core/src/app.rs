//! The shared parts of the master: configuration, clock, store, CAs, connections and events.
//!
//! The daemon opens the store ([`Store::open`]), creates an [`App`] over it and its backend over
//! the app, and serves both.

use std::sync::Arc;

use halite_store::{Store, StoreError};

use crate::board::Board;
use crate::ca::{CaError, Cas, HALITE};
use crate::clock::Clock;
use crate::config::Config;
use crate::connections::Connections;
use crate::event_bus::EventBus;
use crate::gate::Gate;
use crate::isolation::Isolation;
use crate::metrics::Metrics;
use crate::own_operator::admit_own_operator;
use crate::roster::Roster;
use crate::sink_board::SinkBoard;
use crate::succession::Succession;

/// The shared parts of the master.
pub struct App {
    /// The content of the configuration file.
    pub config: Config,
    /// The time; tests set their own.
    pub clock: Arc<dyn Clock>,
    /// The record of keys, jobs, runs and events.
    pub store: Arc<Store>,
    /// The certificate authorities and the key pair of service accounts.
    pub cas: Arc<Cas>,
    /// The connected minions.
    pub connections: Arc<Connections>,
    /// The event bus.
    pub events: Arc<EventBus>,
    /// The identities that may connect. A change cuts open connections at once.
    pub gate: Arc<Gate>,
    /// The counters and gauges.
    pub metrics: Arc<Metrics>,
    /// The standbys.
    pub standbys: Roster,
    /// `true` while standbys and most minions are lost.
    pub isolation: Isolation,
    /// News of other masters.
    pub succession: Succession,
    /// The findings of the upkeep.
    pub upkeep: Board,
    /// The receivers of notifications that fail.
    pub sinks: SinkBoard,
    /// Held while a key changes hands: two requests for one id must not both find it free.
    pub enrolling: tokio::sync::Mutex<()>,
}

/// A shared part that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The CAs.
    #[error(transparent)]
    Ca(#[from] CaError),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl App {
    /// Opens the shared parts over an open store: loads the CAs, which `halite-master init`
    /// creates, and then the identities that may connect.
    ///
    /// # Errors
    /// A CA cannot be used, or the store fails.
    pub async fn open(
        config: Config,
        clock: Arc<dyn Clock>,
        store: Arc<Store>,
    ) -> Result<Arc<Self>, OpenError> {
        let cas = Cas::load(&config.state_dir)?;
        let epoch = cas.sign_epoch(store.epoch(), store.holder())?;
        let metrics: Arc<Metrics> = Arc::default();
        admit_own_operator(&config, store.as_ref(), clock.now()).await;
        let gate = Gate::load(Arc::clone(&store), Arc::clone(&clock), Arc::clone(&metrics)).await?;
        let events = EventBus::new(Arc::clone(&store), Arc::clone(&clock));
        Ok(Arc::new(Self {
            standbys: Roster::new(clock.now()),
            isolation: Isolation::new(&config.state_dir),
            succession: Succession::new(&config.state_dir, epoch, cas.certificate_pem(HALITE)?),
            config,
            clock,
            store,
            cas: Arc::new(cas),
            connections: Arc::default(),
            events: Arc::new(events),
            gate,
            metrics,
            upkeep: Board::default(),
            sinks: SinkBoard::default(),
            enrolling: tokio::sync::Mutex::new(()),
        }))
    }

    /// Uses the present CA of identities for the evidence of epochs. Evidence of the CA that signs
    /// stays as it is.
    ///
    /// # Errors
    /// The key of the CA cannot sign.
    pub fn follow_ca(&self) -> Result<(), CaError> {
        let trusted = self.cas.certificate_pem(HALITE)?;
        let signer = self.cas.certificates(HALITE)?;
        let present = self.succession.evidence();
        let evidence = match signer.first() {
            Some(signer) if present.is_proven(signer) => present,
            _ => self.cas.sign_epoch(present.number, &present.holder)?,
        };
        self.succession.follow_ca(evidence, trusted);
        Ok(())
    }
}
