//! Errors of backups.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::metadata_error::MetadataError;

/// The reason why a backup could not be made, read or restored.
#[derive(Debug, thiserror::Error)]
pub enum Error {
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
    /// A file or directory could not be used.
    #[error(transparent)]
    Files(#[from] halite_durable::Error),
}

impl Error {
    /// Makes the error of a failed system call, for `map_err`.
    pub(crate) fn file(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let error = halite_durable::Error::file(action, path);
        move |cause| Self::Files(error(cause))
    }

    /// Makes the error of an unusable path. The message contains the remedy.
    pub(crate) fn unusable(path: impl Into<PathBuf>, message: impl Into<String>) -> Self {
        Self::Files(halite_durable::Error::content(path, message))
    }

    /// The kind of the system's reason, if a system call failed.
    pub(crate) fn io_kind(&self) -> Option<io::ErrorKind> {
        match self {
            Self::Files(halite_durable::Error::File { cause, .. }) => Some(cause.kind()),
            _ => None,
        }
    }
}
