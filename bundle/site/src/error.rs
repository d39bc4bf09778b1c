//! Errors of changes to the bundles of a site.

use std::path::PathBuf;
use std::{fmt, io};

use crate::damage::BundleDamage;

/// A bundle could not be read, written or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read or written, or its content is invalid.
    #[error(transparent)]
    File(#[from] halite_durable::Error),
    /// A file could not be fetched from a server.
    #[error(transparent)]
    Fetch(#[from] halite_fetch::Error),
    /// A key or a seal could not be used.
    #[error(transparent)]
    Seal(#[from] halite_seal::Error),
    /// A file that the bundle needs is missing.
    #[error("the bundle would be incomplete: {0}")]
    Incomplete(String),
    /// All names that would be changed in a view of an image.
    #[error("not every program that reads an image could find these names; choose others\n  {}", .0.join("\n  "))]
    Names(Vec<String>),
    /// The bundle's files differ from its manifest.
    #[error("{} does not match its manifest, and is not sealed; build it again\n{}", dir.display(), Lines(problems))]
    Unsound {
        /// The bundle's directory.
        dir: PathBuf,
        /// The damage.
        problems: Vec<BundleDamage>,
    },
    /// The path for the image is a directory.
    #[error("{} is a directory: name a file for the image", .0.display())]
    Directory(PathBuf),
}

struct Lines<'a, T>(&'a [T]);

impl<T: fmt::Display> fmt::Display for Lines<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
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
