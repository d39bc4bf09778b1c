//! What the engine needs from whoever runs a low state: the minion (host effects) and the master
//! (Kubernetes objects).
//!
//! A state function is split in two. `check` looks and says what differs; `apply` makes exactly
//! that difference go away. Test mode never calls `apply`: it asks the modules to lay the
//! difference over what later checks see.

use std::future::Future;

use serde_json::{Map, Value};

use crate::low::Chunk;

/// What a check found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Checked<D> {
    /// What would change, for people and for returns; empty when the state is as wanted.
    pub changes: Map<String, Value>,
    /// One sentence; shown as the comment.
    pub comment: String,
    /// What `apply` needs to make the change.
    pub diff: D,
}

/// Why a check or an apply failed: one sentence that says what, where and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Failure(pub String);

/// What an apply came to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Applied {
    /// What was changed where only doing it tells (a command's output); merged over the predicted
    /// changes, where `null` takes a predicted change away (a `stateful` command that says
    /// `changed=no`).
    pub changes: Map<String, Value>,
    /// Replaces the check's comment when not empty.
    pub comment: String,
}

/// The state functions as the engine sees them.
pub trait Modules: Sync {
    /// What `check` hands to `apply`.
    type Diff: Send + Sync + Default + Clone;

    /// Compares the host with what the chunk wants. Must change nothing.
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

    /// Test mode: from now on checks see the host as if `diff` had been applied.
    fn predict(&self, chunk: &Chunk, diff: &Self::Diff) -> impl Future<Output = ()> + Send;

    /// Salt's `mod_watch`: what a changed watched state asks for (a service restart, a command).
    /// `None` when the function has none; then `watch` means `require`.
    fn watch(
        &self,
        chunk: &Chunk,
    ) -> impl Future<Output = Option<Result<Checked<Self::Diff>, Failure>>> + Send;

    /// Evaluates one `unless`/`onlyif`/`check_cmd` condition: a shell command, or `{fun:
    /// module.function, …}`.
    fn condition(
        &self,
        chunk: &Chunk,
        condition: &Value,
    ) -> impl Future<Output = Result<bool, Failure>> + Send;

    /// Whether a path exists, for `creates`.
    fn exists(&self, path: &str) -> impl Future<Output = bool> + Send;

    /// Notes that a state is about to change something on which others act (`watch`, `onchanges`,
    /// `listen`), durably before it returns: a run that is cut off then leaves the next one to tell
    /// them.
    ///
    /// # Errors
    /// It cannot be noted; then nothing is changed.
    fn owe(&self, _chunk: &Chunk, _hearers: &[&Chunk]) -> Result<(), Failure> {
        Ok(())
    }

    /// Whether a state changed something in an earlier run on which another has not acted that
    /// should.
    fn is_owed(&self, _chunk: &Chunk, _hearer: &Chunk) -> bool {
        false
    }

    /// One has acted on what a state changed.
    fn heard(&self, _chunk: &Chunk, _hearer: &Chunk) {}
}

/// How a run is to be made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunOptions {
    /// Predict only; change nothing.
    pub test: bool,
}
