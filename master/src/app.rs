//! What the parts of the master share, and the seam between the network services and the engine.
//!
//! The services (`serve`) authenticate, authorise, audit, enrol and sign; the engine compiles,
//! dispatches and orchestrates. The engine holds an [`App`]; the services hold an [`App`] and a
//! `dyn` [`Engine`]. `main` builds both: [`crate::store::SqliteStore::open`], [`App::open`], then
//! `crate::jobs::start(app.clone()).await?` (which returns `Arc<dyn Engine>` and takes up again
//! what a restart interrupted), then `serve::serve`.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::Stream;
use halite_proto::v1;
use halite_states::low::Chunk;
use serde_json::Value;

use crate::ca::{CaError, Cas};
use crate::clock::Clock;
use crate::config::Config;
use crate::hub::Hub;
use crate::keys::Gate;
use crate::metrics::Metrics;
use crate::store::{Store, StoreError};

/// The shared parts of the master.
pub struct App {
    /// The configuration file's content.
    pub config: Config,
    /// The time; tests bring their own.
    pub clock: Arc<dyn Clock>,
    /// What happened.
    pub store: Arc<dyn Store>,
    /// The certificate authorities and the service-account key pair.
    pub cas: Arc<Cas>,
    /// Connected minions and the event bus.
    pub hub: Arc<Hub>,
    /// Which identities may come in; changes cut open connections at once.
    pub gate: Arc<Gate>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Held while a key changes hands: two requests for one id must not both find it free.
    pub enrolling: tokio::sync::Mutex<()>,
}

/// Why the shared parts cannot be brought up.
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
    /// Brings up what the parts share: loads the CAs (`halite-master init` made them), then the
    /// gate, from a store that is open already.
    ///
    /// # Errors
    /// A CA cannot be used, or the store fails.
    pub async fn open(
        config: Config,
        clock: Arc<dyn Clock>,
        store: Arc<dyn Store>,
    ) -> Result<Arc<Self>, OpenError> {
        let cas = Cas::load(&config.state_dir, clock.now())?;
        let metrics: Arc<Metrics> = Arc::default();
        let gate = Gate::load(Arc::clone(&store), Arc::clone(&clock), Arc::clone(&metrics)).await?;
        let hub = Hub::new(Arc::clone(&store), Arc::clone(&clock));
        Ok(Arc::new(Self {
            config,
            clock,
            store,
            cas: Arc::new(cas),
            hub,
            gate,
            metrics,
            enrolling: tokio::sync::Mutex::new(()),
        }))
    }
}

/// What kind of refusal it is: decides the gRPC status and ctl's exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    /// The request makes no sense as it stands.
    Invalid,
    /// There is no such thing.
    NotFound,
    /// Not allowed for this caller.
    Denied,
    /// It stands against the present state (exists already, needs force, is busy).
    Conflict,
    /// Not now; the same request may succeed later.
    Unavailable,
    /// A fault of the master.
    Internal,
}

/// Why something was not done: what is wrong, where, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// What kind it is.
    pub kind: RefusalKind,
    /// For people. Never a secret.
    pub message: String,
}

impl Refusal {
    /// Makes a refusal.
    pub fn new(kind: RefusalKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// The request makes no sense as it stands.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(RefusalKind::Invalid, message)
    }

    /// There is no such thing.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(RefusalKind::NotFound, message)
    }

    /// Not allowed for this caller.
    pub fn denied(message: impl Into<String>) -> Self {
        Self::new(RefusalKind::Denied, message)
    }

    /// It stands against the present state.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(RefusalKind::Conflict, message)
    }

    /// A fault of the master.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(RefusalKind::Internal, message)
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Self::internal(error.to_string())
    }
}

/// A boxed answer of the engine.
pub type EngineFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, Refusal>> + Send + 'a>>;

/// Events of one job or run; ends after the one with `last`. Dropping it stops watching, never the
/// job.
pub type EventStream = Pin<Box<dyn Stream<Item = Result<v1::Event, Refusal>> + Send>>;

/// What the services need from compiler, job engine and orchestration.
pub trait Engine: Send + Sync {
    /// `Operator.Status`: the whole document.
    fn status(&self) -> EngineFuture<'_, Value>;
    /// `Operator.Show`.
    fn show(&self, request: v1::ShowRequest) -> EngineFuture<'_, Value>;
    /// `Operator.Run`. `operator` is the name in the caller's certificate.
    fn run<'a>(
        &'a self,
        operator: &'a str,
        request: v1::RunRequest,
    ) -> EngineFuture<'a, EventStream>;
    /// `Operator.Orchestrate`.
    fn orchestrate<'a>(
        &'a self,
        operator: &'a str,
        request: v1::OrchestrateRequest,
    ) -> EngineFuture<'a, EventStream>;
    /// `Operator.ListJobs`.
    fn list_jobs(&self, limit: u32) -> EngineFuture<'_, Value>;
    /// `Operator.ShowJob`.
    fn show_job<'a>(&'a self, jid: &'a str) -> EngineFuture<'a, Value>;
    /// `Operator.AddNode`: validates and writes the node document (idempotent). Token and command
    /// are made by the caller.
    fn add_node<'a>(
        &'a self,
        operator: &'a str,
        request: &'a v1::AddNodeRequest,
    ) -> EngineFuture<'a, ()>;
    /// The chunk of this minion's part of `job` whose tag is `tag`, if it is a state that asks for
    /// a certificate (`x509.certificate`, `kubeconfig.managed`) and the job is not answered yet; a
    /// refusal otherwise. What may be signed is read from its arguments, and from nothing else.
    fn sign_allowed<'a>(
        &'a self,
        minion: &'a str,
        job: &'a str,
        tag: &'a str,
    ) -> EngineFuture<'a, Chunk>;
    /// A file by the SHA-256 of its content, if this minion's part of `job` refers to it. As a
    /// stream of pieces, so that a large bundle file never lies in memory whole.
    fn fetch<'a>(
        &'a self,
        minion: &'a str,
        job: &'a str,
        sha256: &'a str,
    ) -> EngineFuture<'a, ByteStream>;
    /// A minion has said hello and stands in the hub; its facts are stored. Time to send what waits
    /// for it.
    fn on_connected<'a>(
        &'a self,
        minion: &'a str,
        hello: &'a v1::MinionHello,
    ) -> EngineFuture<'a, ()>;
    /// A message other than the hello. A return must be stored before this answers; then it sends
    /// `ReturnStored`.
    fn on_message<'a>(
        &'a self,
        minion: &'a str,
        message: v1::MinionMessage,
    ) -> EngineFuture<'a, ()>;
    /// The stream of a minion ended.
    fn on_disconnected<'a>(&'a self, minion: &'a str) -> EngineFuture<'a, ()>;
    /// The master is about to stop: begins nothing of its own any more, and waits for what it is
    /// at.
    fn finish(&self) -> EngineFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}

/// Pieces of a file.
pub type ByteStream = Pin<Box<dyn Stream<Item = Result<Vec<u8>, Refusal>> + Send>>;
