//! The report of a seal's check.

use std::fmt;

use super::keys::Signer;
use super::statement::Statement;

/// The report of a sealed image's check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealReport {
    /// The image's statement. Trust it only if the report is sound and has a signer.
    pub statement: Statement,
    /// The trusted keys that signed it; empty only if unsigned images are allowed.
    pub signers: Vec<Signer>,
    /// Ignored signatures, each with the reason.
    pub ignored: Vec<String>,
    /// Number of files that were read; empty files do not count.
    pub files: usize,
    /// All ranges that differ from the sealed ones, in the image's order.
    pub problems: Vec<Problem>,
}

impl SealReport {
    /// Returns whether every byte of the image is unchanged since sealing.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}

/// A range of the image that differs from the sealed one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file in this range; `None` between files: descriptors, directories, padding.
    pub path: Option<String>,
    /// Offset of the range in bytes from the beginning of the file, or of the image if there is no
    /// file.
    pub within: u64,
    /// Offset of the range in bytes from the beginning of the image.
    pub offset: u64,
    /// The range's size in bytes. Each 16 MiB of it contains at least one wrong byte.
    pub size: u64,
    /// The content found there.
    pub found: FoundContent,
}

/// The content found instead of the sealed one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoundContent {
    /// Other bytes.
    Other,
    /// The range could not be read, for this reason.
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
            FoundContent::Other => f.write_str(" have changed since sealing"),
            FoundContent::Unreadable(why) => write!(f, " cannot be read: {why}"),
        }
    }
}
