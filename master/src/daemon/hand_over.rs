//! The daemon of a master that hands over: it serves its standbys until one of them has the master,
//! and makes its own host a standby of the new master.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use halite_api::{HandOver, HandOverPhase};
use halite_core::app::App;
use halite_core::ca::files;
use halite_core::clock::SystemClock;
use halite_core::config::Config;
use halite_core::descriptors;
use halite_core::succession;
use halite_errors::chain;
use halite_standby::hand_over::{Decision, forget};
use halite_standby::mark;
use halite_store::Store;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{DaemonError, MINION, feed_watchdog, listen, report};
use crate::other_masters;
use crate::serve;

/// The time within which the standby must receive more of the missing data.
const OFFER: Duration = Duration::from_secs(120);
/// Polling interval while another host takes over.
const PAUSE: Duration = Duration::from_millis(500);

/// The reason why this life of the daemon has ended.
enum End {
    /// By a signal.
    Stopped,
    /// The hand-over has failed: this host still has the master.
    Failed,
    /// Another host has the master.
    Replaced,
}

/// Runs the daemon of a master that hands over, until another host has the master, the standby did
/// not appear in time, or SIGTERM or SIGINT. Each of these ends the process, and systemd restarts
/// it in its host's new role: no signal is lost between two lives of one process.
///
/// # Errors
/// A part cannot be started, or a note cannot be written.
pub async fn run_hand_over(config: Config, note: HandOver) -> Result<(), DaemonError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(DaemonError::Signal)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(DaemonError::Signal)?;
    halite_proto::transport::install_crypto();
    descriptors::raise();
    let store = Arc::new(Store::open(&config.state_dir.join("store.db")).await?);
    if succession::check(&config.state_dir, store.epoch()).is_err() {
        // It was ended before it became a standby.
        store.close().await;
        return stand_by(&config, &note);
    }
    let shared = Arc::clone(&store);
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
            tracing::error!(
                reason,
                "the hand-over failed; the master continues on this host"
            );
            Ok(())
        }
        Ok(End::Stopped) | Err(_) => Ok(()),
    }
}

/// The deadline of an offer. It restarts whenever one stream has sent the standby more than any
/// stream before, because a store of gigabytes takes time; a stream that breaks repeatedly does not
/// extend it.
struct Offer {
    end: Instant,
    /// The most bytes that one stream has sent.
    most: u64,
}

impl Offer {
    fn begin(now: Instant) -> Self {
        Self {
            end: now + OFFER,
            most: 0,
        }
    }

    /// Records the bytes that the standby's stream has sent so far.
    fn note(&mut self, sent: u64, now: Instant) {
        if sent > self.most {
            self.most = sent;
            self.end = now + OFFER;
        }
    }

    fn is_over(&self, now: Instant) -> bool {
        now >= self.end
    }

    /// The reason why the standby `to` does not have the master at the deadline.
    fn reason(&self, to: &str) -> String {
        let seconds = OFFER.as_secs();
        if self.most == 0 {
            return format!(
                "{to} did not receive the missing data within {seconds} s: is halite-master running there?"
            );
        }
        format!(
            "{to} did not receive the missing data: it was sent {} KiB, and no more within {seconds} s; `journalctl -u halite-master` \
             there and here shows why",
            self.most.div_ceil(1024)
        )
    }
}

/// Waits until another host has the master, or the hand-over has failed.
async fn until_taken(app: &App, decision: &Decision) -> End {
    let note = decision.note();
    let mut offer = Offer::begin(Instant::now());
    loop {
        tokio::time::sleep(PAUSE).await;
        if decision.note().phase == HandOverPhase::Failed {
            return End::Failed;
        }
        if other_masters::ask(app, &note.masters, Path::new(MINION))
            .await
            .is_err()
        {
            return End::Replaced;
        }
        let now = Instant::now();
        let seen = app.standbys.seen();
        offer.note(seen.get(&note.to).map_or(0, |seen| seen.lag), now);
        if !offer.is_over(now) {
            continue;
        }
        match decision.give_up(&offer.reason(&note.to)) {
            Ok(true) => return End::Failed,
            // The move is decided: only the next master can continue.
            Ok(false) => {}
            Err(error) => {
                tracing::error!(error = chain(&error), "cannot cancel the hand-over");
            }
        }
    }
}

/// Makes this host a standby of the next master, in the format of
/// `halite.services.standby.masters`.
fn stand_by(config: &Config, note: &HandOver) -> Result<(), DaemonError> {
    let text = format!("# Written by Halite.\n{}\n", note.masters.join("\n"));
    files::write(&mark(config), &text, 0o600)
        .map_err(|error| DaemonError::Open(halite_core::app::OpenError::Ca(error)))?;
    // Last: the next start makes the host a standby until then.
    forget(config)?;
    tracing::info!(master = note.to, "this host is now a standby");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seconds after which an offer expires, if `sent` bytes have been sent at each second.
    fn over_at(sent: impl Fn(u64) -> u64) -> u64 {
        let begin = Instant::now();
        let mut offer = Offer::begin(begin);
        let mut seconds = 0;
        loop {
            let now = begin + Duration::from_secs(seconds);
            offer.note(sent(seconds), now);
            if offer.is_over(now) {
                return seconds;
            }
            seconds += 1;
        }
    }

    #[test]
    fn an_offer_lasts_while_more_of_a_large_store_is_sent() {
        let piece = 1 << 20;
        for (case, sent, over) in [
            ("not there", (|_| 0) as fn(u64) -> u64, 120),
            ("a piece each ten seconds", |s| s.min(600) / 10, 720),
            ("it stops in the middle", |s| s.min(90), 210),
            (
                "another stream gets further",
                |s| if s < 100 { s } else { (s - 60).min(300) },
                480,
            ),
            ("each stream breaks at the same place", |s| s % 50, 169),
        ] {
            assert_eq!(over_at(|seconds| sent(seconds) * piece), over, "{case}");
        }
    }

    #[test]
    fn the_reason_says_whether_the_standby_was_there() {
        let mut offer = Offer::begin(Instant::now());
        assert!(
            offer
                .reason("cp-2")
                .contains("is halite-master running there?")
        );
        offer.note(5 << 20, Instant::now());
        let reason = offer.reason("cp-2");
        assert!(reason.contains("it was sent 5120 KiB"), "{reason}");
    }
}
