//! Errors of backups.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::backup_metadata::MetadataError;

/// The reason why a backup could not be made, read or restored.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call on a file failed.
    #[error("cannot {action} {}", path.display())]
    File {
        /// The action as a verb: `read`, `write`, …
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A path is not usable as it is.
    #[error("{}: {message}", path.display())]
    Unusable {
        /// The path.
        path: PathBuf,
        /// The reason and the remedy.
        message: String,
    },
    /// A directory is not a complete backup.
    #[error("{}: it is not a complete backup of a registry", path.display())]
    Incomplete {
        /// The directory.
        path: PathBuf,
        /// The problem with its metadata.
        source: Arc<MetadataError>,
    },
    /// Metadata or a report could not be written as JSON.
    #[error("cannot write {} as JSON", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// The serializer's reason.
        source: serde_json::Error,
    },
    /// An operation on files failed.
    #[error(transparent)]
    Files(#[from] halite_bundle::Error),
}

impl Error {
    /// Makes an error of a failed system call, for `map_err`.
    pub(crate) fn file(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File {
            action,
            path,
            source,
        }
    }

    /// Makes an error about a path that is not usable.
    pub(crate) fn unusable(path: impl Into<PathBuf>, message: impl Into<String>) -> Self {
        Self::Unusable {
            path: path.into(),
            message: message.into(),
        }
    }

    /// The system's reason, if a system call failed.
    pub(crate) fn io_kind(&self) -> Option<io::ErrorKind> {
        match self {
            Self::File { source, .. } => Some(source.kind()),
            Self::Files(halite_bundle::Error::File { cause, .. }) => Some(cause.kind()),
            _ => None,
        }
    }
}

/// The text of an error with its causes: `cannot read x: permission denied`.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
