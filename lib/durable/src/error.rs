//! Errors of files and directories.

use std::io;
use std::path::PathBuf;

/// A file or directory that could not be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read or written.
    #[error("cannot {action} {}: {cause}", path.display())]
    File {
        /// `read`, `write` …
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// A file has a content, or a directory a state, with which the caller cannot continue.
    #[error("{}: {message}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The problem and its remedy.
        message: String,
    },
}

impl Error {
    /// Makes the error of a system call, for `map_err`, from the action and the file's path.
    pub fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |cause| Self::File {
            action,
            path,
            cause,
        }
    }

    /// Makes the error of a file's content, with the remedy in the message.
    pub fn content(path: impl Into<PathBuf>, message: impl Into<String>) -> Self {
        Self::Content {
            path: path.into(),
            message: message.into(),
        }
    }
}
