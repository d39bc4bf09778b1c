//! The decision whether a state runs, from the returns of the states that it has requisites on.
//!
//! The order of the decisions is Salt's (`_check_requisites` in `salt/state.py`): a failed
//! `require` or `watch` wins, then `prereq`, `onfail`, `onchanges`, and last the `mod_watch` that a
//! changed `watch` target triggers.

mod prereq;

use self::prereq::{Outlook, outlook};
use super::returns::state;
use super::triggers::changed;
use crate::engine::Modules;
use crate::low::{LowState, Requisites, StateReturn};

pub(super) use self::prereq::Foreseen;

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
    /// Do not run it: its check failed already, for a state that has it as `prereq`.
    Fail {
        /// The comment of that check.
        comment: String,
    },
}

/// The input of the decisions.
pub(super) struct Context<'a, M> {
    pub low: &'a LowState,
    pub done: &'a [Option<StateReturn>],
    pub modules: &'a M,
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
    context: &Context<'_, M>,
    foreseen: &mut Foreseen,
    index: usize,
) -> Decision {
    let Context { low, done, .. } = *context;
    let mut bad = failed(low, index, done);
    bad.extend(foreseen.blocking(low, index, done));
    if !bad.is_empty() {
        return Decision::Skip {
            result: false,
            comment: failure(low, &bad),
        };
    }
    if let Some(comment) = foreseen.failure(index) {
        return Decision::Fail {
            comment: comment.to_owned(),
        };
    }
    match outlook(context, foreseen, index).await {
        Outlook::Changes => {}
        Outlook::NoChanges => {
            return Decision::Skip {
                result: true,
                comment: "No changes detected".into(),
            };
        }
        Outlook::Fails(targets) => {
            return Decision::Skip {
                result: false,
                comment: failure(low, &targets),
            };
        }
    }
    if let Some(comment) = unmet(context, index) {
        return Decision::Skip {
            result: true,
            comment,
        };
    }
    Decision::Run {
        triggered: triggered(context, index),
    }
}

/// Tests whether a watched state changed.
pub(super) fn triggered<M: Modules>(context: &Context<'_, M>, index: usize) -> bool {
    let Context { low, done, modules } = *context;
    let requisites = &low.chunks[index].requisites;
    [&requisites.watch, &requisites.watch_any]
        .into_iter()
        .flatten()
        .any(|target| changed(low, done, modules, *target, index))
}

/// Clears `fail_run` of failures that an `onfail` state with `onfail_stop: false` handled with
/// success.
pub(super) fn forgive_handled(low: &LowState, done: &mut [Option<StateReturn>]) {
    for (index, chunk) in low.chunks.iter().enumerate() {
        let handled = !chunk.controls.onfail_stop
            && state(done, index).is_some_and(|state| state.ran && state.result != Some(false));
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

/// The `require` and `watch` targets whose failure keeps a state from running.
pub(super) fn failed(low: &LowState, index: usize, done: &[Option<StateReturn>]) -> Vec<usize> {
    let requisites = &low.chunks[index].requisites;
    let bad = |target: &usize| state(done, *target).is_none_or(|state| state.result == Some(false));
    let mut targets: Vec<usize> = Vec::new();
    for all in [&requisites.require, &requisites.watch] {
        targets.extend(all.iter().copied().filter(|target| bad(target)));
    }
    for any in [&requisites.require_any, &requisites.watch_any] {
        if !any.is_empty() && any.iter().all(bad) {
            targets.extend(any.iter().copied());
        }
    }
    targets
}

/// Salt's comment of a state that failed requisites keep from running.
fn failure(low: &LowState, targets: &[usize]) -> String {
    let mut shown: Vec<String> = Vec::new();
    for target in targets {
        let name = match low.chunks.get(*target) {
            Some(chunk) => format!("{}.{}", chunk.sls, chunk.id),
            None => format!("position {target}, which does not exist"),
        };
        if !shown.contains(&name) {
            shown.push(name);
        }
    }
    format!("One or more requisite failed: {}", shown.join(", "))
}

/// The comment when an `onfail` or `onchanges` is not met.
pub(super) fn unmet<M: Modules>(context: &Context<'_, M>, index: usize) -> Option<String> {
    let Context { low, done, modules } = *context;
    let requisites = &low.chunks.get(index)?.requisites;
    let has_failed =
        |target: &usize| state(done, *target).is_some_and(|state| state.result == Some(false));
    let has_changed =
        |target: &usize| !has_failed(target) && changed(low, done, modules, *target, index);
    let onfail_unmet = [&requisites.onfail, &requisites.onfail_any]
        .into_iter()
        .any(|targets| !targets.is_empty() && !targets.iter().any(has_failed))
        || !requisites.onfail_all.is_empty() && !requisites.onfail_all.iter().all(has_failed);
    let has_onchanges = !requisites.onchanges.is_empty() || !requisites.onchanges_any.is_empty();
    let onchanges_met = requisites
        .onchanges
        .iter()
        .chain(&requisites.onchanges_any)
        .any(has_changed);
    if onfail_unmet && !onchanges_met {
        return Some("State was not run because onfail req did not change".into());
    }
    if has_onchanges && !onchanges_met {
        return Some("State was not run because none of the onchanges reqs changed".into());
    }
    None
}
