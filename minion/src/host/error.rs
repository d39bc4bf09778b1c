//! Errors of the host.

use std::error::Error;
use std::path::PathBuf;

/// Result of a question or effect.
pub type HostResult<T> = Result<T, HostError>;

/// The host could not answer a question or carry out an effect. Each text names the path, unit or
/// command; [`halite_errors::chain`] adds the causes.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The kernel refused an operation on a file or directory.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// Verb, for example `read`.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The kernel's reason.
        source: std::io::Error,
    },
    /// A program could not be started or waited for.
    #[error("cannot run `{program}`")]
    Start {
        /// First word of the command.
        program: String,
        /// The kernel's reason.
        source: std::io::Error,
    },
    /// One of the host's own programs failed.
    #[error("`{command}` ended with exit code {status}: {stderr}")]
    Command {
        /// Program and arguments.
        command: String,
        /// Exit code; 128 + signal when a signal ended it.
        status: i32,
        /// Its standard error, or its standard output when that is empty.
        stderr: String,
    },
    /// A program exceeded its time limit.
    #[error("`{program}` was not done after {seconds} s and was killed; it said: {stderr}")]
    Timeout {
        /// First word of the command.
        program: String,
        /// Its limit.
        seconds: u64,
        /// Its standard error until then.
        stderr: String,
    },
    /// A command was ended because its run was.
    #[error("`{program}` was ended: {reason}")]
    Stopped {
        /// First word of the command.
        program: String,
        /// The reason of the request.
        reason: String,
    },
    /// Another part (the master, the system bus, a library) failed.
    #[error("{action}")]
    Failed {
        /// The failed action and its object.
        action: String,
        /// The cause.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The host, a service of it or the minion itself refused.
    #[error("{reason}")]
    Refused {
        /// Action, cause and remedy in one text.
        reason: String,
    },
}

impl HostError {
    /// A failed operation on a file or directory.
    pub fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
        source: impl Into<std::io::Error>,
    ) -> Self {
        Self::Io {
            action,
            path: path.into(),
            source: source.into(),
        }
    }

    /// A failure with a cause from outside this module.
    pub fn failed(
        action: impl Into<String>,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self::Failed {
            action: action.into(),
            source: source.into(),
        }
    }

    /// A refusal.
    pub fn refused(reason: impl Into<String>) -> Self {
        Self::Refused {
            reason: reason.into(),
        }
    }
}
