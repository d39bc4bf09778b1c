//! What can go wrong with a bundle.

use std::path::PathBuf;
use std::{fmt, io};

use crate::complete::Missing;
use crate::fetch;
use crate::verify::Problem;

/// Why a bundle could not be built or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The recipe has problems; all of them.
    #[error("{}", Lines(.0))]
    Recipe(Vec<String>),
    /// A file could not be read or written, or has a content that is not understood.
    #[error(transparent)]
    File(#[from] halite_durable::Error),
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
    Fetch(#[from] fetch::Error),
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
    Missing(Vec<Missing>),
    /// Names that an image would not show as they are in each of its views; all of them.
    #[error("not every program that reads an image would find these names; choose others\n  {}", .0.join("\n  "))]
    Names(Vec<String>),
    /// A bundle is not what its manifest says.
    #[error("{} is not what its manifest says, and is not sealed; build it again\n{}", dir.display(), Lines(problems))]
    Unsound {
        /// The bundle.
        dir: PathBuf,
        /// What is wrong with it.
        problems: Vec<Problem>,
    },
    /// The place for the bundle holds something else.
    #[error("{} is there and is no bundle: choose another place or remove it", .0.display())]
    Occupied(PathBuf),
    /// The place for an image is a directory.
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
        rest.extend(fetch::Error::all(fetched).err().map(Self::Fetch));
        match rest.len() {
            0 => Ok(()),
            1 => Err(rest.remove(0)),
            _ => Err(Self::Several(rest)),
        }
    }

    /// What was copied from a path is not what was looked at there.
    pub(crate) fn damaged(path: impl Into<PathBuf>, (sha256, size): &(String, u64)) -> Self {
        let todo = "if it lies in the cache, remove it, and it is fetched anew";
        Self::content(
            path,
            format!("it is damaged: its SHA-256 is {sha256}, its size {size}; {todo}"),
        )
    }

    /// What is wrong with what is at a path, and what to do.
    pub fn content(path: impl Into<PathBuf>, message: impl Into<String>) -> Self {
        halite_durable::Error::content(path, message).into()
    }
}
