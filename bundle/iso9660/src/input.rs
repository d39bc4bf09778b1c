//! The input of an image: its name, its date and its files.

use std::path::PathBuf;

use jiff::Timestamp;

/// The name and the date of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// The volume identifier: 1 to 32 characters of `A-Z0-9_`. Joliet has room for the first 16.
    pub id: String,
    /// The date of the image and of everything in it, to the second.
    pub date: Timestamp,
}

/// A file for an image: its content and its mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputFile {
    /// The content.
    pub from: Content,
    /// Permission bits: `0o644` or `0o755`.
    pub mode: u32,
}

/// The content of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// The content of this file when the image is written.
    File(PathBuf),
    /// The given bytes.
    Bytes(Vec<u8>),
}
