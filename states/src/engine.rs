//! The interface between the engine and the programs that run a low state: the minion (host
//! effects) and the master (Kubernetes objects).
//!
//! A state function has two halves. `check` inspects and reports the difference from the
//! declaration; `apply` makes exactly that difference go away. Test mode never calls `apply`: it
//! asks the modules to predict the difference for later checks.

use std::error::Error;
use std::future::Future;
use std::sync::Arc;

use halite_errors::chain;
use serde_json::{Map, Value};

use crate::low::Chunk;

/// The result of a check.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Checked<D> {
    /// Changes that an apply would make, for people and for returns; empty when the resource is as
    /// declared.
    pub changes: Map<String, Value>,
    /// One sentence; becomes the comment of the return.
    pub comment: String,
    /// The difference in the form in which `apply` takes it.
    pub diff: D,
}

/// A failed check or apply: one sentence with what failed, where, and the remedy, and its cause.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    message: String,
    #[source]
    cause: Option<Arc<dyn Error + Send + Sync>>,
}

impl Failure {
    /// A failure without a further cause.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            cause: None,
        }
    }

    /// A failure with its cause, which the message does not repeat.
    pub fn with_cause(
        message: impl Into<String>,
        cause: impl Error + Send + Sync + 'static,
    ) -> Self {
        Self {
            message: message.into(),
            cause: Some(Arc::new(cause)),
        }
    }

    /// The message followed by all causes, joined by `: `; the comment of a return.
    #[must_use]
    pub fn text(&self) -> String {
        chain(self)
    }
}

/// Failures are equal when they read the same, causes included.
impl PartialEq for Failure {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self::new(message)
    }
}

impl From<&str> for Failure {
    fn from(message: &str) -> Self {
        Self::new(message)
    }
}

/// The result of an apply.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Applied {
    /// Changes that are only known afterwards (a command's output). They are merged over the
    /// predicted changes; `null` removes a predicted change (a `stateful` command that reports
    /// `changed=no`).
    pub changes: Map<String, Value>,
    /// Replaces the check's comment when not empty.
    pub comment: String,
}

/// The state functions, as the engine calls them.
pub trait Modules: Sync {
    /// The difference that `check` hands to `apply`.
    type Diff: Send + Sync + Default + Clone;

    /// Compares the host with the chunk's declaration. Must change nothing.
    fn check(
        &self,
        chunk: &Chunk,
    ) -> impl Future<Output = Result<Checked<Self::Diff>, Failure>> + Send;

    /// Makes the difference go away. Must be safe to repeat after a crash at any point.
    fn apply(
        &self,
        chunk: &Chunk,
        diff: &Self::Diff,
    ) -> impl Future<Output = Result<Applied, Failure>> + Send;

    /// Makes later checks see the host as if `diff` had been applied; test mode only.
    fn predict(&self, chunk: &Chunk, diff: &Self::Diff) -> impl Future<Output = ()> + Send;

    /// Salt's `mod_watch`: the action that a changed watched state triggers (a service restart, a
    /// command). `None` when the function has none; then `watch` means `require`.
    fn watch(
        &self,
        chunk: &Chunk,
    ) -> impl Future<Output = Option<Result<Checked<Self::Diff>, Failure>>> + Send;

    /// Tests whether applying `diff` does what [`Self::watch`] would do. If not, a changed watched
    /// state triggers that too. Salt instead accepts any change of the state itself in its place
    /// (and does not restart a service that was only enabled).
    fn includes_watch(&self, _chunk: &Chunk, _diff: &Self::Diff) -> bool {
        true
    }

    /// Evaluates one `unless`/`onlyif`/`check_cmd` condition: a shell command, or `{fun:
    /// module.function, …}`.
    fn condition(
        &self,
        chunk: &Chunk,
        condition: &Value,
    ) -> impl Future<Output = Result<bool, Failure>> + Send;

    /// Tests whether a path exists, for `creates`.
    fn exists(&self, path: &str) -> impl Future<Output = bool> + Send;

    /// Records that a state is about to change something on which the watchers act (`watch`,
    /// `onchanges`, `listen`). The record is durable before this returns, so that the next run
    /// triggers the watchers if this one is interrupted.
    ///
    /// # Errors
    /// The trigger cannot be recorded; the engine then does not apply the change.
    fn record_trigger(&self, _chunk: &Chunk, _watchers: &[&Chunk]) -> Result<(), Failure> {
        Ok(())
    }

    /// Tests whether a recorded trigger is left on which the watcher has not acted yet.
    fn is_pending(&self, _chunk: &Chunk, _watcher: &Chunk) -> bool {
        false
    }

    /// Removes the record: the watcher has acted on the state's change.
    fn clear_trigger(&self, _chunk: &Chunk, _watcher: &Chunk) {}

    /// Waits for a request to end the run early (cancelled, its time limit, a stop of the program);
    /// returns the reason. Such a request also ends the pause between two attempts of `retry`.
    fn stopped(&self) -> impl Future<Output = String> + Send {
        std::future::pending()
    }
}

/// Options of one run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunOptions {
    /// Predict only; change nothing.
    pub test: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_its_cause_once() {
        let cause = std::io::Error::other("no space left");
        let failure = Failure::with_cause("cannot write /etc/a", cause);
        assert_eq!(failure.to_string(), "cannot write /etc/a");
        assert_eq!(failure.text(), "cannot write /etc/a: no space left");
        assert!(failure.source().is_some());
    }
}
