//! What checking a seal found.

use std::fmt;

use serde::Serialize;

use super::keys::KeyId;
use super::statement::Statement;

/// What checking a sealed image found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// What the image says it is. Believe it when the report is sound and somebody signed.
    pub statement: Statement,
    /// The trusted keys that vouch for it; empty only where unsigned images are allowed.
    pub signers: Vec<Signer>,
    /// Signatures that did not count, each with why.
    pub ignored: Vec<String>,
    /// How many files were read, those of no bytes not counted.
    pub files: usize,
    /// Everything that is not as it was sealed, in the image's order.
    pub problems: Vec<Problem>,
}

impl Report {
    /// Whether every byte of the image is as it was sealed.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}

/// A key that vouches for an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Signer {
    /// The key's id.
    pub key: KeyId,
    /// The key's name in the trust directory.
    pub name: Option<String>,
}

impl fmt::Display for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name} ({})", self.key),
            None => write!(f, "{}", self.key),
        }
    }
}

/// A range of the image that is not as it was sealed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The file that lies there; none for what lies between files: descriptors, directories,
    /// padding.
    pub path: Option<String>,
    /// Where the range begins, in bytes from the beginning of the file, or of the image where there
    /// is no file.
    pub within: u64,
    /// Where the range begins, in bytes from the beginning of the image.
    pub offset: u64,
    /// The range's size in bytes. At least one byte of each 16 MiB of it is wrong.
    pub size: u64,
    /// What was found there.
    pub found: Found,
}

/// What was found instead of what was sealed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Found {
    /// Other bytes.
    Other,
    /// Nothing that could be read.
    Unreadable(String),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = (self.within + self.size).saturating_sub(1);
        match &self.path {
            Some(path) => {
                let at = self.offset;
                write!(
                    f,
                    "{path}: bytes {} to {last} (at {at} of the image)",
                    self.within
                )?;
            }
            None => {
                write!(
                    f,
                    "between the files (descriptors, directories, padding): bytes {} to {last}",
                    self.within
                )?;
                f.write_str(" of the image")?;
            }
        }
        match &self.found {
            Found::Other => f.write_str(" are not as they were sealed"),
            Found::Unreadable(why) => write!(f, " cannot be read: {why}"),
        }
    }
}
