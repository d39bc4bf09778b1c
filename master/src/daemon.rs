//! Starts and stops the daemon: store, shared parts, backend, services, background tasks.

mod hand_over;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use halite_core::app::{App, OpenError};
use halite_core::clock::SystemClock;
use halite_core::config::Config;
use halite_core::descriptors;
use halite_core::refusal::Refusal;
use halite_core::succession;
use halite_core::succession::{NotStarted, Replaced};
use halite_core::supervision::supervise;
use halite_standby::disk::CopyError;
use halite_standby::follow;
use halite_standby::follow::StandbyError;
use halite_standby::knowledge::Knowledge;
use halite_standby::listener;
use halite_store::{Store, StoreError, keep_good};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::backend;
use crate::backend::Backend;
use crate::metrics;
use crate::metrics::Exposition;
use crate::other_masters;
use crate::retention;
use crate::serve;
use crate::serve::ServeError;
use crate::standstill;
use crate::watchdog;

pub use self::hand_over::run_hand_over;

/// The longest time that a stop waits for running states of the target `master`.
const OWN_PART: Duration = Duration::from_secs(20);

/// The directory of this host's minion.
pub const MINION: &str = "/var/lib/halite/minion";

/// A failed start of the daemon.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The shared parts.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The backend.
    #[error(transparent)]
    Backend(#[from] Refusal),
    /// The services.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// This host is a standby, and cannot continue as one.
    #[error(transparent)]
    Standby(#[from] StandbyError),
    /// The note of a hand-over.
    #[error(transparent)]
    HandOver(#[from] CopyError),
    /// Another master has replaced this one.
    #[error(transparent)]
    Replaced(#[from] Replaced),
    /// It does not start.
    #[error(transparent)]
    NotStarted(#[from] NotStarted),
    /// A port.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// The reason of the operating system.
        source: std::io::Error,
    },
    /// A signal handler.
    #[error("cannot wait for signals")]
    Signal(#[source] std::io::Error),
    /// A thread.
    #[error("cannot start the thread that notices a pause of this process")]
    Thread(#[source] std::io::Error),
}

/// Runs the daemon until SIGTERM or SIGINT; notifies systemd when it serves.
///
/// # Errors
/// A part cannot be started; the text says which, and the remedy.
pub async fn run(config: Config) -> Result<(), DaemonError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(DaemonError::Signal)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(DaemonError::Signal)?;
    halite_proto::transport::install_crypto();
    descriptors::raise();
    let store = Arc::new(Store::open(&config.state_dir.join("store.db")).await?);
    succession::check(&config.state_dir, store.epoch())?;
    let app = App::open(config, Arc::new(SystemClock), Arc::clone(&store)).await?;
    for ca in app.cas.expired(app.clock.now()) {
        tracing::error!("{ca}");
    }
    standstill::watch(Arc::clone(&app)).map_err(DaemonError::Thread)?;
    other_masters::check(&app, Path::new(MINION)).await?;
    let listener = listen(app.config.listen).await?;
    let metrics_listener = listen(app.config.metrics).await?;
    let backend = backend::start(Arc::clone(&app)).await?;
    let mut background = JoinSet::new();
    serve_metrics(&app, &backend, metrics_listener, &mut background);
    let (damage, mut damaged) = mpsc::channel(1);
    let kept = Arc::clone(&store);
    background.spawn(async move {
        let keep = || async {
            let error = keep_good(Arc::clone(&kept)).await;
            // The receiver is missing only while the daemon ends.
            let _ = damage.send(error).await;
            std::future::pending::<()>().await;
        };
        supervise("the store's copy", keep).await;
    });
    let pruned = Arc::clone(&app);
    background.spawn(async move {
        let keep = || retention::keep(&pruned, retention::RemovalIntervals::default());
        supervise("removal of old records", keep).await;
    });
    let others = (Arc::clone(&app), Arc::clone(&backend));
    background.spawn(async move {
        let (app, backend) = others;
        let watch = || other_masters::watch(&app, backend.as_ref(), Path::new(MINION));
        supervise("the watch for other masters", watch).await;
    });
    let news = (Arc::clone(&app), Arc::clone(&backend));
    background.spawn(async move {
        let (app, backend) = news;
        let announce = || other_masters::announce(&app, backend.as_ref());
        supervise("news of the masters", announce).await;
    });
    let kept = Arc::clone(&backend);
    background.spawn(async move { supervise("upkeep", || kept.upkeep()).await });
    let checked = Arc::clone(&backend);
    background.spawn(async move { supervise("health", || checked.check_health()).await });
    let notified = Arc::clone(&backend);
    background.spawn(async move { supervise("notifications", || notified.notify()).await });
    if let Some(limit) = watchdog::limit() {
        let (app, backend) = (Arc::clone(&app), Arc::clone(&backend));
        background.spawn(async move {
            let feed = || watchdog::feed(&app, backend.as_ref(), limit, report);
            supervise("the watchdog", feed).await;
        });
    }
    tracing::info!(cluster = app.config.cluster, listen = %app.config.listen, "master serves");
    app.isolation.serves();
    report("READY=1");
    let ending = Arc::clone(&backend);
    let (end, ended) = oneshot::channel::<Option<DaemonError>>();
    let heard = Arc::clone(&app);
    let stop = async move {
        let reason = tokio::select! {
            _ = terminate.recv() => None,
            _ = interrupt.recv() => None,
            Some(error) = damaged.recv() => Some(error.into()),
            replaced = heard.succession.replaced() => Some(replaced.into()),
            () = heard.succession.hands_over() => {
                heard.standbys.end_streams();
                None
            }
        };
        // The receiver is read below.
        let _ = end.send(reason);
        report("STOPPING=1");
        tracing::info!("master stops");
        // Minions continue without the master and return later; the master's own states would be
        // cut off.
        if tokio::time::timeout(OWN_PART, ending.finish())
            .await
            .is_err()
        {
            tracing::warn!(
                "stopped while states of the target `master` were running: they count as interrupted"
            );
        }
    };
    serve::serve(app, backend, listener, stop).await?;
    background.shutdown().await;
    store.close().await;
    // A damaged store must take no more records.
    ended.await.ok().flatten().map_or(Ok(()), Err)
}

/// Runs the daemon of a standby until SIGTERM or SIGINT, or until the host is no longer a standby
/// or becomes the next master.
///
/// # Errors
/// The copy on this host cannot be used.
pub async fn run_standby(config: &Config) -> Result<(), DaemonError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(DaemonError::Signal)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(DaemonError::Signal)?;
    halite_proto::transport::install_crypto();
    descriptors::raise();
    let receiver = follow::open(config)?;
    let (minion, clock) = (PathBuf::from(MINION), Arc::new(SystemClock));
    let knowledge = Arc::new(Knowledge::new(
        config,
        minion,
        clock,
        receiver.epoch().clone(),
    ));
    report("READY=1");
    let asking = supervise("the watch for masters", || knowledge.watch());
    let answering = supervise("the port of a standby", || {
        listener::listen(Arc::clone(&knowledge))
    });
    tokio::select! {
        ended = follow::run(receiver, &knowledge) => Ok(ended?),
        _ = asking => Ok(()),
        _ = answering => Ok(()),
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        () = feed_watchdog() => Ok(()),
    }
}

/// Reports to systemd repeatedly that this process is alive; never returns.
async fn feed_watchdog() {
    let Some(limit) = watchdog::limit() else {
        return std::future::pending().await;
    };
    loop {
        report("WATCHDOG=1");
        tokio::time::sleep(limit / 4).await;
    }
}

async fn listen(address: std::net::SocketAddr) -> Result<TcpListener, DaemonError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| DaemonError::Listen { address, source })
}

/// Serves the metrics: on the open loopback port, and to Prometheus servers if some are declared.
fn serve_metrics(
    app: &Arc<App>,
    backend: &Backend,
    listener: TcpListener,
    background: &mut JoinSet<()>,
) {
    let exposition = Arc::new(Exposition::new(app, backend.health()));
    if let Some(port) = app.config.prometheus.clone() {
        let exposition = Arc::clone(&exposition);
        background.spawn(async move {
            let serve = || metrics::serve_tls(&port, &exposition);
            supervise("the metrics for Prometheus", serve).await;
        });
    }
    background.spawn(metrics::serve(listener, exposition));
}

/// Reports a state to systemd. The master also works without systemd's socket.
fn report(state: &str) {
    if let Err(error) = halite_cli::notify::notify(state) {
        tracing::warn!(%error, "cannot notify systemd");
    }
}
