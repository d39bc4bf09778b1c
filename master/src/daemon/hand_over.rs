//! The daemon of a master that hands over: it serves its standbys until one of them has the master, and
//! makes its own host a standby of that one.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use halite_errors::chain;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{DaemonError, MINION, feed_watchdog, listen, report};
use crate::app::App;
use crate::ca::files;
use crate::clock::SystemClock;
use crate::config::Config;
use crate::standby::hand_over::{Decision, HandOver, Phase, forget};
use crate::standby::mark;
use crate::store::{SqliteStore, Store};
use crate::{descriptors, other_masters, serve, succession};

/// The time in which the standby has to take what it lacks.
const OFFER: Duration = Duration::from_secs(120);
/// The pause between two questions whether another host has the master.
const PAUSE: Duration = Duration::from_millis(500);

/// Why this life of the daemon has ended.
enum End {
    /// By a signal.
    Stopped,
    /// The hand-over has failed: this host has the master still.
    Failed,
    /// Another host has the master.
    Replaced,
}

/// Runs the daemon of a master that hands over, until another host has the master, the standby was not
/// there in time, or SIGTERM or SIGINT. The process ends each time, and systemd starts it again as what
/// its host is then: no signal is lost between two lives of one process.
///
/// # Errors
/// A part cannot be started, or a note cannot be written.
pub async fn run_hand_over(config: Config, note: HandOver) -> Result<(), DaemonError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(DaemonError::Signal)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(DaemonError::Signal)?;
    halite_proto::transport::install_crypto();
    descriptors::raise();
    let store = Arc::new(SqliteStore::open(&config.state_dir.join("store.db")).await?);
    if succession::check(&config.state_dir, store.epoch()).is_err() {
        // It was ended before it was a standby.
        store.close().await;
        return stand_by(&config, &note);
    }
    let shared = Arc::clone(&store) as Arc<dyn Store>;
    let app = App::open(config.clone(), Arc::new(SystemClock), shared).await?;
    let listener = listen(config.listen).await?;
    tracing::info!(to = note.to, "this master hands over");
    report("READY=1");
    let decision = Arc::new(Decision::new(config.clone(), note));
    let (end, ended) = oneshot::channel();
    let asking = (Arc::clone(&app), Arc::clone(&decision));
    let stop = async move {
        let (app, decision) = asking;
        let reason = tokio::select! {
            _ = terminate.recv() => End::Stopped,
            _ = interrupt.recv() => End::Stopped,
            _ = app.succession.replaced() => End::Replaced,
            end = until_taken(&app, &decision) => end,
            () = feed_watchdog() => End::Stopped,
        };
        // The receiver is read below.
        let _ = end.send(reason);
        app.standbys.end_streams();
        report("STOPPING=1");
    };
    serve::serve_standbys(app, Arc::clone(&decision), listener, stop).await?;
    store.close().await;
    match ended.await {
        Ok(End::Replaced) => stand_by(&config, &decision.note()),
        Ok(End::Failed) => {
            let reason = decision.note().reason;
            tracing::error!(reason, "the master is not handed over and goes on here");
            Ok(())
        }
        Ok(End::Stopped) | Err(_) => Ok(()),
    }
}

/// Waits until another host has the master, or the hand-over has failed.
async fn until_taken(app: &App, decision: &Decision) -> End {
    let end = Instant::now() + OFFER;
    let note = decision.note();
    loop {
        tokio::time::sleep(PAUSE).await;
        if decision.note().phase == Phase::Failed {
            return End::Failed;
        }
        if other_masters::ask(app, &note.masters, Path::new(MINION))
            .await
            .is_err()
        {
            return End::Replaced;
        }
        if Instant::now() < end {
            continue;
        }
        let reason = format!(
            "{} did not take what it lacks within {} s: is halite-master running there?",
            note.to,
            OFFER.as_secs()
        );
        match decision.give_up(&reason) {
            Ok(true) => return End::Failed,
            // It is decided: only the next master can go on.
            Ok(false) => {}
            Err(error) => {
                tracing::error!(error = chain(&error), "cannot give the hand-over up");
            }
        }
    }
}

/// Makes this host a standby of the next master, in the words of `halite.services.standby.masters`.
fn stand_by(config: &Config, note: &HandOver) -> Result<(), DaemonError> {
    let text = format!("# Written by Halite.\n{}\n", note.masters.join("\n"));
    files::write(&mark(config), &text, 0o600)
        .map_err(|error| DaemonError::Open(crate::app::OpenError::Ca(error)))?;
    // Last: until then the next start makes the host a standby.
    forget(config)?;
    tracing::info!(master = note.to, "this host is a standby from now on");
    Ok(())
}
