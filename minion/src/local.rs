//! Local mode: applies a low state from a file, without a master.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use halite_cli::output;
use halite_errors::chain;
use halite_states::engine::RunOptions;
use halite_states::low::{RunReturn, StateReturn};

use crate::blobs::LocalBlobs;
use crate::exclusive::LockError;
use crate::host::HostError;
use crate::host::certificate::NoSigner;
use crate::host::linux::LinuxHost;
use crate::journal::Directory;
use crate::low_state::LowStateError;
use crate::pending_triggers::PendingTriggers;
use crate::runner::Runner;
use crate::{exclusive, low_state};

/// The arguments of the command line.
#[derive(Debug, Clone)]
pub struct Request {
    /// Low state (JSON); `-`: standard input.
    pub low: PathBuf,
    /// Directory of files named by their SHA-256.
    pub blobs: Option<PathBuf>,
    /// Directory of pending triggers; need not exist.
    pub pending_triggers: PathBuf,
    /// Only predict.
    pub test: bool,
    /// Print one JSON document at the end instead of lines during the run.
    pub json: bool,
}

/// The run was not made.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// The file of the low state cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file; `-`: standard input.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The low state cannot be used.
    #[error(transparent)]
    LowState(#[from] LowStateError),
    /// The lock of state runs cannot be taken.
    #[error("cannot take the lock of state runs (halite-minion apply must run as root)")]
    Lock(#[source] LockError),
    /// The pending triggers cannot be read.
    #[error("cannot read the pending triggers")]
    PendingTriggers(#[source] HostError),
    /// The result cannot be printed as JSON.
    #[error("cannot encode the result")]
    Encode(#[source] serde_json::Error),
}

/// Applies the low state and prints the result; returns `true` if no state failed.
///
/// # Errors
/// The low state or the pending triggers cannot be read, or the lock cannot be taken.
pub async fn apply(request: &Request) -> Result<bool, LocalError> {
    let text = read(&request.low).map_err(|source| LocalError::Read {
        path: request.low.clone(),
        source,
    })?;
    let low = low_state::parse(&text, None)?;
    let _lock = if request.test {
        None
    } else {
        let lock = exclusive::take(|holder| {
            output::report(&format!("waiting for another run on this host: {holder}"))
        })
        .await;
        Some(lock.map_err(LocalError::Lock)?)
    };
    let pending = match PendingTriggers::open(Directory(request.pending_triggers.clone())) {
        Ok(pending) => Some(pending),
        // A prediction need not run as root.
        Err(error) if request.test => {
            output::report(&format!(
                "predicting without pending triggers: {}",
                chain(&error)
            ));
            None
        }
        Err(error) => return Err(LocalError::PendingTriggers(error)),
    };
    let host = LinuxHost::new(
        Arc::new(NoSigner),
        Arc::new(LocalBlobs::new(request.blobs.as_deref())),
    );
    let runner = Runner::new(&host).with_pending(pending);
    let result =
        halite_states::run::run(&low, &runner, RunOptions { test: request.test }, |state| {
            if !request.json {
                output::say(&line(state));
            }
        })
        .await;
    if request.json {
        output::say(&serde_json::to_string_pretty(&result).map_err(LocalError::Encode)?);
    } else {
        output::say(&summary(&result, request.test));
    }
    Ok(result.succeeded())
}

fn read(path: &Path) -> std::io::Result<String> {
    if path == Path::new("-") {
        return std::io::read_to_string(std::io::stdin());
    }
    std::fs::read_to_string(path)
}

fn line(state: &StateReturn) -> String {
    let mark = match (state.result, state.ran, state.changes.is_empty()) {
        (Some(false), ..) => '✗',
        (None, ..) => '~',
        (Some(true), false, _) => '-',
        (Some(true), true, false) => '+',
        (Some(true), true, true) => '✓',
    };
    format!(
        "{mark} {} {}: {}",
        state.function, state.name, state.comment
    )
}

fn summary(result: &RunReturn, test: bool) -> String {
    let would = if test { "would change" } else { "changed" };
    format!(
        "{} states, {} {would}, {} failed",
        result.states.len(),
        result.changed(),
        result.failed()
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_state_is_one_line() {
        let state: StateReturn = serde_json::from_value(json!({
            "index": 0, "__id__": "a", "name": "/etc/a", "function": "file.managed", "__sls__": "s", "result": null,
            "changes": {"diff": "x"}, "comment": "would be changed", "start_time": "", "duration": 1.0,
            "__run_num__": 0, "__state_ran__": true
        }))
        .unwrap();
        assert_eq!(line(&state), "~ file.managed /etc/a: would be changed");
        assert_eq!(
            line(&StateReturn {
                result: Some(false),
                ..state
            }),
            "✗ file.managed /etc/a: would be changed"
        );
    }

    #[tokio::test]
    async fn a_low_state_of_nothing_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let low = dir.path().join("low.json");
        std::fs::write(&low, r#"{"format":1,"minion":"a","chunks":[]}"#).unwrap();
        let request = Request {
            low,
            blobs: None,
            pending_triggers: dir.path().join("pending-triggers"),
            test: true,
            json: true,
        };
        assert!(apply(&request).await.unwrap());
        let missing = Request {
            low: dir.path().join("none"),
            ..request
        };
        assert!(
            apply(&missing)
                .await
                .unwrap_err()
                .to_string()
                .contains("none")
        );
    }
}
