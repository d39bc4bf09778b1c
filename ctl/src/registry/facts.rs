//! What a backup says of itself.

use std::path::Path;
use std::{fmt, fs};

use halite_durable::{Error, files};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What a backup says of itself; without it, it is none.
const FACTS: &str = "backup.json";

/// The version of that file.
pub const FORMAT: u32 = 1;

/// Something of the registry that was not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damage {
    /// A digest, or a path.
    pub what: String,
    /// What is wrong with it.
    pub why: String,
    /// The repositories that name it.
    pub repositories: Vec<String>,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if !self.repositories.is_empty() {
            write!(f, " (in {})", self.repositories.join(", "))?;
        }
        write!(f, ": {}", self.why)
    }
}

/// Damage that an earlier backup made good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mended {
    /// What was damaged in the registry.
    #[serde(flatten)]
    pub damage: Damage,
    /// The backup that has it.
    pub from: String,
}

/// What `backup.json` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Version of this file.
    pub format: u32,
    /// When it was begun.
    pub time: Timestamp,
    /// Repositories that have anything.
    pub repositories: usize,
    /// Tags in all of them.
    pub tags: usize,
    /// Links.
    pub links: usize,
    /// One SHA-256 for all of them.
    pub links_sha256: String,
    /// Blobs.
    pub blobs: usize,
    /// Their size in bytes.
    pub bytes: u64,
    /// What of that no earlier backup had.
    pub bytes_new: u64,
    /// What the backup lacks, because the registry did.
    pub damaged: Vec<Damage>,
    /// What the registry lacked and an earlier backup had.
    pub mended: Vec<Mended>,
}

impl Facts {
    /// Of the backup in a directory; or why they cannot be read.
    pub fn read(path: &Path) -> Result<Self, String> {
        let status = fs::symlink_metadata(path).map_err(|error| error.to_string())?;
        if !status.is_dir() {
            return Err("it is no directory".to_owned());
        }
        let text = fs::read(path.join(FACTS))
            .map_err(|error| format!("{FACTS} cannot be read: {error}"))?;
        let value: serde_json::Value = serde_json::from_slice(&text)
            .map_err(|error| format!("{FACTS} is damaged: {error}"))?;
        match value["format"].as_u64() {
            Some(format) if format > u64::from(FORMAT) => {
                return Err(format!(
                    "{FACTS} has format {format}, and this ctl knows {FORMAT}: use a newer one"
                ));
            }
            _ => {}
        }
        serde_json::from_value(value).map_err(|error| format!("{FACTS} is damaged: {error}"))
    }

    /// Writes them into a directory, which makes it a backup.
    ///
    /// # Errors
    /// The system's reason.
    pub fn write(&self, dir: &Path) -> Result<(), Error> {
        let path = dir.join(FACTS);
        let mut text = serde_json::to_vec_pretty(self)
            .map_err(|error| Error::content(&path, format!("it cannot be written: {error}")))?;
        text.push(b'\n');
        files::write(&path, 0o600, &text)
    }
}
