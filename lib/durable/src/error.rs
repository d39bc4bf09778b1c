//! Errors of files and directories.

use std::io;
use std::path::PathBuf;

/// A file or directory that could not be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read or written.
    #[error("cannot {action} {}: {cause}", path.display())]
    File {
        /// The action: `read`, `write`, …
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// A file's content or a directory's state does not let the caller continue.
    #[error("{}: {message}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The problem and its remedy.
        message: String,
    },
    /// A file has content that its reader refuses.
    #[error("{}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The reader's reason, with the remedy.
        source: Box<dyn std::error::Error + Send + Sync>,
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

    /// Makes the error of a file's content from the error of its reader.
    pub fn invalid(
        path: impl Into<PathBuf>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Invalid {
            path: path.into(),
            source: source.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn a_refused_content_has_its_reader_s_error_as_source() {
        let invalid = Error::invalid("/b", "it ends early");
        assert_eq!(invalid.to_string(), "/b");
        assert_eq!(invalid.source().unwrap().to_string(), "it ends early");
    }
}
