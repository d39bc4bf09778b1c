//! The progress of a run, for its watchers: every state that changed or failed, and an occasional
//! one of the others. The return has all states; a thousand unchanged states are not worth a
//! thousand messages.

use std::time::Duration;

use halite_states::low::StateReturn;
use tokio::time::Instant;

/// Minimum time between two reports of states that neither changed nor failed.
const INTERVAL: Duration = Duration::from_millis(100);

/// Decides which states of one run are reported while it runs.
#[derive(Debug, Default)]
pub(super) struct Reports {
    last: Option<Instant>,
}

impl Reports {
    /// Returns whether this state, which has just ended, is reported.
    pub(super) fn wants(&mut self, state: &StateReturn, now: Instant) -> bool {
        let plain = state.result == Some(true) && state.changes.is_empty();
        if plain && self.last.is_some_and(|last| now < last + INTERVAL) {
            return false;
        }
        self.last = Some(now);
        true
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    fn state(result: Option<bool>, changes: Map<String, serde_json::Value>) -> StateReturn {
        serde_json::from_value(json!({
            "index": 0, "__id__": "a", "name": "a", "function": "test.nop", "__sls__": "s",
            "result": result, "changes": changes, "comment": "", "start_time": "", "duration": 0.1,
            "__run_num__": 0, "__state_ran__": true,
        }))
        .unwrap()
    }

    #[test]
    fn unchanged_states_are_reported_ten_times_a_second_and_others_always() {
        let mut reports = Reports::default();
        let unchanged = state(Some(true), Map::new());
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let count = (0..1000)
            .filter(|ms| reports.wants(&unchanged, at(*ms)))
            .count();
        assert_eq!(count, 10);
        let changes = json!({"diff": "x"}).as_object().unwrap().clone();
        for other in [
            state(Some(true), changes),
            state(None, Map::new()),
            state(Some(false), Map::new()),
        ] {
            assert!(reports.wants(&other, at(1000)), "{other:?}");
            assert!(reports.wants(&other, at(1000)), "{other:?}");
        }
    }
}
