//! The backups in a directory: names, metadata, pruning.

use std::fs;
use std::path::{Path, PathBuf};

use halite_durable::{Error, files};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::blobs;
use crate::links::Links;
use crate::tree::ROOT;

/// The file that describes a backup. A directory without it is not a backup.
const METADATA: &str = "backup.json";
/// The name of a backup that is being created or removed.
pub const PARTIAL: &str = ".partial";

/// The content of `backup.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupMetadata {
    /// The time at which the backup was started.
    pub time: Timestamp,
    /// The number of tags.
    pub tags: usize,
    /// The SHA-256 of all links and their paths.
    pub links_sha256: String,
    /// The number of blobs.
    pub blobs: usize,
    /// The size of all blobs in bytes.
    pub bytes: u64,
    /// The size of the blobs that the previous backup did not have, in bytes.
    pub bytes_new: u64,
}

impl BackupMetadata {
    /// The name of the backup. The order of the names is the order of the times.
    pub fn name(&self) -> String {
        self.time.strftime("%Y%m%dT%H%M%SZ").to_string()
    }

    /// Writes the metadata to a directory, which then is a backup.
    pub fn write(&self, dir: &Path) -> Result<(), Error> {
        let path = dir.join(METADATA);
        let text = serde_json::to_vec_pretty(self).map_err(|error| Error::invalid(&path, error))?;
        files::write(&path, blobs::MODE, &text)
    }
}

/// A backup.
#[derive(Debug)]
pub struct Backup {
    /// Its directory.
    pub path: PathBuf,
    /// Its metadata.
    pub metadata: BackupMetadata,
}

impl Backup {
    fn read(path: PathBuf) -> Result<Self, Error> {
        let file = path.join(METADATA);
        let text = fs::read(&file).map_err(Error::file("read", &file))?;
        let metadata =
            serde_json::from_slice(&text).map_err(|error| Error::invalid(file, error))?;
        Ok(Self { path, metadata })
    }

    /// Reads its links, and compares them with those that it was made with.
    pub fn links(&self) -> Result<Links, Error> {
        let links = Links::read(&self.path.join(ROOT))?;
        if links.sha256() == self.metadata.links_sha256 {
            return Ok(links);
        }
        let message = "its links have changed since it was made; use another backup";
        Err(Error::content(&self.path, message))
    }
}

/// A directory with the metadata of a backup.
#[derive(Debug)]
pub struct ListedBackup {
    /// Its name.
    pub name: String,
    /// The backup, or the reason why its metadata cannot be read.
    pub backup: Result<Backup, Error>,
}

/// All backups in a directory, the oldest first.
///
/// # Errors
/// The directory cannot be listed.
pub fn list(dir: &Path) -> Result<Vec<ListedBackup>, Error> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(Error::file("list", dir))? {
        let entry = entry.map_err(Error::file("list", dir))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') && entry.path().join(METADATA).exists() {
            let backup = Backup::read(entry.path());
            found.push(ListedBackup { name, backup });
        }
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

/// The backup at a path; if the path is a directory of backups, its newest backup.
///
/// # Errors
/// There is no backup, or it cannot be read.
pub fn find(path: &Path) -> Result<Backup, Error> {
    let path = path.canonicalize().map_err(Error::file("open", path))?;
    if path.join(METADATA).exists() {
        return Backup::read(path);
    }
    match list(&path)?.pop() {
        Some(found) => found.backup,
        None => {
            let message = "there is no backup of a registry here; `ctl registry backup` makes one";
            Err(Error::content(path, message))
        }
    }
}

/// Removes all backups except the newest `keep`, and adds their names to `removed`. Backups that
/// cannot be read are kept and do not count.
///
/// # Errors
/// The system's reason; some backups may already have been removed.
pub fn prune(dir: &Path, keep: usize, removed: &mut Vec<String>) -> Result<(), Error> {
    let mut backups = list(dir)?;
    backups.retain(|found| found.backup.is_ok());
    backups.truncate(backups.len().saturating_sub(keep));
    for ListedBackup { name, .. } in backups {
        let (path, partial) = (dir.join(&name), dir.join(PARTIAL));
        fs::rename(&path, &partial).map_err(Error::file("remove", &path))?;
        files::sync_parent(&partial)?;
        files::remove_any(&partial)?;
        removed.push(name);
    }
    Ok(())
}

#[cfg(test)]
#[path = "backups_tests.rs"]
mod tests;
