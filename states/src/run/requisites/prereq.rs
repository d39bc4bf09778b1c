//! `prereq`: the outlook of its targets, which are checked before the state that has it runs.
//!
//! As in Salt, a target that its own requisites or conditions keep from running changes nothing, a
//! target with a `prereq` of its own evaluates that first, and a target that would fail fails the
//! state that has the `prereq`. A target that only its `mod_watch` would change counts: Salt's code
//! means that too, but 3008.3 no longer reaches it.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;

use super::{Context, failed, indices, triggered, unmet};
use crate::engine::{Failure, Modules};
use crate::low::{LowState, StateReturn};
use crate::run::returns::state;
use crate::run::single;

/// The expectation of the `prereq` targets of a state.
#[derive(Debug, PartialEq)]
pub(super) enum Outlook {
    /// A target would change something, or the state has no `prereq`.
    Changes,
    /// No target would change anything.
    NoChanges,
    /// These targets would fail.
    Fails(Vec<usize>),
}

/// The `prereq` requisites of a run, and the failures that they foresaw.
pub(in crate::run) struct Foreseen {
    /// For each state, the states that have it as `prereq`.
    before: Vec<Vec<usize>>,
    /// Comments of failed checks, by target. Such a target does not run in its turn: the state
    /// before it has not run either.
    failures: BTreeMap<usize, String>,
    /// States that failed because of a target: state and target.
    refused: BTreeSet<(usize, usize)>,
}

impl Foreseen {
    pub(in crate::run) fn new(low: &LowState) -> Self {
        let mut before = vec![Vec::new(); low.chunks.len()];
        for (index, chunk) in low.chunks.iter().enumerate() {
            for target in &chunk.requisites.prereq {
                if let Some(before) = before.get_mut(*target) {
                    before.push(index);
                }
            }
        }
        Self {
            before,
            failures: BTreeMap::new(),
            refused: BTreeSet::new(),
        }
    }

    /// All positions that must be finished before a state is decided: its requisites, the states
    /// that have it as `prereq`, and what its own `prereq` targets wait for.
    pub(in crate::run) fn needed(&self, low: &LowState, index: usize) -> Vec<usize> {
        let mut checked = vec![index];
        let mut needed: Vec<usize> = self.before[index].clone();
        let mut next = 0;
        while let Some(chunk) = checked.get(next).and_then(|at| low.chunks.get(*at)) {
            next += 1;
            needed.extend(indices(&chunk.requisites));
            for target in &chunk.requisites.prereq {
                if !checked.contains(target) && *target < low.chunks.len() {
                    checked.push(*target);
                }
            }
        }
        needed
    }

    /// The comment of a check that failed already.
    pub(super) fn failure(&self, index: usize) -> Option<&str> {
        self.failures.get(&index).map(String::as_str)
    }

    /// The states that have the one at `index` as `prereq` and failed for another reason.
    pub(super) fn blocking(
        &self,
        low: &LowState,
        index: usize,
        done: &[Option<StateReturn>],
    ) -> Vec<usize> {
        let bad = |before: &usize| {
            !self.refused.contains(&(*before, index))
                && state(done, *before).is_none_or(|state| state.result == Some(false))
        };
        let before = self.before.get(index).into_iter().flatten().copied();
        before
            .filter(|before| *before < low.chunks.len() && bad(before))
            .collect()
    }
}

/// The outlook of all `prereq` targets of the state at `index`.
pub(super) async fn outlook<M: Modules>(
    context: &Context<'_, M>,
    foreseen: &mut Foreseen,
    index: usize,
) -> Outlook {
    let targets = &context.low.chunks[index].requisites.prereq;
    let mut fails = Vec::new();
    let mut changes = targets.is_empty();
    for target in targets.iter().copied() {
        match of_target(context, foreseen, target).await {
            Ok(would_change) => changes |= would_change,
            Err(()) => {
                foreseen.refused.insert((index, target));
                fails.push(target);
            }
        }
    }
    match (fails.is_empty(), changes) {
        (false, _) => Outlook::Fails(fails),
        (true, true) => Outlook::Changes,
        (true, false) => Outlook::NoChanges,
    }
}

type Expected<'a> = Pin<Box<dyn Future<Output = Result<bool, ()>> + Send + 'a>>;

/// Tests whether a target would change something if it ran now; `Err`: it would fail.
fn of_target<'a, M: Modules>(
    context: &'a Context<'_, M>,
    foreseen: &'a mut Foreseen,
    index: usize,
) -> Expected<'a> {
    Box::pin(async move {
        let Context { low, done, .. } = *context;
        if index >= low.chunks.len() {
            return Ok(false);
        }
        // Older masters did not order a target's requirements before the check.
        let failed = failed(low, index, done)
            .into_iter()
            .any(|needed| state(done, needed).is_some());
        if failed || foreseen.failure(index).is_some() {
            return Err(());
        }
        match outlook(context, foreseen, index).await {
            Outlook::Changes => {}
            Outlook::NoChanges => return Ok(false),
            Outlook::Fails(_) => return Err(()),
        }
        if unmet(context, index).is_some() {
            return Ok(false);
        }
        would_change(context, index, triggered(context, index))
            .await
            .map_err(|failure| {
                foreseen.failures.insert(index, failure.text());
            })
    })
}

/// Checks a target that nothing keeps from running, and the `mod_watch` that would be triggered.
async fn would_change<M: Modules>(
    context: &Context<'_, M>,
    index: usize,
    triggered: bool,
) -> Result<bool, Failure> {
    let (chunk, modules) = (&context.low.chunks[index], context.modules);
    if single::controls(chunk, modules).await?.is_some() {
        return Ok(false);
    }
    if !modules.check(chunk).await?.changes.is_empty() {
        return Ok(true);
    }
    if !triggered {
        return Ok(false);
    }
    match modules.watch(chunk).await {
        Some(watched) => Ok(!watched?.changes.is_empty()),
        None => Ok(false),
    }
}
