//! The errors of building and reading bundles.

use std::path::PathBuf;
use std::{fmt, io};

use halite_document::Problem;
use halite_errors::chain;

/// An error of building or reading a bundle.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// All problems of the recipe.
    #[error("{}", Lines(.0))]
    Recipe(Vec<Problem>),
    /// A file could not be read or written, or its content is invalid.
    #[error(transparent)]
    File(#[from] halite_durable::Error),
    /// The finished bundle could not be read, checked or packed.
    #[error(transparent)]
    Bundle(#[from] halite_bundle::Error),
    /// A key could not be used.
    #[error(transparent)]
    Seal(#[from] halite_seal::Error),
    /// An item differs from the lock.
    #[error(
        "{lock} records something else:\n  {}\nrun `ctl bundle update` to record the current items, or restore the recorded ones",
        .differences.join("\n  ")
    )]
    Lock {
        /// The lock file.
        lock: String,
        /// Each difference.
        differences: Vec<String>,
    },
    /// The recipe names items that the lock does not record yet. A build takes only recorded items
    /// from other machines.
    #[error("{lock} does not record\n  {}\nrun `ctl bundle lock` to record what these resolve to", .names.join("\n  "))]
    Unrecorded {
        /// The lock file.
        lock: String,
        /// The items.
        names: Vec<String>,
    },
    /// A download failed.
    #[error(transparent)]
    Fetch(#[from] halite_fetch::Error),
    /// Several errors.
    #[error("{}", .0.iter().map(|error| chain(error)).collect::<Vec<_>>().join("\n"))]
    Several(Vec<Error>),
    /// A program that the build needs failed or does not exist.
    #[error("{what}: {message}")]
    Program {
        /// The work that it was started for.
        what: String,
        /// Its error output.
        message: String,
    },
    /// A part of the bundle would be incomplete.
    #[error("the bundle would be incomplete: {0}")]
    Incomplete(String),
    /// All items that a cluster could request and the bundle lacks, each with the places that need
    /// it.
    #[error("the bundle would be incomplete; missing items:\n{}", .0.join("\n"))]
    Missing(Vec<String>),
    /// All names that would be changed in a view of an image.
    #[error("not every program that reads an image could find these names; choose others\n  {}", .0.join("\n  "))]
    Names(Vec<String>),
    /// The output path exists and is not a bundle.
    #[error("{} exists and is not a bundle: choose another path or remove it", .0.display())]
    Occupied(PathBuf),
}

struct Lines<'a, T>(&'a [T]);

impl<T: fmt::Display> fmt::Display for Lines<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl Error {
    /// Makes the error of a system call, for `map_err`, from the failed action and the file.
    pub fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let failed = halite_durable::Error::file(action, path);
        move |cause| failed(cause).into()
    }

    /// Combines many errors into one: failed downloads are reported together, so that all files
    /// missing offline are in one list.
    ///
    /// # Errors
    /// The combined error, unless `errors` is empty.
    pub(crate) fn all(errors: impl IntoIterator<Item = Self>) -> Result<(), Self> {
        let (mut fetched, mut rest) = (Vec::new(), Vec::new());
        for error in errors {
            match error {
                Self::Fetch(error) => fetched.push(error),
                error => rest.push(error),
            }
        }
        rest.extend(halite_fetch::Error::all(fetched).err().map(Self::Fetch));
        match rest.len() {
            0 => Ok(()),
            1 => Err(rest.remove(0)),
            _ => Err(Self::Several(rest)),
        }
    }

    /// The error for problems that have no place in the recipe's text.
    pub(crate) fn recipe(messages: impl IntoIterator<Item = String>) -> Self {
        let problem = |message| Problem::in_file("", message);
        Self::Recipe(messages.into_iter().map(problem).collect())
    }

    /// The error for a path whose copied content differs from the checked content.
    pub(crate) fn damaged(path: impl Into<PathBuf>, found: &(String, u64)) -> Self {
        halite_fetch::oci_layout::damaged(path, found).into()
    }

    /// The error for a problem with the content at a path; the message includes the remedy.
    pub fn content(path: impl Into<PathBuf>, message: impl Into<String>) -> Self {
        halite_durable::Error::content(path, message).into()
    }

    /// The error for the content at a path that its reader refuses.
    pub(crate) fn invalid(
        path: impl Into<PathBuf>,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        halite_durable::Error::invalid(path, source).into()
    }
}
