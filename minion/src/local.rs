//! Local mode: a low state from a file, applied without a master.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use halite_states::engine::RunOptions;
use halite_states::low::{RunReturn, StateReturn};

use crate::blobs::LocalBlobs;
use crate::exclusive;
use crate::host::HostError;
use crate::host::certificate::NoSigner;
use crate::host::linux::LinuxHost;
use crate::jobs::low_state;
use crate::journal::Directory;
use crate::owed::Owed;
use crate::runner::Runner;

/// What is given on the command line.
#[derive(Debug, Clone)]
pub struct Request {
    /// Low state (JSON); `-`: standard input.
    pub low: PathBuf,
    /// Directory of files named by their SHA-256.
    pub blobs: Option<PathBuf>,
    /// Directory of what was changed and not acted on; need not be there.
    pub owed: PathBuf,
    /// Predict only.
    pub test: bool,
    /// One JSON document at the end instead of lines as it goes.
    pub json: bool,
}

/// Applies and prints. The answer says whether all went well.
///
/// # Errors
/// The low state cannot be read, or the run's lock cannot be taken.
pub async fn apply(request: &Request) -> Result<bool, String> {
    let text = read(&request.low)?;
    let low = low_state(&text, "")?;
    let _lock = if request.test {
        None
    } else {
        let lock = exclusive::take(|| eprintln!("waiting for another run on this host")).await;
        Some(lock.map_err(|e| format!("{e}; halite-minion apply must run as root"))?)
    };
    let owed = match Owed::open(Directory(request.owed.clone())) {
        Ok(owed) => Some(owed),
        // Who only looks need not be root.
        Err(HostError(error)) if request.test => {
            eprintln!("what an earlier run left to do is not known: {error}");
            None
        }
        Err(HostError(error)) => return Err(error),
    };
    let host = LinuxHost::new(
        Arc::new(NoSigner),
        Arc::new(LocalBlobs::new(request.blobs.as_deref())),
    );
    let runner = Runner::new(&host).owing(owed);
    let result =
        halite_states::run::run(&low, &runner, RunOptions { test: request.test }, |state| {
            if !request.json {
                tell(&line(state));
            }
        })
        .await;
    if request.json {
        tell(&serde_json::to_string_pretty(&result).map_err(|e| e.to_string())?);
    } else {
        tell(&summary(&result, request.test));
    }
    Ok(result.succeeded())
}

fn read(path: &Path) -> Result<String, String> {
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .map_err(|e| format!("standard input: {e}"))?;
        return Ok(text);
    }
    std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// Prints a line; a reader that has gone does not stop the run.
fn tell(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
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
            owed: dir.path().join("owed"),
            test: true,
            json: true,
        };
        assert_eq!(apply(&request).await, Ok(true));
        let missing = Request {
            low: dir.path().join("none"),
            ..request
        };
        assert!(apply(&missing).await.unwrap_err().contains("none"));
    }
}
