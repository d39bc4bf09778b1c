//! Who acts on the changes of whom.
//!
//! `watch`, `onchanges` and `listen` stand between what changes a host and what makes that take effect: a file and the
//! restart of its service. Salt forgets what has changed when a run ends between the two, and the next run finds the file
//! as it should be. Here the host notes what is about to change (see [`Modules::owe`]), and it counts as changed until all
//! who act on it have done so.

use crate::engine::Modules;
use crate::low::{LowState, Requisites, StateReturn};

/// Of each state who acts on its changes, by position.
#[derive(Debug)]
pub(super) struct Hearing {
    /// By `watch` and `onchanges`.
    hearers: Vec<Vec<usize>>,
    /// By `listen`, after all states.
    listeners: Vec<Vec<usize>>,
    /// Whether it changed in an earlier run, and not all have acted on that.
    owed: Vec<bool>,
}

impl Hearing {
    pub(super) fn new<M: Modules>(low: &LowState, modules: &M) -> Self {
        let mut hearing = Self {
            hearers: vec![Vec::new(); low.chunks.len()],
            listeners: vec![Vec::new(); low.chunks.len()],
            owed: Vec::new(),
        };
        for (index, chunk) in low.chunks.iter().enumerate() {
            for target in heard(&chunk.requisites) {
                if let Some(hearers) = hearing.hearers.get_mut(target) {
                    hearers.push(index);
                }
            }
            for target in &chunk.requisites.listen {
                if let Some(listeners) = hearing.listeners.get_mut(*target) {
                    listeners.push(index);
                }
            }
        }
        let owed = low.chunks.iter().enumerate();
        hearing.owed = owed.map(|(index, chunk)| hearing.is_heard(index) && modules.is_owed(chunk)).collect();
        hearing
    }

    /// Whether somebody acts on what a state changes.
    pub(super) fn is_heard(&self, index: usize) -> bool {
        [&self.hearers, &self.listeners].iter().any(|all| all.get(index).is_some_and(|some| !some.is_empty()))
    }

    /// Whether a state counts as changed.
    pub(super) fn changed(&self, state: &StateReturn) -> bool {
        !state.changes.is_empty() || self.owed.get(state.index).is_some_and(|owed| *owed)
    }

    /// Whether all who act on a state by `watch` and `onchanges` are done, and nobody does by `listen`.
    fn is_settled(&self, index: usize, done: &[Option<StateReturn>]) -> bool {
        let is_good = |index: &usize| {
            done.get(*index).and_then(Option::as_ref).is_some_and(|state| state.result == Some(true))
        };
        self.listeners.get(index).is_none_or(Vec::is_empty)
            && is_good(&index)
            && self.hearers.get(index).is_some_and(|hearers| hearers.iter().all(is_good))
    }

    /// A state is done: those on whose changes it was the last to act are settled.
    pub(super) fn tell<M: Modules>(
        &self,
        low: &LowState,
        index: usize,
        done: &[Option<StateReturn>],
        modules: &M,
    ) {
        let Some(chunk) = low.chunks.get(index) else { return };
        for target in heard(&chunk.requisites) {
            if let Some(target_chunk) = low.chunks.get(target)
                && self.is_settled(target, done)
            {
                modules.heard(target_chunk);
            }
        }
    }

    /// All listeners are done, and those with these positions badly: the others' targets are settled.
    pub(super) fn tell_all<M: Modules>(
        &mut self,
        low: &LowState,
        failed: &[usize],
        done: &[Option<StateReturn>],
        modules: &M,
    ) {
        for (index, chunk) in low.chunks.iter().enumerate() {
            let listeners = std::mem::take(&mut self.listeners[index]);
            if !listeners.is_empty()
                && !listeners.iter().any(|listener| failed.contains(listener))
                && self.is_settled(index, done)
            {
                modules.heard(chunk);
            }
        }
    }
}

/// Positions on whose changes a state acts when its turn comes.
fn heard(requisites: &Requisites) -> impl Iterator<Item = usize> + '_ {
    [&requisites.watch, &requisites.watch_any, &requisites.onchanges, &requisites.onchanges_any]
        .into_iter()
        .flatten()
        .copied()
}
