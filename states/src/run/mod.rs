//! The engine: runs a low state against the modules of a host, with Salt's semantics of requisites
//! and global arguments.
//!
//! States start in the order of the low state. A `parallel` state is checked in its turn, and its
//! change begins there; it continues while later states run. A state with a requisite on it waits.
//! The returns are in the order in which the states started, `listen` calls last, so every run of
//! one low state reports in the same order.

mod requisites;
mod returns;
mod single;
mod triggers;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use futures_util::future::{Either, select};
use futures_util::stream::{FuturesUnordered, StreamExt};
use requisites::{Context, Decision, Foreseen};
use returns::{Started, StateOutcome};
use single::{Begun, Call, Triggers};
use triggers::TriggerGraph;

use crate::engine::{Failure, Modules, RunOptions};
use crate::low::{LowState, RunReturn, StateReturn};

/// Runs every state of `low` in order and reports each as soon as it is finished.
///
/// The result is complete unless a state with `failhard` failed: then the states after it are
/// missing, as in Salt; listeners act in any case. A failure that an `onfail` state with
/// `onfail_stop: false` handled does not count against the run.
pub async fn run<M: Modules>(
    low: &LowState,
    modules: &M,
    options: RunOptions,
    mut on_state: impl FnMut(&StateReturn),
) -> RunReturn {
    let triggers = TriggerGraph::new(low);
    let mut foreseen = Foreseen::new(low);
    let done = vec![None; low.chunks.len()];
    let mut run = Run {
        low,
        modules,
        options,
        triggers,
        done,
        running: FuturesUnordered::new(),
        failed_hard: false,
    };
    for (index, chunk) in low.chunks.iter().enumerate() {
        let needed = foreseen.needed(low, index).into_iter();
        for needed in needed.filter(|needed| *needed < index) {
            while run.done[needed].is_none() && run.finish_one(&mut on_state).await {}
        }
        let context = Context {
            low,
            done: &run.done,
            modules,
        };
        match requisites::decide(&context, &mut foreseen, index).await {
            Decision::Skip { result, comment } => {
                let outcome = StateOutcome::skipped(result, comment);
                run.note(Started::now().finish(chunk, index, outcome), &mut on_state);
            }
            Decision::Fail { comment } => {
                let outcome = StateOutcome::failed(&Failure::new(comment));
                run.store(Started::now().finish(chunk, index, outcome), &mut on_state);
            }
            Decision::Run { triggered } => {
                let begun = Begun::default();
                let call = Call::State(Triggers {
                    triggered,
                    watchers: run.triggers.watchers(low, index),
                    begun: begun.clone(),
                });
                let future = Box::pin(single::execute(chunk, index, modules, options, call));
                if chunk.controls.parallel && !options.test {
                    run.begin(future, index, &begun, &mut on_state).await;
                } else {
                    run.finish(future, &mut on_state).await;
                }
            }
        }
        if !options.test && run.failed_hard {
            break;
        }
    }
    while run.finish_one(&mut on_state).await {}
    let stopped = !options.test && run.failed_hard;
    let mut states: Vec<StateReturn> = Vec::new();
    if !stopped {
        requisites::forgive_handled(low, &mut run.done);
    }
    // As in Salt, also after a failure with `failhard`: what changed must take effect.
    run.listen(&mut states, &mut on_state).await;
    let mut returned: Vec<StateReturn> = run.done.into_iter().flatten().collect();
    returned.append(&mut states);
    for (number, state) in returned.iter_mut().enumerate() {
        state.run_num = number;
    }
    RunReturn { states: returned }
}

type Running<'a> = Pin<Box<dyn Future<Output = StateReturn> + Send + 'a>>;

struct Run<'a, M> {
    low: &'a LowState,
    modules: &'a M,
    options: RunOptions,
    triggers: TriggerGraph,
    done: Vec<Option<StateReturn>>,
    running: FuturesUnordered<Running<'a>>,
    /// A state with `failhard` failed. Kept here because it is checked after each state.
    failed_hard: bool,
}

impl<'a, M: Modules> Run<'a, M> {
    /// Records a return, but clears no triggers: a state that a requisite kept from running still
    /// has to act on them.
    fn note(&mut self, state: StateReturn, on_state: &mut impl FnMut(&StateReturn)) {
        on_state(&state);
        let index = state.index;
        self.failed_hard |= self.low.chunks[index].controls.failhard && state.result == Some(false);
        self.done[index] = Some(state);
    }

    fn store(&mut self, state: StateReturn, on_state: &mut impl FnMut(&StateReturn)) {
        let index = state.index;
        self.note(state, on_state);
        if !self.options.test {
            triggers::clear_watched(self.low, index, &self.done, self.modules);
        }
    }

    /// Starts a parallel state, and waits until its change has begun or it is finished: a later
    /// state must not overtake it.
    async fn begin(
        &mut self,
        future: Running<'a>,
        index: usize,
        begun: &Begun,
        on_state: &mut impl FnMut(&StateReturn),
    ) {
        self.running.push(future);
        while self.done[index].is_none() && !begun.is_set() {
            let next = poll_fn(|context| match self.running.poll_next_unpin(context) {
                Poll::Pending if begun.is_set() => Poll::Ready(None),
                polled => polled,
            });
            if let Some(state) = next.await {
                self.store(state, on_state);
            }
        }
    }

    /// Waits for one parallel state; `false` if none is left.
    async fn finish_one(&mut self, on_state: &mut impl FnMut(&StateReturn)) -> bool {
        match self.running.next().await {
            Some(state) => {
                self.store(state, on_state);
                true
            }
            None => false,
        }
    }

    /// Runs one state to its end while the parallel ones continue.
    async fn finish(&mut self, mut future: Running<'a>, on_state: &mut impl FnMut(&StateReturn)) {
        loop {
            if self.running.is_empty() {
                let state = future.await;
                return self.store(state, on_state);
            }
            match select(future, self.running.next()).await {
                Either::Left((state, _)) => return self.store(state, on_state),
                Either::Right((other, rest)) => {
                    future = rest;
                    if let Some(state) = other {
                        self.store(state, on_state);
                    }
                }
            }
        }
    }

    /// Runs one `mod_watch` for each listener whose target changed; called after all states. As in
    /// Salt the listener's conditions, `check_cmd` and `retry` apply to it.
    async fn listen(
        &mut self,
        states: &mut Vec<StateReturn>,
        on_state: &mut impl FnMut(&StateReturn),
    ) {
        let (low, modules) = (self.low, self.modules);
        for (index, chunk) in low.chunks.iter().enumerate() {
            let changed =
                |target: &usize| triggers::changed(low, &self.done, modules, *target, index);
            if !chunk.requisites.listen.iter().any(changed) {
                continue;
            }
            let mut state =
                single::execute(chunk, index, modules, self.options, Call::ModWatch).await;
            state.id = format!("listener_{}", chunk.id);
            state.function = format!("{}.mod_watch", chunk.state);
            on_state(&state);
            let succeeded = state.result == Some(true);
            states.push(state);
            if succeeded && !self.options.test {
                triggers::clear_listened(low, chunk, &self.done, modules);
            }
        }
    }
}

#[cfg(test)]
mod tests;
