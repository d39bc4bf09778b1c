//! The run of one state: `onlyif`, `unless` and `creates`, then check and apply (or predict),
//! `mod_watch`, `check_cmd` and `retry`.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{Either, select};
use serde_json::Value;

use super::returns::{Started, StateOutcome};
use crate::engine::{Checked, Failure, Modules, RunOptions};
use crate::low::{Chunk, StateReturn};

/// The moment from which later states may run in parallel with this one: its difference is known,
/// and its change has begun.
#[derive(Debug, Clone, Default)]
pub(super) struct Begun(Arc<AtomicBool>);

impl Begun {
    fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The triggers of one state, in both directions.
#[derive(Debug, Default)]
pub(super) struct Triggers<'a> {
    /// A state that it watches changed.
    pub triggered: bool,
    /// States that act on its own changes.
    pub watchers: Vec<&'a Chunk>,
    /// Set when the state's change begins.
    pub begun: Begun,
}

/// The function of a state that is called.
#[derive(Debug)]
pub(super) enum Call<'a> {
    /// The state's own.
    State(Triggers<'a>),
    /// Its `mod_watch` alone, for a listener.
    ModWatch,
}

/// Runs one state, with `retry`.
pub(super) async fn execute<M: Modules>(
    chunk: &Chunk,
    index: usize,
    modules: &M,
    options: RunOptions,
    call: Call<'_>,
) -> StateReturn {
    let started = Started::now();
    let mut outcome = once(chunk, modules, options, &call).await;
    if let Some(retry) = chunk
        .controls
        .retry
        .as_ref()
        .filter(|_| !options.test && outcome.ran)
    {
        if let Call::State(triggers) = &call {
            triggers.begun.set();
        }
        let mut comments = String::new();
        let mut attempt = 1;
        while outcome.result != Some(retry.until) && attempt < retry.attempts {
            let result = if outcome.result == Some(false) {
                "False"
            } else {
                "True"
            };
            comments.push_str(&format!(
                "Attempt {attempt}: Returned a result of \"{result}\", with the following comment: \"{}\"\n",
                outcome.comment
            ));
            attempt += 1;
            let seconds = if retry.interval.is_finite() {
                retry.interval.clamp(0.0, 86_400.0)
            } else {
                0.0
            };
            let pause = Duration::from_secs_f64(seconds) + random(retry.splay);
            let pause = tokio::time::sleep(pause);
            // The stop request is polled first: without a pause it would never be noticed.
            if let Either::Left((reason, _)) = select(pin!(modules.stopped()), pin!(pause)).await {
                outcome.result = Some(false);
                outcome.comment = format!("not tried again: {reason}");
                break;
            }
            let earlier = std::mem::take(&mut outcome.changes);
            outcome = once(chunk, modules, options, &call).await;
            // Changes of an earlier attempt remain on the host; watchers must be triggered by them.
            for (key, value) in earlier {
                outcome.changes.entry(key).or_insert(value);
            }
        }
        outcome.comment.insert_str(0, &comments);
    }
    started.finish(chunk, index, outcome)
}

/// A random number of seconds, at most `most`.
fn random(most: u32) -> Duration {
    // Each hasher of the standard library has random keys.
    let number = RandomState::new().build_hasher().finish();
    Duration::from_secs(number % (u64::from(most) + 1))
}

/// `mod_watch` of a state; `None` when its function has none.
async fn watch<M: Modules>(
    chunk: &Chunk,
    modules: &M,
    options: RunOptions,
    triggers: &Triggers<'_>,
) -> Option<StateOutcome> {
    let outcome = match modules.watch(chunk).await? {
        Ok(checked) => apply_or_predict(chunk, modules, options, triggers, checked).await,
        Err(failure) => StateOutcome::failed(&failure),
    };
    Some(outcome)
}

/// The comment of the `onlyif`, `unless` or `creates` that keeps a state from running, if one does.
pub(super) async fn controls<M: Modules>(
    chunk: &Chunk,
    modules: &M,
) -> Result<Option<String>, Failure> {
    let controls = &chunk.controls;
    if !controls.onlyif.is_empty() && !all_hold(chunk, &controls.onlyif, modules).await? {
        return Ok(Some("onlyif condition is false".into()));
    }
    if !controls.unless.is_empty() && all_hold(chunk, &controls.unless, modules).await? {
        return Ok(Some("unless condition is true".into()));
    }
    if !controls.creates.is_empty() {
        let mut all = true;
        for path in &controls.creates {
            all = all && modules.exists(path).await;
        }
        if all {
            return Ok(Some(match controls.creates.as_slice() {
                [path] => format!("{path} exists"),
                _ => "All files in creates exist".into(),
            }));
        }
    }
    Ok(None)
}

async fn all_hold<M: Modules>(
    chunk: &Chunk,
    conditions: &[Value],
    modules: &M,
) -> Result<bool, Failure> {
    for condition in conditions {
        if !modules.condition(chunk, condition).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

async fn once<M: Modules>(
    chunk: &Chunk,
    modules: &M,
    options: RunOptions,
    call: &Call<'_>,
) -> StateOutcome {
    match controls(chunk, modules).await {
        Ok(None) => {}
        Ok(Some(comment)) => {
            return StateOutcome::skipped(true, comment);
        }
        Err(failure) => return StateOutcome::failed(&failure),
    }
    let mut outcome = match call {
        Call::State(triggers) => state(chunk, modules, options, triggers).await,
        Call::ModWatch => match watch(chunk, modules, options, &Triggers::default()).await {
            Some(outcome) => outcome,
            // The compiler refuses such a listener; older masters did not.
            None => {
                return StateOutcome::skipped(true, format!("{} has no mod_watch", chunk.state));
            }
        },
    };
    if !options.test && !chunk.controls.check_cmd.is_empty() {
        check_cmd(chunk, modules, &mut outcome).await;
    }
    outcome
}

/// Calls the state's own function, and `mod_watch` if a watched state changed and the state itself
/// has not already done the work of its `mod_watch`.
async fn state<M: Modules>(
    chunk: &Chunk,
    modules: &M,
    options: RunOptions,
    triggers: &Triggers<'_>,
) -> StateOutcome {
    let (mut outcome, acts) = match modules.check(chunk).await {
        Ok(checked) => {
            let acts = modules.includes_watch(chunk, &checked.diff);
            let outcome = apply_or_predict(chunk, modules, options, triggers, checked).await;
            (outcome, acts)
        }
        Err(failure) => (StateOutcome::failed(&failure), true),
    };
    let acted = acts && !outcome.changes.is_empty();
    if triggers.triggered
        && !acted
        && outcome.result != Some(false)
        && let Some(watched) = watch(chunk, modules, options, triggers).await
    {
        outcome = outcome.then(watched);
    }
    outcome
}

/// Applies, or in test mode predicts, the difference that a check found.
async fn apply_or_predict<M: Modules>(
    chunk: &Chunk,
    modules: &M,
    options: RunOptions,
    triggers: &Triggers<'_>,
    checked: Checked<M::Diff>,
) -> StateOutcome {
    let Checked {
        mut changes,
        mut comment,
        diff,
    } = checked;
    if changes.is_empty() {
        return StateOutcome {
            result: Some(true),
            changes,
            comment,
            ran: true,
        };
    }
    if options.test {
        modules.predict(chunk, &diff).await;
        return StateOutcome {
            result: None,
            changes,
            comment,
            ran: true,
        };
    }
    let is_new = |watcher: &&&Chunk| !modules.is_pending(chunk, watcher);
    let new: Vec<&Chunk> = triggers.watchers.iter().filter(is_new).copied().collect();
    if let Err(failure) = modules.record_trigger(chunk, &triggers.watchers) {
        return StateOutcome::failed(&failure);
    }
    triggers.begun.set();
    match modules.apply(chunk, &diff).await {
        Ok(applied) => {
            for (key, value) in applied.changes {
                if value.is_null() {
                    changes.remove(&key);
                } else {
                    changes.insert(key, value);
                }
            }
            // Nothing was changed after all, and a trigger alone counts as a change.
            if changes.is_empty() {
                new.iter()
                    .for_each(|watcher| modules.clear_trigger(chunk, watcher));
            }
            if !applied.comment.is_empty() {
                comment = applied.comment;
            }
            StateOutcome {
                result: Some(true),
                changes,
                comment,
                ran: true,
            }
        }
        Err(failure) => StateOutcome::failed(&failure),
    }
}

/// Runs `check_cmd`, which alone decides about the result, as in Salt: it also turns a failure of
/// the state itself into success.
async fn check_cmd<M: Modules>(chunk: &Chunk, modules: &M, outcome: &mut StateOutcome) {
    let conditions: Vec<Value> = chunk
        .controls
        .check_cmd
        .iter()
        .map(|line| Value::from(line.as_str()))
        .collect();
    match all_hold(chunk, &conditions, modules).await {
        Ok(true) => {
            outcome.result = Some(true);
            outcome.comment = "check_cmd determined the state succeeded".into();
        }
        Ok(false) => {
            outcome.result = Some(false);
            outcome.comment = "check_cmd determined the state failed".into();
        }
        Err(failure) => *outcome = StateOutcome::failed(&failure),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::random;

    #[test]
    fn a_splay_adds_at_most_its_seconds() {
        assert_eq!(random(0), Duration::ZERO);
        let all: Vec<Duration> = (0..200).map(|_| random(2)).collect();
        assert!(all.iter().all(|added| *added <= Duration::from_secs(2)));
        assert!(all.contains(&Duration::ZERO) && all.contains(&Duration::from_secs(2)));
    }
}
