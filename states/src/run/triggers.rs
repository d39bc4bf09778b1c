//! The trigger graph: for each state, the states that `watch`, `listen` to, or run `onchanges` of
//! it.
//!
//! A trigger connects a change to what makes it take effect: a file and the restart of its service.
//! Salt forgets the change when a run ends between the two, and the next run finds the file as
//! declared. Here the host records each trigger before the change is made (see
//! [`Modules::record_trigger`]), and a state with a pending trigger counts as changed for the
//! watcher until the watcher has acted. Such a trigger is also left by an attempt of this run that
//! changed something and failed, when the next one finds nothing more to change.

use super::returns::state;
use crate::engine::Modules;
use crate::low::{Chunk, LowState, Requisites, StateReturn};

/// The watchers of each state, by position in the low state.
#[derive(Debug)]
pub(super) struct TriggerGraph {
    watchers: Vec<Vec<usize>>,
}

impl TriggerGraph {
    pub(super) fn new(low: &LowState) -> Self {
        let mut watchers = vec![Vec::new(); low.chunks.len()];
        for (index, watcher) in low.chunks.iter().enumerate() {
            let listened = watcher.requisites.listen.iter().copied();
            for target in watched(&watcher.requisites).chain(listened) {
                if let Some(watchers) = watchers.get_mut(target) {
                    watchers.push(index);
                }
            }
        }
        Self { watchers }
    }

    /// The states that act on changes of the state at `index`.
    pub(super) fn watchers<'a>(&self, low: &'a LowState, index: usize) -> Vec<&'a Chunk> {
        let watchers = self.watchers.get(index).into_iter().flatten();
        watchers
            .filter_map(|watcher| low.chunks.get(*watcher))
            .collect()
    }
}

/// Tests whether the finished state at `target` counts as changed for the watcher at `index`: the
/// state reports changes, or a trigger is pending.
pub(super) fn changed<M: Modules>(
    low: &LowState,
    done: &[Option<StateReturn>],
    modules: &M,
    target: usize,
    index: usize,
) -> bool {
    let is_pending = || match (low.chunks.get(target), low.chunks.get(index)) {
        (Some(chunk), Some(watcher)) => modules.is_pending(chunk, watcher),
        _ => false,
    };
    state(done, target).is_some_and(|state| {
        !state.changes.is_empty() || state.result != Some(false) && is_pending()
    })
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
