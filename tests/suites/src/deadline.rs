//! The end of a run with a time limit: a test that hangs is named before the caller of the run ends
//! it without a word.

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Time after which a run with the usual budget ends itself.
const END: Duration = Duration::from_secs(87 * 60);
/// What a run with a longer budget has beyond it.
const BEYOND: Duration = Duration::from_secs(15 * 60);

/// The test that runs; empty before the first.
static RUNNING: Mutex<String> = Mutex::new(String::new());

/// Notes which test runs.
pub(crate) fn begin(name: &str) {
    name.clone_into(&mut RUNNING.lock().unwrap_or_else(PoisonError::into_inner));
}

/// The time at which a run ends itself.
fn end(budget: Duration) -> Duration {
    END.max(budget + BEYOND)
}

/// Ends this process with the name of the running test, if it still runs at the end of a run with
/// this budget.
pub(crate) fn watch(budget: Duration) {
    let end = end(budget);
    thread::spawn(move || {
        thread::sleep(end);
        let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        println!(
            "FAILED {}: it still ran when the run had taken {} minutes",
            if running.is_empty() {
                "before the first test"
            } else {
                &running
            },
            end.as_secs() / 60
        );
        std::process::exit(1);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_budget_is_not_cut_off() {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        assert_eq!(end(minutes(72)), minutes(87));
        assert_eq!(end(minutes(60)), minutes(87));
        assert_eq!(end(minutes(120)), minutes(135));
    }
}
