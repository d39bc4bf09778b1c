//! The time for which a standby may delay the master's commits: a rolling budget over all its
//! streams.
//!
//! A commit waits for each standby that follows. A standby that stores each change just within the
//! limit of a round would slow the master down permanently, although no single round shows it.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// The budget of one standby.
#[derive(Debug)]
pub struct Budget {
    limits: BudgetLimits,
    /// The slow rounds of the window, by end time.
    spent: VecDeque<(Instant, Duration)>,
}

/// The limits of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetLimits {
    /// The duration below which a round is free.
    pub free: Duration,
    /// The total of all slow rounds in the window.
    pub most: Duration,
    /// The length of the window.
    pub window: Duration,
}

impl Default for Budget {
    fn default() -> Self {
        Self::new(BudgetLimits {
            free: Duration::from_millis(500),
            most: Duration::from_secs(15),
            window: Duration::from_secs(60),
        })
    }
}

/// The error of a standby that has used up its budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "it took {} s of the last {} s to store changes, and each answer of the master waited for it: its disk or its network is \
     slow; the master takes it again in {} s",
    spent.as_secs(), window.as_secs(), again.as_secs() + 1
)]
pub struct Overspent {
    spent: Duration,
    window: Duration,
    /// The time until the budget is below its limit again.
    pub again: Duration,
}

impl Budget {
    /// Creates an unused budget.
    #[must_use]
    pub fn new(limits: BudgetLimits) -> Self {
        Self {
            limits,
            spent: VecDeque::new(),
        }
    }

    /// Counts a round.
    pub fn spend(&mut self, began: Instant, ended: Instant) {
        let time = ended.saturating_duration_since(began);
        if time >= self.limits.free {
            self.spent.push_back((ended, time));
        }
    }

    /// Refuses a standby that has used up its budget.
    ///
    /// # Errors
    /// The budget is used up; the error contains the time until it is available again.
    pub fn check(&mut self, now: Instant) -> Result<(), Overspent> {
        let BudgetLimits { most, window, .. } = self.limits;
        let age = |at: Instant| now.saturating_duration_since(at);
        while self.spent.front().is_some_and(|(at, _)| age(*at) >= window) {
            self.spent.pop_front();
        }
        let spent: Duration = self.spent.iter().map(|(_, time)| *time).sum();
        let mut left = spent;
        for (at, time) in &self.spent {
            if left <= most {
                break;
            }
            left -= *time;
            if left <= most {
                return Err(Overspent {
                    spent,
                    window,
                    again: window - age(*at),
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn rounds_just_within_their_limit_spend_the_budget_and_it_comes_back() {
        let start = Instant::now();
        let mut budget = Budget::default();
        let mut now = start;
        for round in 1..=4 {
            let began = now;
            now += Duration::from_millis(4900);
            budget.spend(began, now);
            assert_eq!(budget.check(now).is_err(), round == 4, "{round}");
        }
        let over = budget.check(now).unwrap_err();
        assert!(over.to_string().contains("19 s of the last 60 s"), "{over}");
        // The first of the four is forgotten a minute after its end.
        assert_eq!(
            now + over.again,
            start + Duration::from_millis(4900) + seconds(60)
        );
        budget
            .check(now + over.again - Duration::from_millis(1))
            .unwrap_err();
        budget.check(now + over.again).unwrap();
    }

    #[test]
    fn any_number_of_usual_rounds_is_free_and_a_slow_one_now_and_then_too() {
        let mut budget = Budget::default();
        let mut now = Instant::now();
        for _ in 0..10_000 {
            let began = now;
            now += Duration::from_millis(499);
            budget.spend(began, now);
            budget.check(now).unwrap();
        }
        for _ in 0..100 {
            budget.spend(now, now + seconds(5));
            now += seconds(25);
            budget.check(now).unwrap();
        }
    }
}
