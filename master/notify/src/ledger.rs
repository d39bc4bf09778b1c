//! The findings of the last rounds and what each sink knows of them: from both follows what is due.
//!
//! There is no queue. A sink that is down for an hour gets the difference between its knowledge and
//! the present findings once it is back, in batches of a limited size; what appeared and was
//! resolved in between is not sent. The knowledge of the sinks is stored, so that a master that
//! restarts or takes over repeats nothing and forgets no resolution.

mod refused;

use std::collections::{BTreeMap, BTreeSet};

use halite_pillar::notify::{NoticeSeverity, SinkForm};
use halite_pillar::sink_target::SinkTarget;
use halite_store::Millis;
use serde::{Deserialize, Serialize};

use crate::notice::{Notice, short_digest};

pub use self::refused::RefusedNotice;

/// Rounds in a row that must have a finding before it is sent: a host that restarts a service
/// should not wake an operator.
const CONFIRMED: u32 = 2;
/// Rounds in a row without a finding after which it is resolved. After the master has started, some
/// findings need as long to appear again.
const GONE: u32 = 3;
/// The most findings of one request.
const BATCH: usize = 100;
/// The failed attempts after which a request has one finding. Each of them halves its size, because
/// a receiver may refuse large requests.
const SMALLEST: u32 = 6;
/// The most findings that are followed; the rest waits until one of them is resolved.
const MOST: usize = 1000;
/// The pauses after failed attempts: the first, which doubles, and the longest.
const PAUSES: (Millis, Millis) = (15_000, 5 * 60_000);
/// An Alertmanager forgets its alerts when it restarts, so each is sent again after this time.
const REFRESH: Millis = 5 * 60_000;
/// The most characters of an error that are stored.
const ERROR: usize = 300;

/// The findings, and the knowledge of each sink.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ledger {
    sinks: BTreeMap<String, SinkRecord>,
    /// The findings of the last rounds, by fingerprint.
    #[serde(skip)]
    findings: BTreeMap<String, Followed>,
}

/// A finding of the last rounds.
#[derive(Debug, Clone, PartialEq)]
struct Followed {
    notice: Notice,
    /// Rounds in a row with it.
    present: u32,
    /// Rounds in a row without it.
    absent: u32,
    /// A round of this master had it; otherwise it is only known from the store.
    is_seen: bool,
}

impl Followed {
    const fn is_confirmed(&self) -> bool {
        self.present >= CONFIRMED
    }
}

/// The knowledge of a sink, and its last attempts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SinkRecord {
    /// A digest of the form and the address; empty if they were not recorded.
    receiver: String,
    /// The findings that the sink knows and whose resolution it does not, by fingerprint.
    known: BTreeMap<String, KnownNotice>,
    /// The findings that the sink refused, by fingerprint. The others do not wait for them.
    refused: BTreeMap<String, RefusedNotice>,
    /// The time of the last request that succeeded.
    pub succeeded: Option<Millis>,
    /// The last attempts, if they failed.
    pub failure: Option<SinkFailure>,
}

/// A finding that a sink knows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct KnownNotice {
    notice: Notice,
    /// The time at which it was last sent.
    sent: Millis,
    /// The time at which it was resolved.
    #[serde(default)]
    ended: Option<Millis>,
}

/// Attempts that failed, one after the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkFailure {
    /// The time of the first one.
    pub since: Millis,
    /// Their number.
    pub attempts: u32,
    /// The time of the last one.
    pub last: Millis,
    /// The time of the next one.
    pub next: Millis,
    /// The reason of the last one.
    pub error: String,
}

/// The news about a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// The sink does not know it yet.
    New,
    /// The sink knows it, and it persists.
    Persists,
    /// It was resolved at this time.
    Resolved(Millis),
}

/// A finding in a request.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchItem {
    /// The fingerprint.
    pub fingerprint: String,
    /// The finding.
    pub notice: Notice,
    /// The news about it.
    pub news: News,
}

/// The content of a request: resolved findings first, then new ones, then those that persist.
pub type Batch = Vec<BatchItem>;

impl Ledger {
    /// Reads a stored ledger.
    ///
    /// # Errors
    /// The text is not a ledger.
    pub fn read(text: &str) -> Result<Self, serde_json::Error> {
        let mut ledger: Self = serde_json::from_str(text)?;
        // Until the first rounds are over, what was sent to a sink counts as present.
        for record in ledger.sinks.values() {
            let known = record
                .known
                .iter()
                .filter(|(_, known)| known.ended.is_none());
            let known = known.map(|(fingerprint, known)| (fingerprint, &known.notice));
            let refused = record.refused.iter();
            let refused = refused.map(|(fingerprint, refused)| (fingerprint, &refused.notice));
            for (fingerprint, notice) in known.chain(refused) {
                let followed = Followed {
                    notice: notice.clone(),
                    present: CONFIRMED,
                    absent: 0,
                    is_seen: false,
                };
                ledger.findings.insert(fingerprint.clone(), followed);
            }
        }
        Ok(ledger)
    }

    /// The ledger as text.
    ///
    /// # Errors
    /// None occur: its keys are texts.
    pub fn text(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    /// Takes the findings of a round.
    pub fn observe(&mut self, notices: Vec<Notice>, now: Millis) {
        let mut seen = BTreeSet::new();
        for notice in notices {
            let fingerprint = notice.fingerprint();
            // Several findings that differ only in their numbers count once.
            if seen.insert(fingerprint.clone()) {
                self.see(fingerprint, notice);
            }
        }
        self.findings.retain(|fingerprint, followed| {
            if !seen.contains(fingerprint) {
                followed.absent += 1;
                if !followed.is_confirmed() {
                    return false;
                }
            }
            followed.absent < GONE
        });
        let findings = &self.findings;
        for record in self.sinks.values_mut() {
            record
                .refused
                .retain(|fingerprint, _| findings.contains_key(fingerprint));
            for (fingerprint, known) in &mut record.known {
                match findings.contains_key(fingerprint) {
                    // It came back before the sink was notified of the resolution.
                    true => known.ended = None,
                    false => {
                        known.ended.get_or_insert(now);
                    }
                }
            }
        }
    }

    /// Takes a finding without a round, which says nothing about the others.
    pub fn add(&mut self, notice: Notice) {
        self.see(notice.fingerprint(), notice);
    }

    fn see(&mut self, fingerprint: String, notice: Notice) {
        let is_full = self.findings.len() >= MOST;
        match self.findings.get_mut(&fingerprint) {
            Some(followed) => {
                let since = followed.notice.since;
                followed.notice = Notice { since, ..notice };
                followed.present = followed.present.saturating_add(1);
                followed.absent = 0;
                followed.is_seen = true;
            }
            None if is_full => {}
            None => {
                let followed = Followed {
                    notice,
                    present: 1,
                    absent: 0,
                    is_seen: true,
                };
                self.findings.insert(fingerprint, followed);
            }
        }
    }

    /// Forgets the findings that no sink knows: there are no rounds that could resolve them. The
    /// others wait for the next round.
    pub fn forget_unknown(&mut self) {
        let sinks = &self.sinks;
        self.findings.retain(|fingerprint, followed| {
            followed.is_seen = false;
            let mut records = sinks.values();
            records.any(|record| record.known.contains_key(fingerprint))
        });
    }

    /// Takes the declared form and address of a sink to which no request is under way. Others than
    /// before are another receiver, which knows nothing.
    pub fn accept(&mut self, sink: &SinkTarget) {
        let record = self.sinks.entry(sink.name.clone()).or_default();
        let receiver = short_digest(&format!("{}\n{}", sink.form.as_str(), sink.url.reveal()));
        if !record.receiver.is_empty() && record.receiver != receiver {
            *record = SinkRecord::default();
        }
        record.receiver = receiver;
    }

    /// Forgets the sinks that are not declared any more. A declared one whose secret is unknown now
    /// keeps its record.
    pub fn retain(&mut self, is_declared: impl Fn(&str) -> bool) {
        self.sinks.retain(|name, _| is_declared(name));
    }

    /// The next request to a sink; `None` if nothing is due.
    #[must_use]
    pub fn due(&self, sink: &SinkTarget, now: Millis) -> Option<Batch> {
        let record = self.sinks.get(&sink.name);
        if let Some(failure) = record.and_then(|record| record.failure.as_ref()) {
            // A pause is never longer, unless the clock was set back.
            if failure.next > now && failure.next - now <= PAUSES.1 {
                return None;
            }
        }
        self.lacking(sink, now)
            .or_else(|| self.once_more(sink, now))
    }

    /// Forgets the failed attempts at a sink that lacks nothing any more, so that it does not count
    /// as failing until the next finding.
    pub fn settle(&mut self, sink: &SinkTarget, now: Millis) {
        if self.lacking(sink, now).is_none()
            && let Some(record) = self.sinks.get_mut(&sink.name)
        {
            record.failure = None;
        }
    }

    /// The news that a sink lacks and has not refused, as much as fits into a request.
    fn lacking(&self, sink: &SinkTarget, now: Millis) -> Option<Batch> {
        let none = SinkRecord::default();
        let record = self.sinks.get(&sink.name).unwrap_or(&none);
        let mut batch = self.resolved(sink, record, now);
        let item = |(fingerprint, followed): (&String, &Followed), news| BatchItem {
            fingerprint: fingerprint.clone(),
            notice: followed.notice.clone(),
            news,
        };
        let present = || {
            let all = self.findings.iter();
            let all = all.filter(|(_, one)| one.is_confirmed() && one.is_seen);
            let all = all.filter(|(_, one)| one.notice.severity >= sink.severity);
            all.filter(|(fingerprint, _)| !record.refused.contains_key(*fingerprint))
        };
        let new = present().filter(|(fingerprint, _)| !record.known.contains_key(*fingerprint));
        batch.extend(new.map(|one| item(one, News::New)));
        let repeat = match sink.form {
            SinkForm::Alertmanager => REFRESH,
            SinkForm::Webhook | SinkForm::Plain => sink.repeat,
        };
        let is_old = |known: &KnownNotice| known.sent > now || now - known.sent >= repeat;
        let known = present().filter_map(|one| Some((one, record.known.get(one.0)?)));
        let mut known: Vec<_> = known.collect();
        // All together: an operator reads one list, not one message for each finding.
        if known.iter().any(|(_, known)| is_old(known)) {
            // The oldest first: with more findings than fit into a request, each has its turn.
            known.sort_by_key(|(_, known)| known.sent);
            batch.extend(known.into_iter().map(|(one, _)| item(one, News::Persists)));
        }
        let failure = record.failure.as_ref();
        let attempts = failure.map_or(0, |failure| failure.attempts);
        let most = batch.len().min(BATCH);
        batch.truncate((most >> attempts.min(SMALLEST)).max(1));
        Some(batch).filter(|batch| !batch.is_empty())
    }

    /// The known findings that are resolved, or no longer severe enough for the sink.
    fn resolved(&self, sink: &SinkTarget, record: &SinkRecord, now: Millis) -> Batch {
        let is_wanted = |fingerprint: &String| {
            let followed = self.findings.get(fingerprint);
            followed.is_some_and(|followed| followed.notice.severity >= sink.severity)
        };
        let known = record.known.iter();
        let resolved = known.filter(|(fingerprint, _)| !is_wanted(fingerprint));
        let item = |(fingerprint, known): (&String, &KnownNotice)| BatchItem {
            fingerprint: fingerprint.clone(),
            notice: known.notice.clone(),
            news: News::Resolved(known.ended.unwrap_or(now)),
        };
        resolved.map(item).collect()
    }

    /// Notes that a sink has taken a request.
    pub fn delivered(&mut self, sink: &str, batch: &Batch, now: Millis) {
        let record = self.sinks.entry(sink.to_owned()).or_default();
        record.succeeded = Some(now);
        record.failure = None;
        // It takes what it has refused: each of them has another chance at once.
        let is_refused = |item: &BatchItem| record.refused.contains_key(&item.fingerprint);
        if batch.iter().any(is_refused) {
            record.refused.clear();
        }
        for item in batch {
            match item.news {
                News::Resolved(_) => drop(record.known.remove(&item.fingerprint)),
                News::New | News::Persists => {
                    let known = KnownNotice {
                        notice: item.notice.clone(),
                        sent: now,
                        ended: None,
                    };
                    record.known.insert(item.fingerprint.clone(), known);
                }
            }
        }
        // A round may have ended while the request was under way.
        let findings = &self.findings;
        for (fingerprint, known) in &mut record.known {
            if !findings.contains_key(fingerprint) {
                known.ended.get_or_insert(now);
            }
        }
    }

    /// Notes that an attempt has failed; the next one is after a pause.
    pub fn failed(&mut self, sink: &str, error: &str, now: Millis) {
        let record = self.sinks.entry(sink.to_owned()).or_default();
        let before = record.failure.take();
        let attempts = before.as_ref().map_or(0, |failure| failure.attempts) + 1;
        let (first, longest) = PAUSES;
        let pause = first << (attempts - 1).min(16);
        record.failure = Some(SinkFailure {
            since: before.map_or(now, |failure| failure.since),
            attempts,
            last: now,
            next: now + pause.min(longest),
            error: error.chars().take(ERROR).collect(),
        });
    }

    /// Notes that a sink has taken a request that was not due. What it has refused has another
    /// chance.
    pub fn succeeded(&mut self, sink: &str, now: Millis) {
        if let Some(record) = self.sinks.get_mut(sink) {
            record.refused.clear();
        }
        self.delivered(sink, &Batch::new(), now);
    }

    /// The last attempts at a sink.
    #[must_use]
    pub fn record(&self, sink: &str) -> Option<&SinkRecord> {
        self.sinks.get(sink)
    }

    /// The confirmed findings of at least this severity.
    #[must_use]
    pub fn present(&self, severity: NoticeSeverity) -> usize {
        let all = self.findings.values();
        all.filter(|one| one.is_confirmed() && one.notice.severity >= severity)
            .count()
    }

    /// The sinks whose last attempts failed.
    pub fn failing(&self) -> impl Iterator<Item = (&String, &SinkFailure)> {
        let sinks = self.sinks.iter();
        sinks.filter_map(|(name, record)| Some((name, record.failure.as_ref()?)))
    }
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
