//! Jobs that have not ended, in memory.

use std::collections::{BTreeMap, BTreeSet};

use super::core::Limits;
use super::function::Function;
use crate::store::{Job, JobRow, Millis, RowState};

/// The part of an open job that is kept in memory. All of it can be read from the store again.
pub(super) struct OpenJob {
    pub(super) function: &'static Function,
    pub(super) deadline: Option<Millis>,
    pub(super) limits: Limits,
    /// The minions whose part has not ended.
    pub(super) pending: BTreeSet<String>,
    /// Groups of minions; each waits for the one before. Empty: all at once.
    order: Vec<Vec<String>>,
    /// The time from which a minion's part may be sent.
    pub(super) ready_since: BTreeMap<String, Millis>,
}

impl OpenJob {
    pub(super) fn new(
        function: &'static Function,
        job: &Job,
        rows: &[JobRow],
        now: Millis,
    ) -> Self {
        let pending: BTreeSet<String> = rows
            .iter()
            .filter(|row| !ended(row.state))
            .map(|row| row.minion.clone())
            .collect();
        let mut open = Self {
            function,
            deadline: job.deadline,
            limits: function.limits(),
            pending,
            order: job.order.clone(),
            ready_since: BTreeMap::new(),
        };
        open.make_ready(now);
        open
    }

    /// True while a minion's part waits for another group.
    pub(super) fn is_blocked(&self, minion: &str) -> bool {
        !self.ready_since.contains_key(minion)
    }

    /// Releases the first group that has not ended; answers with the minions whose part may be sent
    /// now for the first time.
    pub(super) fn make_ready(&mut self, now: Millis) -> Vec<String> {
        let mut ready: Vec<String> = Vec::new();
        if self.order.is_empty() {
            ready.extend(self.pending.iter().cloned());
        }
        for group in &self.order {
            let waiting: Vec<&String> = group
                .iter()
                .filter(|minion| self.pending.contains(*minion))
                .collect();
            if !waiting.is_empty() {
                ready.extend(waiting.into_iter().cloned());
                break;
            }
        }
        ready.retain(|minion| !self.ready_since.contains_key(minion));
        for minion in &ready {
            self.ready_since.insert(minion.clone(), now);
        }
        ready
    }
}

/// True for the states of a part that has ended.
pub(super) fn ended(state: RowState) -> bool {
    matches!(state, RowState::Returned | RowState::Lost)
}
