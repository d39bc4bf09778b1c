//! Starts and stops the daemon: store, shared parts, backend, services, background tasks.

mod hand_over;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use halite_core::app::{App, OpenError};
use halite_core::clock::SystemClock;
use halite_core::config::{Config, KeptJobs};
use halite_core::descriptors;
use halite_core::refusal::Refusal;
use halite_core::succession;
use halite_core::succession::{NotStarted, Replaced};
use halite_core::supervision::supervise;
use halite_errors::chain;
use halite_standby::disk::CopyError;
use halite_standby::follow;
use halite_standby::follow::StandbyError;
use halite_standby::knowledge::Knowledge;
use halite_standby::listener;
use halite_store::{Millis, Store, StoreError, keep_good};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::backend;
use crate::backend::Backend;
use crate::metrics;
use crate::metrics::Exposition;
use crate::other_masters;
use crate::serve;
use crate::serve::ServeError;
use crate::watchdog;

pub use self::hand_over::run_hand_over;

/// The age at which events and audit lines are removed.
const KEEP: Millis = 90 * 24 * 60 * 60 * 1000;
/// The interval at which old events, audit lines and jobs are removed.
const PRUNE: Duration = Duration::from_secs(24 * 60 * 60);
/// Jobs that are removed in one transaction. The low states of many hosts are large, and other
/// users of the store must not wait long.
const AT_A_TIME: u32 = 20;
/// One day.
const DAY: Millis = 24 * 60 * 60 * 1000;

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
    background.spawn(async move { supervise("removal of old records", || prune(&pruned)).await });
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

async fn prune(app: &App) {
    let mut days = tokio::time::interval(PRUNE);
    loop {
        days.tick().await;
        match app.store.prune(app.clock.now() - KEEP).await {
            Ok(0) => {}
            Ok(removed) => tracing::info!(removed, "old events and audit lines removed"),
            Err(error) => tracing::error!(error = chain(&error), "cannot remove old events"),
        }
        match prune_unused(app.store.as_ref(), app.clock.now()).await {
            Ok(0) => {}
            Ok(removed) => tracing::info!(
                removed,
                "unused files, low states, certificates and tokens removed"
            ),
            Err(error) => tracing::error!(error = chain(&error), "cannot remove unused records"),
        }
        match prune_jobs(app.store.as_ref(), app.config.jobs, app.clock.now()).await {
            Ok(0) => {}
            Ok(removed) => tracing::info!(removed, "old jobs and orchestrations removed"),
            Err(error) => tracing::error!(error = chain(&error), "cannot remove old jobs"),
        }
    }
}

/// Removes the jobs and runs that the configuration does not retain, in bounded steps; returns
/// their number.
async fn prune_jobs(store: &Store, kept: KeptJobs, now: Millis) -> Result<u64, StoreError> {
    let before = now.saturating_sub(Millis::from(kept.keep_days).saturating_mul(DAY));
    let mut removed = 0;
    loop {
        // The newest job always stays: the id of the next one follows from it.
        match store
            .prune_jobs(before, kept.keep_last.max(1), AT_A_TIME)
            .await?
        {
            0 => break,
            some => removed += some,
        }
    }
    // An oversized store retains fewer old records.
    while store.size().await? > u64::from(kept.keep_mib) << 20 {
        match store.prune_jobs(now, 1, AT_A_TIME).await? {
            0 => break,
            some => removed += some,
        }
    }
    Ok(removed)
}

/// Removes unreferenced records in bounded steps; returns their number.
async fn prune_unused(store: &Store, now: Millis) -> Result<u64, StoreError> {
    let mut removed = 0;
    loop {
        match store.prune_unused(now, AT_A_TIME).await? {
            0 => return Ok(removed),
            some => removed += some,
        }
    }
}

/// Reports a state to systemd. The master also works without systemd's socket.
fn report(state: &str) {
    if let Err(error) = halite_cli::notify::notify(state) {
        tracing::warn!(%error, "cannot notify systemd");
    }
}

#[cfg(test)]
mod tests {
    use halite_core::names::minion;
    use halite_proto::ids::JobId;
    use halite_store::{Job, JobRow, JobStatus, StoredAnswer};

    use super::*;

    async fn finished_job(store: &Store, number: u64, text: &str) {
        let jid = JobId::from_number(number);
        let job = Job {
            jid: jid.clone(),
            function: "test.ping".into(),
            args_json: "{}".into(),
            bundle: None,
            test: false,
            operator: "root".into(),
            target: "a".into(),
            minions: vec![minion("a")],
            order: Vec::new(),
            created: 0,
            deadline: None,
            steady_deadline: None,
            request_id: None,
            status: JobStatus::Running,
            retcode: None,
            finished: None,
        };
        store
            .create_job(&job, &[JobRow::queued(&jid, &minion("a"), None)])
            .await
            .unwrap();
        let answer = StoredAnswer {
            retcode: 0,
            return_json: text.into(),
            error: String::new(),
            when: 0,
        };
        store
            .record_return(&jid, &minion("a"), &answer)
            .await
            .unwrap();
        store.finish_job(&jid, 0, 0).await.unwrap();
    }

    #[tokio::test]
    async fn jobs_are_retained_for_days_and_the_newest_for_ever() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&directory.path().join("store.db"))
            .await
            .unwrap();
        for number in 0..50 {
            finished_job(&store, number, "true").await;
        }
        let kept = KeptJobs {
            keep_days: 2,
            keep_last: 3,
            ..KeptJobs::default()
        };
        assert_eq!(prune_jobs(&store, kept, 2 * DAY).await.unwrap(), 0);
        assert_eq!(prune_jobs(&store, kept, 2 * DAY + 1).await.unwrap(), 47);
        let none = KeptJobs {
            keep_days: 0,
            keep_last: 0,
            ..KeptJobs::default()
        };
        assert_eq!(prune_jobs(&store, none, 2 * DAY).await.unwrap(), 2);
        assert_eq!(store.jobs(9).await.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_store_that_is_too_large_retains_less_than_its_days() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&directory.path().join("store.db"))
            .await
            .unwrap();
        for number in 0..40 {
            finished_job(&store, number, &"x".repeat(100_000)).await;
        }
        let kept = KeptJobs {
            keep_mib: 3,
            ..KeptJobs::default()
        };
        assert_eq!(prune_jobs(&store, kept, DAY).await.unwrap(), 20);
        assert!(store.size().await.unwrap() <= 3 << 20);
        let none = KeptJobs {
            keep_mib: 0,
            ..kept
        };
        assert_eq!(prune_jobs(&store, none, DAY).await.unwrap(), 19);
        assert_eq!(store.jobs(99).await.unwrap().len(), 1, "the newest stays");
    }
}
