//! Returns of states: filling them in and looking them up.

use std::time::Instant;

use serde_json::{Map, Value};

use crate::engine::Failure;
use crate::low::{Chunk, StateReturn};

/// The outcome of one state, before it becomes a return.
#[derive(Debug, Clone)]
pub(super) struct StateOutcome {
    pub result: Option<bool>,
    pub changes: Map<String, Value>,
    pub comment: String,
    pub ran: bool,
}

impl StateOutcome {
    /// A failure; the comment has its whole chain of causes.
    pub(super) fn failed(failure: &Failure) -> Self {
        Self {
            result: Some(false),
            changes: Map::new(),
            comment: failure.text(),
            ran: true,
        }
    }

    /// The combined outcome of the changes and of the `mod_watch` after them.
    pub(super) fn then(self, watched: Self) -> Self {
        if self.changes.is_empty() {
            return watched;
        }
        let mut changes = self.changes;
        changes.extend(watched.changes);
        Self {
            result: watched.result,
            changes,
            comment: format!("{}; {}", self.comment, watched.comment),
            ran: true,
        }
    }

    /// A state that a requisite or a condition kept from running.
    pub(super) fn skipped(result: bool, comment: String) -> Self {
        Self {
            result: Some(result),
            changes: Map::new(),
            comment,
            ran: false,
        }
    }
}

/// The start of a state, from which its return takes start time and duration.
pub(super) struct Started {
    time: String,
    instant: Instant,
}

impl Started {
    pub(super) fn now() -> Self {
        Self {
            time: jiff::Timestamp::now().to_string(),
            instant: Instant::now(),
        }
    }

    pub(super) fn finish(self, chunk: &Chunk, index: usize, outcome: StateOutcome) -> StateReturn {
        let mut changes = outcome.changes;
        if chunk.sensitive {
            changes.values_mut().for_each(mask);
        }
        StateReturn {
            index,
            id: chunk.id.clone(),
            name: chunk.name.clone(),
            function: chunk.function(),
            sls: chunk.sls.clone(),
            result: outcome.result,
            changes,
            comment: outcome.comment,
            start_time: self.time,
            duration: (self.instant.elapsed().as_secs_f64() * 1e6).round() / 1e3,
            run_num: index,
            ran: outcome.ran,
            fail_run: true,
        }
    }
}

/// Replaces the values of a change and keeps its shape.
fn mask(value: &mut Value) {
    match value {
        Value::Object(map) => map.values_mut().for_each(mask),
        Value::Array(items) => items.iter_mut().for_each(mask),
        Value::Null => {}
        _ => *value = Value::from("(sensitive, not shown)"),
    }
}

/// The return of the state at `index`, if it has finished.
pub(super) fn state(done: &[Option<StateReturn>], index: usize) -> Option<&StateReturn> {
    done.get(index).and_then(Option::as_ref)
}
