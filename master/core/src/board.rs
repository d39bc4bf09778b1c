//! The findings of the upkeep, for `ctl health` and `ctl status`.

use std::sync::{Mutex, PoisonError};

use halite_api::{CertificateRenewal, CertificateRenewals, RenewalMode, RenewalState, Time};
use halite_proto::ids::{JobId, MinionId};
use halite_store::Millis;

use crate::clock::rfc3339;

/// The result of the last check of the hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RenewalBoard {
    /// The time of the check; `None` before the first one.
    pub looked: Option<Millis>,
    /// The time of the next check.
    pub next: Option<Millis>,
    /// `true` if the master renews certificates by itself.
    pub automatic: bool,
    /// The hosts with certificates that are due for renewal.
    pub hosts: Vec<HostRenewal>,
}

/// A host with certificates that are due for renewal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRenewal {
    /// The host.
    pub host: MinionId,
    /// The end of the certificate that expires first.
    pub ends: Millis,
    /// The state of the renewal.
    pub renewal: Renewal,
}

/// The state of a renewal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Renewal {
    /// An operator renews it.
    Operator,
    /// The renewal starts when this is over.
    Waits(String),
    /// This job renews them.
    Runs(JobId),
    /// The last attempt failed, or changed nothing.
    Failed {
        /// The reason.
        why: String,
        /// The time of the next attempt.
        next: Millis,
    },
}

/// A defragmentation of etcd that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// The reason, with its remedy.
    pub why: String,
    /// The time of the next attempt.
    pub next: Millis,
}

impl Trouble {
    /// The failure as one sentence.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{}; next attempt {}", self.why, minute(self.next))
    }
}

/// The result of the last check, which the upkeep writes and the status reads.
#[derive(Debug, Default)]
pub struct Board {
    seen: Mutex<RenewalBoard>,
    trouble: Mutex<Option<Trouble>>,
}

impl Board {
    /// The result of the last check.
    #[must_use]
    pub fn seen(&self) -> RenewalBoard {
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Replaces the result of the last check.
    pub fn put(&self, seen: RenewalBoard) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = seen;
    }

    /// The defragmentation of etcd whose last attempt failed.
    #[must_use]
    pub fn trouble(&self) -> Option<Trouble> {
        let trouble = self.trouble.lock();
        trouble.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the failed defragmentation.
    pub fn put_trouble(&self, trouble: Option<Trouble>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    /// Sets the time of the next check.
    pub fn put_next(&self, next: Millis) {
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .next = Some(next);
    }
}

impl HostRenewal {
    /// The note as one sentence.
    #[must_use]
    pub fn text(&self, now: Millis) -> String {
        let end = if self.ends <= now { "ended" } else { "end" };
        let renewal = match &self.renewal {
            Renewal::Operator => {
                "`certificates.renew` is `report`, so an operator renews them".to_owned()
            }
            Renewal::Waits(what) => format!("their renewal waits: {what}"),
            Renewal::Runs(job_id) => format!("job {job_id} renews them"),
            Renewal::Failed { why, next } => {
                format!("renewal failed: {why}; next attempt {}", minute(*next))
            }
        };
        let (host, day) = (&self.host, rfc3339(self.ends));
        let day = day.get(..10).unwrap_or(&day);
        format!("certificates of {host} {end} on {day}; {renewal}")
    }
}

/// A time to the minute, in UTC.
fn minute(time: Millis) -> String {
    let text = rfc3339(time);
    match text.get(..16) {
        Some(minute) => format!("{minute}Z"),
        None => text,
    }
}

/// Converts the result of a check to the status document.
#[must_use]
pub fn renewals(seen: &RenewalBoard) -> CertificateRenewals {
    let host = |note: &HostRenewal| {
        let (state, reason, job, next) = match &note.renewal {
            Renewal::Operator => (RenewalState::Reported, None, None, None),
            Renewal::Waits(what) => (RenewalState::Waits, Some(what), None, None),
            Renewal::Runs(job) => (RenewalState::Runs, None, Some(job), None),
            Renewal::Failed { why, next } => (RenewalState::Failed, Some(why), None, Some(*next)),
        };
        CertificateRenewal {
            host: note.host.clone(),
            expires: Time::from_millis(note.ends),
            state,
            reason: reason.cloned(),
            job: job.cloned(),
            next_attempt: next.map(Time::from_millis),
        }
    };
    CertificateRenewals {
        renew: match seen.automatic {
            true => RenewalMode::Automatic,
            false => RenewalMode::Report,
        },
        checked: seen.looked.map(Time::from_millis),
        next_check: seen.next.map(Time::from_millis),
        hosts: seen.hosts.iter().map(host).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::minion;

    #[test]
    fn a_note_says_what_ends_and_what_comes_next() {
        let note = |renewal| HostRenewal {
            host: minion("worker-1"),
            ends: 1_796_083_200_000,
            renewal,
        };
        let failed = note(Renewal::Failed {
            why: "worker-1: no space left".to_owned(),
            next: 1_796_000_000_000,
        });
        assert_eq!(
            failed.text(0),
            "certificates of worker-1 end on 2026-12-01; renewal failed: worker-1: no space left; next attempt 2026-11-30T00:53Z"
        );
        let reported = note(Renewal::Operator).text(1_796_083_200_000);
        assert_eq!(
            reported,
            "certificates of worker-1 ended on 2026-12-01; `certificates.renew` is `report`, so an operator renews them"
        );
        let seen = RenewalBoard {
            looked: Some(0),
            next: None,
            automatic: true,
            hosts: vec![failed],
        };
        let document = renewals(&seen);
        assert_eq!(document.renew, RenewalMode::Automatic);
        assert_eq!(document.hosts[0].state, RenewalState::Failed);
        let next = "2026-11-30T00:53:20.000Z".parse().unwrap();
        assert_eq!(document.hosts[0].next_attempt, Some(next));
        let board = Board::default();
        board.put(seen.clone());
        board.put_next(5);
        assert_eq!(board.seen().next, Some(5));
    }
}
