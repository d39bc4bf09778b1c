//! The decision whether a state runs, from the returns of the states that it has requisites on.
//!
//! The order of the decisions is Salt's (`check_requisite` in `salt/state.py`): a failed `require`
//! or `watch` wins, then `prereq`, `onfail`, `onchanges`, and last the `mod_watch` that a changed
//! `watch` target triggers.

use super::returns::state;
use super::single;
use super::triggers::TriggerGraph;
use crate::engine::Modules;
use crate::low::{LowState, Requisites, StateReturn};

/// The decision about one state.
pub(super) enum Decision {
    /// Run it.
    Run {
        /// A watched state changed: call `mod_watch` when the state itself changes nothing.
        triggered: bool,
    },
    /// Do not run it.
    Skip {
        /// The result that it returns.
        result: bool,
        /// Salt's comment.
        comment: String,
    },
}

/// All positions that must be finished before a state is decided (`prereq` and `listen` targets
/// come later).
pub(super) fn indices(requisites: &Requisites) -> impl Iterator<Item = usize> + '_ {
    [
        &requisites.require,
        &requisites.require_any,
        &requisites.watch,
        &requisites.watch_any,
        &requisites.onchanges,
        &requisites.onchanges_any,
        &requisites.onfail,
        &requisites.onfail_any,
        &requisites.onfail_all,
    ]
    .into_iter()
    .flatten()
    .copied()
}

/// Decides about the state at `index`. `prereq` targets are checked, not applied.
pub(super) async fn decide<M: Modules>(
    low: &LowState,
    index: usize,
    done: &[Option<StateReturn>],
    triggers: &TriggerGraph,
    modules: &M,
) -> Decision {
    let requisites = &low.chunks[index].requisites;
    if let Some(comment) = failed(low, index, done) {
        return Decision::Skip {
            result: false,
            comment,
        };
    }
    if !requisites.prereq.is_empty()
        && !any_would_change(low, &requisites.prereq, done, triggers, modules).await
    {
        return Decision::Skip {
            result: true,
            comment: "No changes detected".into(),
        };
    }
    if let Some(comment) = unmet(low, index, done, triggers) {
        return Decision::Skip {
            result: true,
            comment,
        };
    }
    let triggered = [&requisites.watch, &requisites.watch_any]
        .into_iter()
        .flatten()
        .any(|target| state(done, *target).is_some_and(|state| triggers.changed(state, index)));
    Decision::Run { triggered }
}

/// Clears `fail_run` of failures that an `onfail` state with `onfail_stop: false` handled with
/// success.
pub(super) fn forgive_handled(low: &LowState, done: &mut [Option<StateReturn>]) {
    for (index, chunk) in low.chunks.iter().enumerate() {
        let handled = !chunk.controls.onfail_stop
            && state(done, index).is_some_and(|state| state.ran && state.result == Some(true));
        if !handled {
            continue;
        }
        let requisites = &chunk.requisites;
        for target in [
            &requisites.onfail,
            &requisites.onfail_any,
            &requisites.onfail_all,
        ]
        .into_iter()
        .flatten()
        {
            if let Some(Some(state)) = done.get_mut(*target)
                && state.result == Some(false)
            {
                state.fail_run = false;
            }
        }
    }
}

/// The comment when a `require` or `watch` failed, or a state that has this one as its `prereq`.
fn failed(low: &LowState, index: usize, done: &[Option<StateReturn>]) -> Option<String> {
    let requisites = &low.chunks[index].requisites;
    let bad = |target: &usize| state(done, *target).is_none_or(|state| state.result == Some(false));
    let mut names: Vec<usize> = Vec::new();
    for all in [&requisites.require, &requisites.watch] {
        names.extend(all.iter().copied().filter(|target| bad(target)));
    }
    for any in [&requisites.require_any, &requisites.watch_any] {
        if !any.is_empty() && any.iter().all(bad) {
            names.extend(any.iter().copied());
        }
    }
    for (before, chunk) in low.chunks.iter().enumerate().take(index) {
        if chunk.requisites.prereq.contains(&index) && bad(&before) {
            names.push(before);
        }
    }
    if names.is_empty() {
        return None;
    }
    let mut shown: Vec<String> = Vec::new();
    for target in names {
        let name = match low.chunks.get(target) {
            Some(chunk) => format!("{}.{}", chunk.sls, chunk.id),
            None => format!("position {target}, which does not exist"),
        };
        if !shown.contains(&name) {
            shown.push(name);
        }
    }
    Some(format!(
        "One or more requisite failed: {}",
        shown.join(", ")
    ))
}

/// The comment when an `onfail` or `onchanges` is not met.
fn unmet(
    low: &LowState,
    index: usize,
    done: &[Option<StateReturn>],
    triggers: &TriggerGraph,
) -> Option<String> {
    let requisites = &low.chunks.get(index)?.requisites;
    let has_failed =
        |target: &usize| state(done, *target).is_some_and(|state| state.result == Some(false));
    let changed = |target: &usize| {
        state(done, *target)
            .is_some_and(|state| state.result != Some(false) && triggers.changed(state, index))
    };
    let onfail_unmet = [&requisites.onfail, &requisites.onfail_any]
        .into_iter()
        .any(|targets| !targets.is_empty() && !targets.iter().any(has_failed))
        || !requisites.onfail_all.is_empty() && !requisites.onfail_all.iter().all(has_failed);
    let has_onchanges = !requisites.onchanges.is_empty() || !requisites.onchanges_any.is_empty();
    let onchanges_met = requisites
        .onchanges
        .iter()
        .chain(&requisites.onchanges_any)
        .any(changed);
    if onfail_unmet && !onchanges_met {
        return Some("State was not run because onfail req did not change".into());
    }
    if has_onchanges && !onchanges_met {
        return Some("State was not run because none of the onchanges reqs changed".into());
    }
    None
}

/// Tests whether one of the `prereq` targets would change something if it ran now.
async fn any_would_change<M: Modules>(
    low: &LowState,
    targets: &[usize],
    done: &[Option<StateReturn>],
    triggers: &TriggerGraph,
    modules: &M,
) -> bool {
    for target in targets {
        let Some(chunk) = low.chunks.get(*target) else {
            continue;
        };
        let requisites = &chunk.requisites;
        let stopped = [&requisites.require, &requisites.watch]
            .into_iter()
            .flatten()
            .any(|needed| state(done, *needed).is_some_and(|state| state.result == Some(false)));
        let decided = indices(requisites).all(|needed| state(done, needed).is_some());
        if stopped || (decided && unmet(low, *target, done, triggers).is_some()) {
            continue;
        }
        if single::controls(chunk, modules)
            .await
            .is_ok_and(|skip| skip.is_none())
            && modules
                .check(chunk)
                .await
                .is_ok_and(|checked| !checked.changes.is_empty())
        {
            return true;
        }
    }
    false
}
