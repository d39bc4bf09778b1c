//! The file `backup.json`, which describes a backup.

use std::path::Path;
use std::{fmt, fs};

use halite_durable::files;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::metadata_error::{FILE, FORMAT, MetadataError};

/// Damage to a registry or to a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredDamage {
    /// The digest of the damaged blob, or a path.
    pub what: String,
    /// The reason.
    pub why: String,
    /// The repositories that name it.
    pub repositories: Vec<String>,
}

impl fmt::Display for StoredDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if !self.repositories.is_empty() {
            write!(f, " (in {})", self.repositories.join(", "))?;
        }
        write!(f, ": {}", self.why)
    }
}

/// Damage to the registry that is not in the backup, because an earlier backup had the blob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repaired {
    /// The damage.
    #[serde(flatten)]
    pub damage: StoredDamage,
    /// The earlier backup.
    pub from: String,
}

/// The content of `backup.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupMetadata {
    /// The version of the file's format.
    pub format: u32,
    /// The time at which the backup started.
    pub time: Timestamp,
    /// The number of repositories with content.
    pub repositories: usize,
    /// The number of tags in all repositories.
    pub tags: usize,
    /// The number of links.
    pub links: usize,
    /// The SHA-256 over all links.
    pub links_sha256: String,
    /// The number of blobs.
    pub blobs: usize,
    /// The size of all blobs, in bytes.
    pub bytes: u64,
    /// The size of the blobs that no earlier backup had, in bytes.
    pub bytes_new: u64,
    /// The content that is missing in the backup, because it was damaged in the registry.
    pub damaged: Vec<StoredDamage>,
    /// The content that was damaged in the registry and was taken from an earlier backup. Called
    /// `mended` by the first versions.
    #[serde(alias = "mended")]
    pub repaired: Vec<Repaired>,
}

impl BackupMetadata {
    /// Reads the metadata of the backup in a directory.
    ///
    /// # Errors
    /// The directory is not a backup, or its format is newer.
    pub fn read(path: &Path) -> Result<Self, MetadataError> {
        let status = fs::symlink_metadata(path).map_err(MetadataError::Directory)?;
        if !status.is_dir() {
            return Err(MetadataError::NotADirectory);
        }
        let text = fs::read(path.join(FILE)).map_err(MetadataError::Unreadable)?;
        let value: serde_json::Value =
            serde_json::from_slice(&text).map_err(MetadataError::Damaged)?;
        match value["format"].as_u64() {
            Some(format) if format > u64::from(FORMAT) => Err(MetadataError::Newer { format }),
            _ => serde_json::from_value(value).map_err(MetadataError::Damaged),
        }
    }

    /// Writes the metadata into a directory, which makes it a backup.
    ///
    /// # Errors
    /// The system's reason.
    pub fn write(&self, dir: &Path) -> Result<(), Error> {
        let path = dir.join(FILE);
        let mut text = serde_json::to_vec_pretty(self).map_err(|source| Error::Json {
            path: path.clone(),
            source,
        })?;
        text.push(b'\n');
        Ok(files::write(&path, 0o600, &text)?)
    }
}
