//! The engine's view of this host: the state modules check, and the runner carries out their
//! effects one after the other.
//!
//! The runner knows one state function by name: `cmd`, whose output is its changes. A chunk that
//! contains a secret is checked and applied like any other, but its values never leave the runner.

mod conditions;
mod redact;
mod restarts;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use halite_errors::{chain, cut};
use halite_states::engine::{Applied, Checked, Failure, Modules};
use halite_states::low::Chunk;
use serde_json::{Map, Value, json};

use self::redact::{redact, redacted};
use self::restarts::restarted;
use crate::host::effect::{Command, Effect, Output, UnitAction};
use crate::host::overlay::{KNOWN_AFTER_APPLY, Overlay};
use crate::host::{Host, HostError, Stop};
use crate::modules;
use crate::modules::{Function, Plan, fail, failure};
use crate::pending_triggers::PendingTriggers;
use crate::turns::{Turn, Turns};

pub use self::redact::REDACTED;

/// Maximum characters of a failed program's output in the reason of the failure.
const LONGEST_REASON: usize = 2000;
/// Seconds between two questions for a turn.
const ASK_AGAIN: f64 = 2.0;

/// The effects that a check found missing, for apply.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MissingEffects {
    /// In order.
    pub effects: Vec<Effect>,
    /// The comment after they are carried out; if empty, the check's.
    pub done: String,
}

/// State modules over a host; implements the engine's [`Modules`].
pub struct Runner<'h> {
    host: &'h dyn Host,
    predicted: Overlay<'h>,
    functions: &'static [Function],
    stop: Arc<Stop>,
    pending: Option<PendingTriggers>,
    turns: Option<Arc<dyn Turns>>,
    /// `true` once this run has a turn.
    has_turn: AtomicBool,
    /// The last chunk with a condition whose answer was assumed, as [`key`] names it.
    assumed_condition: Mutex<String>,
}

impl<'h> Runner<'h> {
    /// A runner with all state functions of this minion over `host`.
    #[must_use]
    pub fn new(host: &'h dyn Host) -> Self {
        Self::with_functions(host, modules::functions())
    }

    /// A runner with the given state functions over `host`.
    #[must_use]
    pub fn with_functions(host: &'h dyn Host, functions: &'static [Function]) -> Self {
        Self {
            host,
            predicted: Overlay::new(host),
            functions,
            stop: Arc::default(),
            pending: None,
            turns: None,
            has_turn: AtomicBool::new(false),
            assumed_condition: Mutex::default(),
        }
    }

    /// Lets `stop` end the run.
    #[must_use]
    pub fn stoppable(self, stop: Arc<Stop>) -> Self {
        Self { stop, ..self }
    }

    /// Takes the pending triggers of earlier runs, and records this run's there.
    #[must_use]
    pub fn with_pending(self, pending: Option<PendingTriggers>) -> Self {
        Self { pending, ..self }
    }

    /// Takes a turn from `turns` before the first restart of a service.
    #[must_use]
    pub fn with_turns(self, turns: Arc<dyn Turns>) -> Self {
        Self {
            turns: Some(turns),
            ..self
        }
    }

    /// Waits for the turn of this host, if these effects restart a service.
    async fn take_turn(&self, effects: &[Effect]) -> Result<(), Failure> {
        let Some(turns) = &self.turns else {
            return Ok(());
        };
        let Some(unit) = effects.iter().find_map(restarted) else {
            return Ok(());
        };
        let mut reason = String::new();
        while !self.has_turn.load(Ordering::Relaxed) {
            self.check_stop()?;
            match turns.ask(&unit).await? {
                Turn::Taken => self.has_turn.store(true, Ordering::Relaxed),
                Turn::Refused(because) => return fail(because),
                Turn::Waits(because) => {
                    if because != reason {
                        tracing::info!(unit, because, "waiting for the turn to restart services");
                        reason = because;
                    }
                    self.host.sleep(ASK_AGAIN).await;
                }
            }
        }
        Ok(())
    }

    fn assumed_condition(&self) -> MutexGuard<'_, String> {
        let last = self.assumed_condition.lock();
        last.unwrap_or_else(PoisonError::into_inner)
    }

    fn check_stop(&self) -> Result<(), Failure> {
        self.stop.reason().map_or(Ok(()), fail)
    }

    fn function(&self, chunk: &Chunk) -> Result<&'static Function, Failure> {
        let found = self
            .functions
            .iter()
            .find(|f| f.name == (chunk.state.as_str(), chunk.fun.as_str()));
        found.ok_or_else(|| {
            failure(format!(
                "this minion has no state `{}`: it is older than the master that compiled this; update it",
                chunk.function()
            ))
        })
    }
}

/// Names a chunk among those of a run.
fn key(chunk: &Chunk) -> String {
    format!(
        "{} {} {} {}",
        chunk.sls,
        chunk.id,
        chunk.function(),
        chunk.name
    )
}

impl Modules for Runner<'_> {
    type Diff = MissingEffects;

    async fn check(&self, chunk: &Chunk) -> Result<Checked<Self::Diff>, Failure> {
        self.check_stop()?;
        let function = self.function(chunk)?;
        self.predicted.take_assumed();
        let mut checked = checked(chunk, (function.check)(&self.predicted, chunk).await)?;
        let is_assumed = self.predicted.take_assumed() || *self.assumed_condition() == key(chunk);
        if is_assumed && !checked.changes.is_empty() {
            checked.comment = format!("{}: {KNOWN_AFTER_APPLY}", checked.comment);
        }
        Ok(checked)
    }

    async fn apply(&self, chunk: &Chunk, diff: &Self::Diff) -> Result<Applied, Failure> {
        self.take_turn(&diff.effects).await?;
        let mut applied = Applied {
            comment: diff.done.clone(),
            ..Applied::default()
        };
        for effect in &diff.effects {
            self.check_stop()?;
            let output = self
                .host
                .perform(effect)
                .await
                .map_err(|e| redacted_failure(chunk, &e))?;
            if let Effect::StaticPod(_) = effect
                && matches!(chunk.state.as_str(), "static_pod" | "unit")
            {
                applied.comment = redacted(chunk, &output.stdout);
            }
            if let Effect::Run(command) = effect {
                let result = run_result(chunk, command, &output);
                if chunk.state == "cmd" {
                    applied.changes = command_changes(chunk, &output);
                    if applied.comment.is_empty() {
                        applied.comment = format!("Command \"{}\" run", chunk.name);
                    }
                }
                result.map_err(|e| redacted_failure(chunk, &e))?;
            }
        }
        Ok(applied)
    }

    async fn predict(&self, _: &Chunk, diff: &Self::Diff) {
        for effect in &diff.effects {
            self.predicted.predict(effect).await;
        }
    }

    async fn watch(&self, chunk: &Chunk) -> Option<Result<Checked<Self::Diff>, Failure>> {
        let watch = match self.function(chunk) {
            Ok(function) => function.watch?,
            Err(failure) => return Some(Err(failure)),
        };
        Some(checked(chunk, watch(&self.predicted, chunk).await))
    }

    fn includes_watch(&self, _: &Chunk, diff: &Self::Diff) -> bool {
        let mut actions = diff
            .effects
            .iter()
            .filter_map(|effect| match effect {
                Effect::Unit { action, .. } => Some(action),
                _ => None,
            })
            .peekable();
        actions.peek().is_none()
            || actions.any(|action| {
                matches!(
                    action,
                    UnitAction::Start | UnitAction::Restart | UnitAction::Reload
                )
            })
    }

    async fn condition(&self, chunk: &Chunk, condition: &Value) -> Result<bool, Failure> {
        self.check_stop()?;
        self.predicted.take_assumed();
        let holds = match condition {
            Value::Bool(holds) => Ok(*holds),
            Value::String(line) => self.shell(chunk, line).await,
            Value::Object(call) => self.call(call).await,
            other => fail(format!(
                "`{other}` is not a condition: give a shell command or {{fun: …}}"
            )),
        };
        if self.predicted.take_assumed() {
            *self.assumed_condition() = key(chunk);
        }
        holds
    }

    async fn exists(&self, path: &str) -> bool {
        matches!(self.predicted.stat(path).await, Ok(Some(_)))
    }

    fn record_trigger(&self, chunk: &Chunk, watchers: &[&Chunk]) -> Result<(), Failure> {
        let Some(pending) = &self.pending else {
            return Ok(());
        };
        watchers
            .iter()
            .try_for_each(|watcher| pending.record(chunk, watcher))
            .map_err(|e| {
                let error = HostError::failed("not started: cannot record its pending triggers", e);
                redacted_failure(chunk, &error)
            })
    }

    fn is_pending(&self, chunk: &Chunk, watcher: &Chunk) -> bool {
        self.pending
            .as_ref()
            .is_some_and(|pending| pending.contains(chunk, watcher))
    }

    fn clear_trigger(&self, chunk: &Chunk, watcher: &Chunk) {
        if let Some(pending) = &self.pending
            && let Err(error) = pending.clear(chunk, watcher)
        {
            tracing::warn!(
                id = watcher.id,
                error = chain(&error),
                "a pending trigger was not cleared; the next run repeats this state"
            );
        }
    }

    async fn stopped(&self) -> String {
        self.stop.requested().await
    }
}

/// The failure of `chunk` with an error's text, without the chunk's secrets.
fn redacted_failure(chunk: &Chunk, error: &HostError) -> Failure {
    failure(redacted(chunk, &chain(error)))
}

fn checked(chunk: &Chunk, plan: Result<Plan, Failure>) -> Result<Checked<MissingEffects>, Failure> {
    let plan = plan.map_err(|e| failure(redacted(chunk, &chain(&e))))?;
    let comment = redacted(chunk, &plan.comment);
    let mut changes = plan.changes;
    if chunk.sensitive {
        changes.values_mut().for_each(redact);
    }
    let done = redacted(chunk, &plan.done);
    Ok(Checked {
        changes,
        comment,
        diff: MissingEffects {
            effects: plan.effects,
            done,
        },
    })
}

fn command_changes(chunk: &Chunk, output: &Output) -> Map<String, Value> {
    let text = |s: &str| {
        if chunk.sensitive {
            json!(REDACTED)
        } else {
            json!(s.trim_end_matches('\n'))
        }
    };
    Map::from_iter([
        ("retcode".to_owned(), json!(output.code)),
        ("stdout".to_owned(), text(&output.stdout)),
        ("stderr".to_owned(), text(&output.stderr)),
    ])
}

/// Refuses an exit code that is not a success. The end of a long output is kept, cut after its
/// secrets are removed.
fn run_result(chunk: &Chunk, command: &Command, output: &Output) -> Result<(), HostError> {
    if command.is_success(output.code) {
        return Ok(());
    }
    let line = match command.argv.as_slice() {
        [shell, flag, line] if flag == "-c" && shell.ends_with("sh") => line.clone(),
        argv => argv.join(" "),
    };
    let stderr = if output.stderr.trim().is_empty() {
        &output.stdout
    } else {
        &output.stderr
    };
    Err(HostError::Command {
        command: line,
        status: output.code,
        stderr: cut::end(&redacted(chunk, stderr.trim()), LONGEST_REASON),
    })
}
