//! The trigger graph: for each state, the states that `watch`, `listen` to, or run `onchanges` of
//! it.
//!
//! A trigger connects a change to what makes it take effect: a file and the restart of its service.
//! Salt forgets the change when a run ends between the two, and the next run finds the file as
//! declared. Here the host records each trigger before the change is made (see
//! [`Modules::record_trigger`]), and a state with a pending trigger counts as changed for the
//! watcher until the watcher has acted.

use std::collections::BTreeSet;

use super::returns::state;
use crate::engine::Modules;
use crate::low::{Chunk, LowState, Requisites, StateReturn};

/// The watchers of each state, by position in the low state.
#[derive(Debug)]
pub(super) struct TriggerGraph {
    watchers: Vec<Vec<usize>>,
    /// Triggers left by an earlier run: changed state and watcher.
    pending: BTreeSet<(usize, usize)>,
}

impl TriggerGraph {
    pub(super) fn new<M: Modules>(low: &LowState, modules: &M) -> Self {
        let mut graph = Self {
            watchers: vec![Vec::new(); low.chunks.len()],
            pending: BTreeSet::new(),
        };
        for (index, watcher) in low.chunks.iter().enumerate() {
            let listened = watcher.requisites.listen.iter().copied();
            for target in watched(&watcher.requisites).chain(listened) {
                let Some(chunk) = low.chunks.get(target) else {
                    continue;
                };
                graph.watchers[target].push(index);
                if modules.is_pending(chunk, watcher) {
                    graph.pending.insert((target, index));
                }
            }
        }
        graph
    }

    /// The states that act on changes of the state at `index`.
    pub(super) fn watchers<'a>(&self, low: &'a LowState, index: usize) -> Vec<&'a Chunk> {
        let watchers = self.watchers.get(index).into_iter().flatten();
        watchers
            .filter_map(|watcher| low.chunks.get(*watcher))
            .collect()
    }

    /// Tests whether a state counts as changed for the watcher at a position: it changed in this
    /// run, or a trigger of an earlier run is pending.
    pub(super) fn changed(&self, state: &StateReturn, watcher: usize) -> bool {
        !state.changes.is_empty()
            || state.result != Some(false) && self.pending.contains(&(state.index, watcher))
    }
}

/// Clears the triggers of the states that the finished state at `index` watches, if it succeeded.
pub(super) fn clear_watched<M: Modules>(
    low: &LowState,
    index: usize,
    done: &[Option<StateReturn>],
    modules: &M,
) {
    let Some(watcher) = low.chunks.get(index) else {
        return;
    };
    if succeeded(done, index) {
        clear(low, watched(&watcher.requisites), watcher, done, modules);
    }
}

/// Clears the triggers of the states that `watcher` listens to; called when its `mod_watch` has
/// succeeded.
pub(super) fn clear_listened<M: Modules>(
    low: &LowState,
    watcher: &Chunk,
    done: &[Option<StateReturn>],
    modules: &M,
) {
    clear(
        low,
        watcher.requisites.listen.iter().copied(),
        watcher,
        done,
        modules,
    );
}

/// Clears triggers of states that succeeded. A failed one may change more when it succeeds.
fn clear<M: Modules>(
    low: &LowState,
    targets: impl Iterator<Item = usize>,
    watcher: &Chunk,
    done: &[Option<StateReturn>],
    modules: &M,
) {
    for target in targets.filter(|target| succeeded(done, *target)) {
        if let Some(chunk) = low.chunks.get(target) {
            modules.clear_trigger(chunk, watcher);
        }
    }
}

fn succeeded(done: &[Option<StateReturn>], index: usize) -> bool {
    state(done, index).is_some_and(|state| state.result == Some(true))
}

/// Positions whose changes trigger a state when its turn comes; `listen` targets come after all
/// states.
fn watched(requisites: &Requisites) -> impl Iterator<Item = usize> + '_ {
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
