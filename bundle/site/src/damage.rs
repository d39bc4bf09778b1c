//! Damage to a bundle.

use std::fmt;

/// One difference between a bundle and its manifest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum BundleDamage {
    /// The manifest itself is damaged; no other file was checked.
    Manifest {
        /// The problem.
        message: String,
    },
    /// A file's content differs from the manifest.
    Changed {
        /// The file.
        path: String,
        /// The expected and the actual content.
        message: String,
    },
    /// A file of the manifest is missing or cannot be read.
    Missing {
        /// The file.
        path: String,
        /// The reason.
        message: String,
    },
    /// A file that the manifest does not list.
    Extra {
        /// The file.
        path: String,
    },
    /// An image or package is incomplete, although every file matches the manifest.
    Incomplete {
        /// The image or package, and the missing part.
        message: String,
    },
}

impl fmt::Display for BundleDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Manifest { message } => f.write_str(message),
            Self::Changed { path, message } => write!(f, "{path}: changed: {message}"),
            Self::Missing { path, message } => write!(f, "{path}: missing: {message}"),
            Self::Extra { path } => write!(f, "{path}: exists, but is not in the manifest"),
            Self::Incomplete { message } => write!(f, "incomplete: {message}"),
        }
    }
}
