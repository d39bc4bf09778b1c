//! The engine: runs a low state against the modules of a host, with Salt's semantics of requisites
//! and global arguments.
//!
//! States start in the order of the low state. One that is `parallel` goes on beside those that
//! follow; whoever has a requisite on it waits. The returns stand in the order in which the states
//! started, `listen` calls last, so a run is reported the same way every time.

mod hearing;
mod requisites;
mod single;

use std::future::Future;
use std::pin::Pin;
use std::time::Instant;

use futures_util::future::{Either, select};
use futures_util::stream::{FuturesUnordered, StreamExt};
use hearing::Hearing;
use requisites::Decision;
use serde_json::{Map, Value};
use single::{Outcome, Ties};

use crate::engine::{Modules, RunOptions};
use crate::low::{Chunk, LowState, RunReturn, StateReturn};

/// Runs every state of `low` in order and reports each as soon as it is finished.
///
/// The result is complete unless a state with `failhard` failed: then what comes after it is
/// missing, as in Salt. A failure that an `onfail` state with `onfail_stop: false` handled does not
/// count against the run.
pub async fn run<M: Modules>(
    low: &LowState,
    modules: &M,
    options: RunOptions,
    mut on_state: impl FnMut(&StateReturn),
) -> RunReturn {
    let hearing = Hearing::new(low, modules);
    let done = vec![None; low.chunks.len()];
    let mut run = Run {
        low,
        modules,
        options,
        hearing,
        done,
        running: FuturesUnordered::new(),
    };
    for (index, chunk) in low.chunks.iter().enumerate() {
        for needed in requisites::indices(&chunk.requisites).filter(|needed| *needed < index) {
            while run.done[needed].is_none() && run.finish_one(&mut on_state).await {}
        }
        let decision = requisites::decide(low, index, &run.done, &run.hearing, modules).await;
        match decision {
            Decision::Skip { result, comment } => {
                run.store(skipped(chunk, index, result, comment), &mut on_state);
            }
            Decision::Run { changed } => {
                let ties = Ties {
                    changed,
                    hearers: run.hearing.of(low, index),
                };
                let future = Box::pin(single::execute(chunk, index, modules, options, ties));
                if chunk.controls.parallel && !options.test {
                    run.running.push(future);
                } else {
                    run.finish(future, &mut on_state).await;
                }
            }
        }
        if !options.test && run.failhard() {
            break;
        }
    }
    while run.finish_one(&mut on_state).await {}
    let stopped = !options.test && run.failhard();
    let mut states: Vec<StateReturn> = Vec::new();
    if !stopped {
        requisites::forgive_handled(low, &mut run.done);
        run.listen(&mut states, &mut on_state).await;
    }
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
    hearing: Hearing,
    done: Vec<Option<StateReturn>>,
    running: FuturesUnordered<Running<'a>>,
}

impl<'a, M: Modules> Run<'a, M> {
    fn store(&mut self, state: StateReturn, on_state: &mut impl FnMut(&StateReturn)) {
        on_state(&state);
        let index = state.index;
        self.done[index] = Some(state);
        if !self.options.test {
            Hearing::tell(self.low, index, &self.done, self.modules);
        }
    }

    /// Waits for one parallel state; false when none is left.
    async fn finish_one(&mut self, on_state: &mut impl FnMut(&StateReturn)) -> bool {
        match self.running.next().await {
            Some(state) => {
                self.store(state, on_state);
                true
            }
            None => false,
        }
    }

    /// Runs one state to its end while the parallel ones go on.
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

    fn failhard(&self) -> bool {
        self.done
            .iter()
            .zip(&self.low.chunks)
            .any(|(state, chunk)| {
                chunk.controls.failhard
                    && state
                        .as_ref()
                        .is_some_and(|state| state.result == Some(false))
            })
    }

    /// After all states: one `mod_watch` for each listener whose target changed.
    async fn listen(
        &mut self,
        states: &mut Vec<StateReturn>,
        on_state: &mut impl FnMut(&StateReturn),
    ) {
        let (low, modules) = (self.low, self.modules);
        for (index, chunk) in low.chunks.iter().enumerate() {
            let changed = |target: &usize| {
                requisites::state(&self.done, *target)
                    .is_some_and(|state| self.hearing.changed(state, index))
            };
            if !chunk.requisites.listen.iter().any(changed) {
                continue;
            }
            let started = Started::now();
            let mut is_good = true;
            if let Some(outcome) = single::watch(chunk, modules, self.options, &[]).await {
                let mut state = started.finish(chunk, index, outcome);
                state.id = format!("listener_{}", chunk.id);
                state.function = format!("{}.mod_watch", chunk.state);
                on_state(&state);
                is_good = state.result == Some(true);
                states.push(state);
            }
            if is_good && !self.options.test {
                Hearing::tell_listened(low, chunk, &self.done, modules);
            }
        }
    }
}

/// When a state began, to fill in its return.
struct Started {
    time: String,
    instant: Instant,
}

impl Started {
    fn now() -> Self {
        Self {
            time: jiff::Timestamp::now().to_string(),
            instant: Instant::now(),
        }
    }

    fn finish(self, chunk: &Chunk, index: usize, outcome: Outcome) -> StateReturn {
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
            fail_run: chunk.controls.fail_run,
        }
    }
}

fn skipped(chunk: &Chunk, index: usize, result: bool, comment: String) -> StateReturn {
    let outcome = Outcome {
        result: Some(result),
        changes: Map::new(),
        comment,
        ran: false,
    };
    Started::now().finish(chunk, index, outcome)
}

/// Keeps the shape of a change and hides its values.
fn mask(value: &mut Value) {
    match value {
        Value::Object(map) => map.values_mut().for_each(mask),
        Value::Array(items) => items.iter_mut().for_each(mask),
        Value::Null => {}
        _ => *value = Value::from("(sensitive, not shown)"),
    }
}

#[cfg(test)]
mod tests;
