//! Sends new and resolved findings to the sinks that the cluster document declares.
//!
//! Each round of the checks goes into the ledger, which says what is due. A request runs in a task
//! of its own with a limit, one for each sink at a time, so that a sink that hangs delays neither a
//! round nor another sink. The ledger is stored after each change: a request whose outcome was not
//! stored is sent once more by the next master.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use halite_api::{
    CheckState, FailedAttempts, NotificationSink, RefusedFinding, SinkList, SinkTest, SinkTests,
    Time,
};
use halite_core::app::App;
use halite_core::clock::rfc3339;
use halite_core::refusal::Refusal;
use halite_errors::chain;
use halite_fleet::jobs::Jobs;
use halite_notify::client::{LIMIT, post};
use halite_notify::ledger::{Batch, Ledger, RefusedNotice, SinkFailure, SinkRecord};
use halite_notify::notice::{Notice, notices};
use halite_notify::payload::{Envelope, body, test_batch};
use halite_pillar::notify::NoticeSeverity;
use halite_pillar::sink_target::SinkTarget;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep};

use crate::health_rounds::LatestHealth;

/// The interval at which the ledger is asked what is due, in addition to each round.
const TICK: Duration = Duration::from_secs(10);
/// The pause after a store that could not be read.
const AGAIN: Duration = Duration::from_secs(10);

/// The notifications of one master.
pub struct Notifier {
    jobs: Arc<Jobs>,
    ledger: Mutex<Ledger>,
    /// The longest time of a request.
    limit: Duration,
}

/// The outcome of a request.
struct SentBatch {
    sink: String,
    batch: Batch,
    failure: Option<SendFailure>,
}

/// The reason why a request failed.
struct SendFailure {
    error: String,
    /// The sink refuses its content.
    is_about_content: bool,
}

/// The requests that are under way, and what is stored.
#[derive(Default)]
struct UnderWay {
    requests: JoinSet<SentBatch>,
    busy: BTreeSet<String>,
    stored: String,
}

impl Notifier {
    /// Notifications about the cluster of these jobs; none has been sent.
    #[must_use]
    pub fn new(jobs: Arc<Jobs>) -> Self {
        Self {
            jobs,
            ledger: Mutex::default(),
            limit: LIMIT,
        }
    }

    fn app(&self) -> &App {
        self.jobs.app()
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends what is due after each round; never returns.
    pub async fn run(&self, mut rounds: watch::Receiver<LatestHealth>) {
        let mut under_way = self.load().await;
        let mut ticks = interval(TICK);
        loop {
            tokio::select! {
                Ok(()) = rounds.changed() => {
                    let latest = rounds.borrow_and_update().clone();
                    self.take(&latest);
                }
                Some(ended) = under_way.requests.join_next() => match ended {
                    Ok(sent) => self.finish(&mut under_way, &sent),
                    // It panicked, and its sink is not known.
                    Err(_) => under_way.busy.clear(),
                },
                _ = ticks.tick() => {}
            }
            self.send(&mut under_way).await;
            self.store(&mut under_way).await;
        }
    }

    /// Reads the stored ledger. Without it, everything would be sent again.
    async fn load(&self) -> UnderWay {
        let stored = loop {
            match self.app().store.notifications().await {
                Ok(Some(stored)) => break stored,
                // Nothing is stored until there is something to store.
                Ok(None) => break Ledger::default().text().unwrap_or_default(),
                Err(error) => {
                    tracing::error!(error = chain(&error), "cannot read the notifications");
                    sleep(AGAIN).await;
                }
            }
        };
        match Ledger::read(&stored) {
            Ok(ledger) => *self.ledger() = ledger,
            Err(error) => {
                tracing::warn!(%error, "the stored notifications are unreadable: all findings are sent again");
            }
        }
        UnderWay {
            stored,
            ..UnderWay::default()
        }
    }

    /// Takes the latest round.
    fn take(&self, latest: &LatestHealth) {
        let now = self.app().clock.now();
        match (&latest.stale, &latest.round) {
            // It says nothing about the findings of the last round.
            (Some(reason), _) => self.ledger().add(stale(reason, now)),
            (None, Some(round)) => self.ledger().observe(notices(round.health(), now), now),
            (None, None) => self.ledger().forget_unknown(),
        }
    }

    /// Starts the requests that are due.
    async fn send(&self, under_way: &mut UnderWay) {
        let app = self.app();
        // Another master may act for the cluster.
        if app.isolation.reason().is_some() {
            return;
        }
        let Ok(snapshot) = self.jobs.declarations().in_force().await else {
            return;
        };
        let cluster = &snapshot.declaration().cluster;
        let now = app.clock.now();
        let mut ledger = self.ledger();
        ledger.retain(|name| cluster.notify.sinks.contains_key(name));
        for target in cluster.sink_targets() {
            if under_way.busy.contains(&target.name) {
                continue;
            }
            ledger.accept(&target);
            ledger.settle(&target, now);
            let Some(batch) = ledger.due(&target, now) else {
                continue;
            };
            under_way.busy.insert(target.name.clone());
            let request = self.request(target, batch);
            under_way.requests.spawn(request);
        }
    }

    /// A request, to its end.
    fn request(
        &self,
        target: SinkTarget,
        batch: Batch,
    ) -> impl Future<Output = SentBatch> + Send + use<> {
        let app = self.app();
        let envelope = Envelope {
            cluster: &app.config.cluster,
            sink: &target.name,
            now: app.clock.now(),
        };
        let json = body(target.form, envelope, &batch).to_string();
        let limit = self.limit;
        async move {
            let error = post(&target, json, limit).await.err();
            SentBatch {
                sink: target.name,
                batch,
                failure: error.map(|error| SendFailure {
                    is_about_content: error.is_about_content(),
                    error: chain(&error),
                }),
            }
        }
    }

    /// Takes the outcome of a request.
    fn finish(&self, under_way: &mut UnderWay, sent: &SentBatch) {
        under_way.busy.remove(&sent.sink);
        let now = self.app().clock.now();
        let mut ledger = self.ledger();
        let troubles = |ledger: &Ledger| {
            let record = ledger.record(&sent.sink);
            record.map_or((false, 0), |record| {
                (record.failure.is_some(), record.refused().count())
            })
        };
        let before = troubles(&ledger);
        match &sent.failure {
            None => ledger.delivered(&sent.sink, &sent.batch, now),
            Some(failure) if failure.is_about_content => {
                ledger.refused(&sent.sink, &sent.batch, &failure.error, now);
            }
            Some(failure) => ledger.failed(&sent.sink, &failure.error, now),
        }
        let after = troubles(&ledger);
        match &sent.failure {
            Some(SendFailure { error, .. }) if after.0 && !before.0 => {
                tracing::warn!(sink = sent.sink, error, "a sink takes no notifications");
            }
            Some(SendFailure { error, .. }) if after.1 > before.1 => {
                tracing::warn!(sink = sent.sink, error, "a sink refuses a finding");
            }
            None if before.0 => {
                tracing::info!(sink = sent.sink, "a sink takes notifications again");
            }
            _ => {}
        }
    }

    /// Stores a changed ledger, and shows the failing sinks to `ctl health`.
    async fn store(&self, under_way: &mut UnderWay) {
        let (text, troubles) = {
            let ledger = self.ledger();
            let failing = ledger.failing();
            let failing = failing.map(|(name, failure)| trouble(name, failure));
            let refusing = ledger.refusing();
            let refusing = refusing.filter_map(|(name, record)| refusal(name, record));
            (ledger.text(), failing.chain(refusing).collect())
        };
        self.app().sinks.put(troubles);
        let text = match text {
            Ok(text) if text != under_way.stored => text,
            _ => return,
        };
        match self.app().store.put_notifications(&text).await {
            Ok(()) => under_way.stored = text,
            // The next step tries again.
            Err(error) => {
                tracing::error!(error = chain(&error), "cannot store the notifications");
            }
        }
    }

    /// The declared sinks, each with its last attempts.
    ///
    /// # Errors
    /// No declaration is in force.
    pub async fn list(&self) -> Result<SinkList, Refusal> {
        let snapshot = self.jobs.declarations().in_force().await?;
        let ledger = self.ledger();
        let sink = |target: SinkTarget| {
            let record = ledger.record(&target.name);
            NotificationSink {
                form: target.form.as_str().to_owned(),
                origin: target.origin(),
                severity: match target.severity {
                    NoticeSeverity::Failure => CheckState::Failure,
                    NoticeSeverity::Warning => CheckState::Warning,
                },
                findings: ledger.present(target.severity),
                last_success: record
                    .and_then(|record| record.succeeded)
                    .map(Time::from_millis),
                failure: record
                    .and_then(|record| record.failure.as_ref())
                    .map(attempts),
                refused: record
                    .map(|record| record.refused().map(refused).collect())
                    .unwrap_or_default(),
                name: target.name,
            }
        };
        let targets = snapshot.declaration().cluster.sink_targets();
        Ok(SinkList {
            sinks: targets.into_iter().map(sink).collect(),
        })
    }

    /// Sends a test notification to a sink, or with an empty name to each. What a sink that has
    /// failed still lacks is sent within ten seconds of a success.
    ///
    /// # Errors
    /// No declaration is in force, or there is no such sink.
    pub async fn test(&self, operator: &str, sink: &str) -> Result<SinkTests, Refusal> {
        let snapshot = self.jobs.declarations().load().await?;
        let mut targets = snapshot.declaration().cluster.sink_targets();
        if !sink.is_empty() {
            let names: Vec<&str> = targets.iter().map(|one| one.name.as_str()).collect();
            if !names.contains(&sink) {
                return Err(Refusal::not_found(match names.as_slice() {
                    [] => {
                        format!("there is no sink {sink:?}; declare one below `notify.sinks`")
                    }
                    names => format!(
                        "there is no sink {sink:?}; the sinks are {}",
                        names.join(", ")
                    ),
                }));
            }
            targets.retain(|one| one.name == sink);
        }
        let now = self.app().clock.now();
        let requests = targets
            .into_iter()
            .map(|target| self.request(target, test_batch(operator, now)));
        let sent = futures_util::future::join_all(requests).await;
        let mut ledger = self.ledger();
        let result = |sent: SentBatch| {
            if sent.failure.is_none() {
                ledger.succeeded(&sent.sink, self.app().clock.now());
            }
            SinkTest {
                name: sent.sink,
                delivered: sent.failure.is_none(),
                error: sent.failure.map(|failure| failure.error),
            }
        };
        Ok(SinkTests {
            sinks: sent.into_iter().map(result).collect(),
        })
    }
}

/// The finding that the checks themselves fail.
fn stale(reason: &str, now: halite_store::Millis) -> Notice {
    Notice {
        check: "health".to_owned(),
        title: "The checks of the cluster run".to_owned(),
        severity: NoticeSeverity::Failure,
        host: None,
        message: format!("the findings are out of date: {reason}"),
        remedy: Some("`journalctl -u halite-master` on the master's host".to_owned()),
        since: now,
    }
}

fn trouble(name: &str, failure: &SinkFailure) -> String {
    format!(
        "the sink {name} has taken no notification since {}: {}",
        rfc3339(failure.since),
        failure.error
    )
}

/// The trouble with a sink that refuses findings. It names none of them: the sink would refuse this
/// as well. It has no count, so it stays the same finding when there are more.
fn refusal(name: &str, record: &SinkRecord) -> Option<String> {
    let first = record.refused().next()?;
    Some(format!(
        "the sink {name} refuses findings, which `ctl notify list` shows: {}",
        first.error
    ))
}

fn refused(refused: &RefusedNotice) -> RefusedFinding {
    RefusedFinding {
        check: refused.notice.check.clone(),
        host: refused.notice.host.clone(),
        message: refused.notice.message.clone(),
        last: Time::from_millis(refused.last),
        error: refused.error.clone(),
    }
}

fn attempts(failure: &SinkFailure) -> FailedAttempts {
    FailedAttempts {
        since: Time::from_millis(failure.since),
        attempts: failure.attempts,
        last: Time::from_millis(failure.last),
        next: Time::from_millis(failure.next),
        error: failure.error.clone(),
    }
}

#[cfg(test)]
#[path = "notifier_tests.rs"]
mod tests;
