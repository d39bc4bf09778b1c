//! The name and format of `backup.json`, and the errors of reading it.

use std::io;

/// The name of the file. A directory without it is not a backup.
pub const FILE: &str = "backup.json";

/// The version of the file's format.
pub const FORMAT: u32 = 1;

/// The reason why the metadata of a backup cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum MetadataError {
    /// The backup's directory cannot be inspected.
    #[error("cannot inspect it")]
    Directory(#[source] io::Error),
    /// The backup is a file or a symbolic link.
    #[error("it is not a directory")]
    NotADirectory,
    /// The file cannot be read.
    #[error("cannot read {FILE}")]
    Unreadable(#[source] io::Error),
    /// The file's content cannot be parsed.
    #[error("{FILE} is damaged")]
    Damaged(#[source] serde_json::Error),
    /// A newer version wrote the file.
    #[error("{FILE} has format {format}, and this ctl knows {FORMAT}; use a newer ctl")]
    Newer {
        /// The format of the file.
        format: u64,
    },
}
