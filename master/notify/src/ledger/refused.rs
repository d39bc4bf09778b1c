//! Findings that a sink refuses for their content, for example because a program behind it cannot
//! read the message. Each request that fails is followed by a smaller one, so such a finding is
//! alone in the end. From then on the others do not wait for it; it is sent again, alone, after the
//! longest pause.

use halite_pillar::sink_target::SinkTarget;
use halite_store::Millis;
use serde::{Deserialize, Serialize};

use super::{Batch, BatchItem, ERROR, Ledger, News, PAUSES, SinkRecord};
use crate::notice::Notice;

/// A finding that a sink has refused in a request of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RefusedNotice {
    /// The finding.
    pub notice: Notice,
    /// The time of the last attempt.
    pub last: Millis,
    /// The reason of the last one.
    pub error: String,
}

impl SinkRecord {
    /// The findings that the sink has refused.
    pub fn refused(&self) -> impl Iterator<Item = &RefusedNotice> {
        self.refused.values()
    }
}

impl Ledger {
    /// Notes that a sink has refused a request for its content. With one finding, the sink refuses
    /// that finding; otherwise the next request is smaller.
    pub fn refused(&mut self, sink: &str, batch: &Batch, error: &str, now: Millis) {
        let [item] = batch.as_slice() else {
            return self.failed(sink, error, now);
        };
        let record = self.sinks.entry(sink.to_owned()).or_default();
        if let News::Resolved(_) = item.news {
            // The finding is over: nothing will make the sink take this.
            record.known.remove(&item.fingerprint);
        } else {
            let refused = RefusedNotice {
                notice: item.notice.clone(),
                last: now,
                error: error.chars().take(ERROR).collect(),
            };
            record.refused.insert(item.fingerprint.clone(), refused);
        }
        // The sink answers, so the others need not wait longer; but it may refuse all of them.
        if let Some(failure) = &mut record.failure {
            failure.last = now;
            failure.next = now + PAUSES.0;
        }
    }

    /// The sinks that refuse findings.
    pub fn refusing(&self) -> impl Iterator<Item = (&String, &SinkRecord)> {
        let sinks = self.sinks.iter();
        sinks.filter(|(_, record)| !record.refused.is_empty())
    }

    /// The refused finding that was last sent the longest time ago, if it is time for one.
    pub(super) fn once_more(&self, sink: &SinkTarget, now: Millis) -> Option<Batch> {
        let record = self.sinks.get(&sink.name)?;
        let last = record.refused.values().map(|one| one.last).max()?;
        // It is later only if the clock was set back.
        if last <= now && now - last < PAUSES.1 {
            return None;
        }
        let refused = record.refused.iter().filter_map(|(fingerprint, one)| {
            let followed = self.findings.get(fingerprint)?;
            let is_due = followed.is_seen && followed.notice.severity >= sink.severity;
            is_due.then_some((fingerprint, followed, one.last))
        });
        let (fingerprint, followed, _) = refused.min_by_key(|(.., last)| *last)?;
        let news = match record.known.contains_key(fingerprint) {
            true => News::Persists,
            false => News::New,
        };
        Some(vec![BatchItem {
            fingerprint: fingerprint.clone(),
            notice: followed.notice.clone(),
            news,
        }])
    }
}

#[cfg(test)]
#[path = "refused_tests.rs"]
mod tests;
