//! Errors of keys and seals.

use std::io;
use std::path::PathBuf;

/// A key or a sealed image could not be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read or written, or its content is invalid.
    #[error(transparent)]
    File(#[from] halite_durable::Error),
    /// A password could not be read.
    #[error("{what}: {message}")]
    Program {
        /// The prompt.
        what: String,
        /// The reason.
        message: String,
    },
}

impl Error {
    /// Makes the error of a system call, for `map_err`, from the action and the file's path.
    pub(crate) fn file(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let failed = halite_durable::Error::file(action, path);
        move |cause| failed(cause).into()
    }

    /// Makes the error of a file's content, with the remedy in the message.
    pub(crate) fn content(path: impl Into<PathBuf>, message: impl Into<String>) -> Self {
        halite_durable::Error::content(path, message).into()
    }

    /// Makes the error of a file's content from the error of its reader.
    pub(crate) fn invalid(
        path: impl Into<PathBuf>,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        halite_durable::Error::invalid(path, source).into()
    }
}
