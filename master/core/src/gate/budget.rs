//! The budget of audit lines about refused strangers: every host that reaches the port can cause
//! them, and must not fill the disk. Refusals over the budget are counted and summarised in one
//! line.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use halite_store::Millis;

/// The length of a period.
const PERIOD: Millis = 60_000;
/// Total lines of one period.
const TOTAL: u32 = 120;
/// Lines of one period for one address.
const EACH: u32 = 30;
/// Addresses that are counted separately; further ones are counted together.
const ADDRESSES: usize = 1024;
/// Addresses that a summary names.
const NAMED: usize = 3;

#[derive(Debug, Default, Clone, Copy)]
struct Count {
    written: u32,
    dropped: u32,
}

#[derive(Debug, Default)]
struct State {
    begin: Millis,
    written: u32,
    counts: BTreeMap<String, Count>,
}

/// The budget, with its current period.
#[derive(Debug, Default)]
pub(super) struct Budget(Mutex<State>);

impl Budget {
    /// Takes one line for a source; returns `false` if its own or the total budget is used up.
    pub(super) fn take(&self, source: &str, now: Millis) -> bool {
        let mut state = self.state();
        let all = state.written >= TOTAL;
        let known = state.counts.contains_key(source) || state.counts.len() < ADDRESSES;
        let source = if known { source } else { "others" };
        let count = state.counts.entry(source.to_owned()).or_default();
        if all || count.written >= EACH {
            count.dropped = count.dropped.saturating_add(1);
            return false;
        }
        count.written += 1;
        state.written += 1;
        if state.begin == 0 {
            state.begin = now;
        }
        true
    }

    /// Returns whether the budget of a source is used up.
    pub(super) fn is_used_up(&self, source: &str) -> bool {
        let state = self.state();
        state
            .counts
            .get(source)
            .is_some_and(|count| count.written >= EACH)
    }

    /// Ends the period after its time; returns the summary of the lines that were not written.
    pub(super) fn summary(&self, now: Millis) -> Option<String> {
        let mut state = self.state();
        // A clock that was set back must not keep the budget used up.
        if (0..PERIOD).contains(&(now - state.begin)) {
            return None;
        }
        let counts = std::mem::take(&mut *state).counts;
        drop(state);
        let mut dropped: Vec<(String, u32)> = counts
            .into_iter()
            .filter(|(_, count)| count.dropped > 0)
            .map(|(source, count)| (source, count.dropped))
            .collect();
        if dropped.is_empty() {
            return None;
        }
        dropped.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let sum: u64 = dropped.iter().map(|(_, number)| u64::from(*number)).sum();
        let addresses = dropped.len();
        let named: Vec<String> = dropped
            .into_iter()
            .take(NAMED)
            .map(|(source, number)| format!("{source} ({number})"))
            .collect();
        Some(format!(
            "{sum} further refusals from {addresses} addresses, most from {}",
            named.join(", ")
        ))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_does_not_use_up_the_budget_of_all() {
        let budget = Budget::default();
        let written = |source: &str| (0..1000).filter(|_| budget.take(source, 5)).count();
        assert_eq!(written("a"), 30);
        assert!(budget.is_used_up("a") && !budget.is_used_up("b"));
        assert_eq!(written("b"), 30);
        let more: usize = (0..100).map(|n| written(&format!("c{n:02}"))).sum();
        assert_eq!(more, 60);
    }

    #[test]
    fn a_minute_later_there_is_a_summary_and_a_new_budget() {
        let budget = Budget::default();
        for _ in 0..35 {
            budget.take("a", 1000);
        }
        for _ in 0..40 {
            budget.take("b", 2000);
        }
        assert!(budget.take("c", 3000));
        assert_eq!(budget.summary(60_999), None);
        assert_eq!(
            budget.summary(61_000).unwrap(),
            "15 further refusals from 2 addresses, most from b (10), a (5)"
        );
        assert_eq!(budget.summary(200_000), None);
        assert!(budget.take("a", 200_000));
        assert_eq!(budget.summary(100), None, "set back, and nothing dropped");
        assert!(budget.take("a", 100));
    }

    #[test]
    fn many_addresses_take_little_memory() {
        let budget = Budget::default();
        for number in 0..5000 {
            budget.take(&number.to_string(), 7);
        }
        assert!(budget.state().counts.len() <= ADDRESSES + 1);
    }
}
