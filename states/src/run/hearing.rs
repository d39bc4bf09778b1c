//! Who acts on the changes of whom.
//!
//! `watch`, `onchanges` and `listen` stand between what changes a host and what makes that take
//! effect: a file and the restart of its service. Salt forgets what has changed when a run ends
//! between the two, and the next run finds the file as it should be. Here the host notes what is
//! about to change, once for each who acts on it (see [`Modules::owe`]), and for whoever has not
//! acted it counts as changed.

use std::collections::BTreeSet;

use super::requisites::state;
use crate::engine::Modules;
use crate::low::{Chunk, LowState, Requisites, StateReturn};

/// Of each state who acts on its changes, by position.
#[derive(Debug)]
pub(super) struct Hearing {
    hearers: Vec<Vec<usize>>,
    /// What changed in an earlier run, and who has not acted on it.
    owed: BTreeSet<(usize, usize)>,
}

impl Hearing {
    pub(super) fn new<M: Modules>(low: &LowState, modules: &M) -> Self {
        let mut hearing = Self {
            hearers: vec![Vec::new(); low.chunks.len()],
            owed: BTreeSet::new(),
        };
        for (index, hearer) in low.chunks.iter().enumerate() {
            let listened = hearer.requisites.listen.iter().copied();
            for target in heard(&hearer.requisites).chain(listened) {
                let Some(chunk) = low.chunks.get(target) else {
                    continue;
                };
                hearing.hearers[target].push(index);
                if modules.is_owed(chunk, hearer) {
                    hearing.owed.insert((target, index));
                }
            }
        }
        hearing
    }

    /// Those who act on what a state changes.
    pub(super) fn of<'a>(&self, low: &'a LowState, index: usize) -> Vec<&'a Chunk> {
        let hearers = self.hearers.get(index).into_iter().flatten();
        hearers
            .filter_map(|hearer| low.chunks.get(*hearer))
            .collect()
    }

    /// Whether a state counts as changed for one who acts on that.
    pub(super) fn changed(&self, state: &StateReturn, hearer: usize) -> bool {
        !state.changes.is_empty()
            || state.result != Some(false) && self.owed.contains(&(state.index, hearer))
    }

    /// A state is done: if all is well it has acted on what it had to.
    pub(super) fn tell<M: Modules>(
        low: &LowState,
        index: usize,
        done: &[Option<StateReturn>],
        modules: &M,
    ) {
        let Some(hearer) = low.chunks.get(index) else {
            return;
        };
        if is_good(done, index) {
            acted(low, heard(&hearer.requisites), hearer, done, modules);
        }
    }

    /// The same for one who listens, after all states.
    pub(super) fn tell_listened<M: Modules>(
        low: &LowState,
        hearer: &Chunk,
        done: &[Option<StateReturn>],
        modules: &M,
    ) {
        acted(
            low,
            hearer.requisites.listen.iter().copied(),
            hearer,
            done,
            modules,
        );
    }
}

/// Somebody has acted on these. What failed may have more to tell when it succeeds.
fn acted<M: Modules>(
    low: &LowState,
    targets: impl Iterator<Item = usize>,
    hearer: &Chunk,
    done: &[Option<StateReturn>],
    modules: &M,
) {
    for target in targets.filter(|target| is_good(done, *target)) {
        if let Some(chunk) = low.chunks.get(target) {
            modules.heard(chunk, hearer);
        }
    }
}

fn is_good(done: &[Option<StateReturn>], index: usize) -> bool {
    state(done, index).is_some_and(|state| state.result == Some(true))
}

/// Positions on whose changes a state acts when its turn comes.
fn heard(requisites: &Requisites) -> impl Iterator<Item = usize> + '_ {
    [
        &requisites.watch,
        &requisites.watch_any,
        &requisites.onchanges,
        &requisites.onchanges_any,
    ]
    .into_iter()
    .flatten()
    .copied()
}
