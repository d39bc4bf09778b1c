//! The share of each minion in the master's work. A minion that requests more waits, then is
//! refused; the others continue.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use halite_core::refusal::{Refusal, RefusalKind};
use halite_proto::ids::MinionId;
use tokio::time::Instant;

/// The longest time that a call waits for its share.
const LONGEST: Duration = Duration::from_secs(10);

/// Work that a minion can request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Work {
    /// A file of a job.
    Fetch,
    /// A certificate for a state.
    Sign,
    /// Its own certificate.
    Renew,
    /// The grains in a hello or later, which are stored.
    Grains,
    /// The progress of a job.
    Progress,
    /// A turn to restart services.
    Turn,
}

impl Work {
    /// The burst size, and the rate per second after that. A first highstate fetches and signs all
    /// its files and certificates at once.
    fn limits(self) -> (f64, f64) {
        match self {
            Self::Fetch => (4000.0, 200.0),
            Self::Sign => (200.0, 5.0),
            Self::Renew => (5.0, 0.02),
            Self::Grains => (30.0, 1.0),
            Self::Progress => (4000.0, 500.0),
            Self::Turn => (60.0, 2.0),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Fetch => "files",
            Self::Sign => "certificates of states",
            Self::Renew => "certificates of its own",
            Self::Grains => "grains",
            Self::Progress => "progress",
            Self::Turn => "turns",
        }
    }
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

/// The shares of all minions.
#[derive(Debug, Default)]
pub(super) struct Shares(Mutex<BTreeMap<(MinionId, Work), Bucket>>);

impl Shares {
    /// Waits for a minion's share of this work.
    ///
    /// # Errors
    /// The minion has requested so much that it would wait too long.
    pub(super) async fn wait(&self, minion: &MinionId, work: Work) -> Result<(), Refusal> {
        let Some(delay) = self.take(minion, work, LONGEST, Instant::now()) else {
            return Err(Refusal::new(
                RefusalKind::Unavailable,
                format!(
                    "{minion} asks for too many {} at once; try again later",
                    work.name()
                ),
            ));
        };
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        Ok(())
    }

    /// Takes a share if one is available now.
    pub(super) fn try_take(&self, minion: &MinionId, work: Work) -> bool {
        self.take(minion, work, Duration::ZERO, Instant::now())
            .is_some()
    }

    /// The time to wait; `None`, without taking a share, if it is longer than `longest`.
    fn take(
        &self,
        minion: &MinionId,
        work: Work,
        longest: Duration,
        now: Instant,
    ) -> Option<Duration> {
        let (burst, rate) = work.limits();
        let mut buckets = self.buckets();
        let bucket = buckets.entry((minion.clone(), work)).or_insert(Bucket {
            tokens: burst,
            at: now,
        });
        let passed = now.saturating_duration_since(bucket.at).as_secs_f64();
        bucket.tokens = (bucket.tokens + passed * rate).min(burst);
        bucket.at = now;
        let delay = Duration::from_secs_f64(((1.0 - bucket.tokens) / rate).max(0.0));
        if delay > longest {
            return None;
        }
        bucket.tokens -= 1.0;
        Some(delay)
    }

    fn buckets(&self) -> MutexGuard<'_, BTreeMap<(MinionId, Work), Bucket>> {
        // Nothing panics while holding the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use halite_core::names::minion;

    use super::*;

    #[test]
    fn a_minion_that_asks_too_much_waits_then_is_refused_and_others_do_not() {
        let shares = Shares::default();
        let now = Instant::now();
        for _ in 0..200 {
            let delay = shares.take(&minion("a"), Work::Sign, LONGEST, now);
            assert_eq!(delay, Some(Duration::ZERO));
        }
        for number in 1..=50 {
            let delay = shares.take(&minion("a"), Work::Sign, LONGEST, now).unwrap();
            let wanted = Duration::from_millis(200 * number);
            assert!(
                delay.abs_diff(wanted) < Duration::from_millis(1),
                "{delay:?}"
            );
        }
        assert_eq!(shares.take(&minion("a"), Work::Sign, LONGEST, now), None);
        for (id, work) in [("b", Work::Sign), ("a", Work::Fetch)] {
            let delay = shares.take(&minion(id), work, LONGEST, now);
            assert_eq!(delay, Some(Duration::ZERO));
        }
        // A refused call takes no share.
        let later = now + Duration::from_millis(250);
        assert!(
            shares
                .take(&minion("a"), Work::Sign, LONGEST, later)
                .is_some()
        );
    }

    #[test]
    fn progress_over_the_share_is_left_out_and_comes_again_later() {
        let shares = Shares::default();
        let now = Instant::now();
        let taken = |now: Instant| {
            let share = |_: &i32| {
                shares
                    .take(&minion("a"), Work::Progress, Duration::ZERO, now)
                    .is_some()
            };
            (0..10_000).filter(share).count()
        };
        assert_eq!(taken(now), 4000);
        assert_eq!(taken(now + Duration::from_secs(1)), 500);
    }

    #[test]
    fn a_certificate_of_its_own_is_rare() {
        let shares = Shares::default();
        let now = Instant::now();
        let takes = |now: Instant| {
            shares
                .take(&minion("a"), Work::Renew, LONGEST, now)
                .is_some()
        };
        assert!((0..5).all(|_| takes(now)));
        assert!(!takes(now));
        assert!(takes(now + Duration::from_secs(60)));
    }

    #[tokio::test]
    async fn a_refusal_says_what_was_too_much() {
        let shares = Shares::default();
        for _ in 0..5 {
            shares.wait(&minion("a"), Work::Renew).await.unwrap();
        }
        let refused = shares.wait(&minion("a"), Work::Renew).await.unwrap_err();
        assert_eq!(refused.kind, RefusalKind::Unavailable);
        assert!(refused.message.contains("too many certificates of its own"));
    }
}
