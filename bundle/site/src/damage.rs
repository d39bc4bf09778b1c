//! Damage of a bundle.

use std::fmt;

use serde::Serialize;

/// One difference between a bundle and its manifest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Damage {
    /// The manifest itself cannot be believed; no other file was looked at.
    Manifest {
        /// What is wrong with it.
        message: String,
    },
    /// A file's content is not what the manifest says.
    Changed {
        /// The file.
        path: String,
        /// What the manifest says and what was found.
        message: String,
    },
    /// A file of the manifest is not there or cannot be read.
    Missing {
        /// The file.
        path: String,
        /// Why not.
        message: String,
    },
    /// Something is there that the manifest does not list.
    Extra {
        /// The file.
        path: String,
    },
    /// An image or package is not complete, although every file is what the manifest says.
    Incomplete {
        /// Which, and what it lacks.
        message: String,
    },
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Manifest { message } => f.write_str(message),
            Self::Changed { path, message } => write!(f, "{path}: changed: {message}"),
            Self::Missing { path, message } => write!(f, "{path}: missing: {message}"),
            Self::Extra { path } => write!(f, "{path}: is there but not in the manifest"),
            Self::Incomplete { message } => write!(f, "incomplete: {message}"),
        }
    }
}
