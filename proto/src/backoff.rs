//! Pauses between attempts: each is twice as long as the previous one, up to a limit, with jitter,
//! so that callers that lost the same server do not all come back at once.

use std::hash::{BuildHasher as _, Hasher as _};
use std::time::Duration;

/// The pauses of one caller.
#[derive(Debug, Clone)]
pub struct Backoff {
    least: Duration,
    most: Duration,
    next: Duration,
}

impl Backoff {
    /// Pauses from `least` to `most`, before jitter.
    #[must_use]
    pub const fn new(least: Duration, most: Duration) -> Self {
        Self {
            least,
            most,
            next: least,
        }
    }

    /// The next pause: between half of its length and its full length.
    pub fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.most);
        jittered(pause)
    }

    /// Restarts with the shortest pause, after a successful attempt.
    pub const fn reset(&mut self) {
        self.next = self.least;
    }

    /// Waits for the next pause.
    pub async fn wait(&mut self) {
        tokio::time::sleep(self.pause()).await;
    }
}

/// A random time between half of `pause` and the full `pause`.
#[must_use]
pub fn jittered(pause: Duration) -> Duration {
    let random = std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish();
    let share = (random >> 11) as f64 / (1_u64 << 53) as f64;
    pause.mul_f64(0.5 + share / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: Duration = Duration::from_millis(100);
    const MOST: Duration = Duration::from_millis(500);

    #[test]
    fn pauses_double_up_to_the_limit_and_begin_again() {
        let mut backoff = Backoff::new(LEAST, MOST);
        for length in [100, 200, 400, 500, 500].map(Duration::from_millis) {
            let pause = backoff.pause();
            assert!(
                length / 2 <= pause && pause <= length,
                "{pause:?} of {length:?}"
            );
        }
        backoff.reset();
        assert!(backoff.pause() <= LEAST);
    }

    #[test]
    fn two_callers_do_not_come_back_at_once() {
        let pauses = [(); 20].map(|()| jittered(MOST));
        assert!(pauses.iter().any(|pause| *pause != pauses[0]), "{pauses:?}");
    }
}
