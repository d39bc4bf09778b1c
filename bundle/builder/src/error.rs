//! What can go wrong with a bundle.

use std::path::PathBuf;
use std::{fmt, io};

use crate::completeness::Unmet;

/// Why a bundle could not be built or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The recipe has problems; all of them.
    #[error("{}", Lines(.0))]
    Recipe(Vec<String>),
    /// A file could not be read or written, or has a content that is not understood.
    #[error(transparent)]
    File(#[from] halite_durable::Error),
    /// The finished bundle could not be read, checked or packed.
    #[error(transparent)]
    Bundle(#[from] halite_bundle::Error),
    /// A key could not be used.
    #[error(transparent)]
    Seal(#[from] halite_seal::Error),
    /// Something that went in is not what the lock says.
    #[error(
        "{lock} records something else:\n  {}\nrun `ctl bundle update` to record what is there now, or bring back what was there",
        .differences.join("\n  ")
    )]
    Lock {
        /// The lock file.
        lock: String,
        /// Each difference.
        differences: Vec<String>,
    },
    /// The recipe names what the lock does not record yet, and only recorded things are built from
    /// other machines.
    #[error("{lock} does not record\n  {}\nrun `ctl bundle lock` to record what these come to", .names.join("\n  "))]
    Unrecorded {
        /// The lock file.
        lock: String,
        /// Each thing.
        names: Vec<String>,
    },
    /// Something could not be fetched.
    #[error(transparent)]
    Fetch(#[from] halite_fetch::Error),
    /// Several of these.
    #[error("{}", Lines(.0))]
    Several(Vec<Error>),
    /// A program that the build needs failed or is not there.
    #[error("{what}: {message}")]
    Program {
        /// What it was to do.
        what: String,
        /// What it said.
        message: String,
    },
    /// Something is missing from what should be complete.
    #[error("the bundle would not be complete: {0}")]
    Incomplete(String),
    /// Something that a cluster could ask for is not in the bundle; all of it.
    #[error("the bundle would not be complete; missing are\n{}", Lines(.0))]
    Missing(Vec<Unmet>),
    /// Names that an image would not show as they are in each of its views; all of them.
    #[error("not every program that reads an image would find these names; choose others\n  {}", .0.join("\n  "))]
    Names(Vec<String>),
    /// The place for the bundle holds something else.
    #[error("{} is there and is no bundle: choose another place or remove it", .0.display())]
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
    /// For `map_err`: what was being done to which file.
    pub fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let failed = halite_durable::Error::file(action, path);
        move |cause| failed(cause).into()
    }

    /// One report of many: what could not be fetched is told together, so that what is missing
    /// offline is one list.
    ///
    /// # Errors
    /// That report, unless there is nothing to report.
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

    /// What was copied from a path is not what was looked at there.
    pub(crate) fn damaged(path: impl Into<PathBuf>, found: &(String, u64)) -> Self {
        halite_fetch::oci_layout::damaged(path, found).into()
    }

    /// What is wrong with what is at a path, and what to do.
    pub fn content(path: impl Into<PathBuf>, message: impl Into<String>) -> Self {
        halite_durable::Error::content(path, message).into()
    }
}
