//! A directory of backups: their names, the lock, pruning.

use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::{fmt, fs};

use halite_durable::{FileLock, files};
use jiff::Timestamp;

use crate::backup_metadata::BackupMetadata;
use crate::digest::Digest;
use crate::error::Error;
use crate::layout::{CONTENT, ROOT};
use crate::metadata_error::MetadataError;

/// The prefix of the name of a backup that is being made or removed.
const PARTIAL: &str = ".partial-";

/// The name of a backup: `20261121T231310Z`, or `20261121T231310Z-2` for a second one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    time: String,
    number: u32,
}

impl Name {
    /// The name of the next backup. It sorts after the last one even if the clock went back, so
    /// that the order of the names is the order of the backups.
    pub fn next(now: Timestamp, last: Option<&Self>) -> Self {
        let time = now.strftime("%Y%m%dT%H%M%SZ").to_string();
        match last {
            Some(last) if last.time >= time => Self {
                time: last.time.clone(),
                number: last.number + 1,
            },
            _ => Self { time, number: 1 },
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.time)?;
        if self.number > 1 {
            write!(f, "-{}", self.number)
        } else {
            Ok(())
        }
    }
}

impl FromStr for Name {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (time, number) = text
            .split_once('-')
            .map_or((text, None), |(time, rest)| (time, Some(rest)));
        let form = b"00000000T000000Z";
        let digits = |(byte, pattern): (u8, &u8)| {
            if *pattern == b'0' {
                byte.is_ascii_digit()
            } else {
                byte == *pattern
            }
        };
        if time.len() != form.len() || !time.bytes().zip(form).all(digits) {
            return Err(());
        }
        let number = number.map_or(Ok(1), |text| text.parse().map_err(|_| ()))?;
        let name = Self {
            time: time.to_owned(),
            number,
        };
        if name.to_string() == text {
            Ok(name)
        } else {
            Err(())
        }
    }
}

/// A backup.
#[derive(Debug, Clone)]
pub struct Backup {
    name: Name,
    /// Its directory.
    pub path: PathBuf,
    /// Its metadata, or the reason why it cannot be read.
    pub metadata: Result<BackupMetadata, Arc<MetadataError>>,
}

impl Backup {
    /// Its name.
    pub fn name(&self) -> String {
        self.name.to_string()
    }

    /// Returns `true` if its metadata names no damage. The files are not read.
    pub fn is_complete(&self) -> bool {
        self.metadata
            .as_ref()
            .is_ok_and(|metadata| metadata.damaged.is_empty())
    }

    /// Returns `true` if it contains an image. The backup of an empty registry, or of a disk that
    /// was not mounted, contains none.
    pub fn has_images(&self) -> bool {
        self.metadata
            .as_ref()
            .is_ok_and(|metadata| metadata.repositories > 0)
    }

    fn read(path: PathBuf, name: Name) -> Self {
        let metadata = BackupMetadata::read(&path).map_err(Arc::new);
        Self {
            name,
            path,
            metadata,
        }
    }

    /// The file of a blob and its size, if the file exists.
    pub fn blob(&self, digest: &Digest) -> Option<(PathBuf, u64)> {
        let path = self.path.join(ROOT).join(digest.folder()).join(CONTENT);
        let status = fs::symlink_metadata(&path).ok()?;
        status.is_file().then_some((path, status.size()))
    }
}

/// A directory with backups.
#[derive(Debug)]
pub struct Backups {
    dir: PathBuf,
}

impl Backups {
    /// Opens a directory of backups.
    ///
    /// # Errors
    /// The directory does not exist, or a system call fails.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let dir = dir.canonicalize().map_err(Error::file("open", dir))?;
        Ok(Self { dir })
    }

    /// Opens a directory of backups, and creates it if necessary, accessible only to its owner.
    ///
    /// # Errors
    /// The system's reason.
    pub fn create(dir: &Path) -> Result<Self, Error> {
        create_private_dir(dir)?;
        Self::open(dir)
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Locks the backups against changes by other processes.
    ///
    /// # Errors
    /// Another process holds the lock, or a system call fails.
    pub fn lock(&self) -> Result<FileLock, Error> {
        FileLock::take(&self.dir.join("backup"))?.ok_or_else(|| {
            let message = "another ctl works with the backups here; wait until it has ended";
            Error::unusable(&self.dir, message)
        })
    }

    /// All backups, the oldest first.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub fn list(&self) -> Result<Vec<Backup>, Error> {
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(Error::file("list", &self.dir))? {
            let entry = entry.map_err(Error::file("list", &self.dir))?;
            if let Some(name) = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
            {
                all.push(Backup::read(entry.path(), name));
            }
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// Finds the backup at a path; if the path is a directory of backups, its newest backup.
    ///
    /// # Errors
    /// There is no backup.
    pub fn find(path: &Path) -> Result<(Self, Backup), Error> {
        let real = path.canonicalize().map_err(Error::file("open", path))?;
        let name = real
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(|name| name.parse().ok());
        if let (Some(name), Some(dir)) = (name, real.parent()) {
            return Ok((
                Self {
                    dir: dir.to_owned(),
                },
                Backup::read(real.clone(), name),
            ));
        }
        let backups = Self { dir: real };
        let newest = backups.list()?.pop();
        let newest =
            newest.ok_or_else(|| Error::unusable(path, "there is no backup of a registry here"))?;
        Ok((backups, newest))
    }

    /// Removes the leftovers of interrupted runs. The caller holds the lock.
    ///
    /// # Errors
    /// The system's reason.
    pub fn remove_leftovers(&self) -> Result<(), Error> {
        for entry in fs::read_dir(&self.dir).map_err(Error::file("list", &self.dir))? {
            let entry = entry.map_err(Error::file("list", &self.dir))?;
            let name = entry.file_name();
            let name = name.to_str().and_then(|name| name.strip_prefix(PARTIAL));
            if name.is_some_and(|name| name.parse::<Name>().is_ok()) {
                files::remove_any(&entry.path())?;
            }
        }
        Ok(())
    }

    /// The directory of a backup while it is being made or removed.
    pub fn partial_path(&self, name: &Name) -> PathBuf {
        self.dir.join(format!("{PARTIAL}{name}"))
    }

    /// The name of the next backup.
    pub fn next_name(&self, now: Timestamp, all: &[Backup]) -> Name {
        Name::next(now, all.last().map(|backup| &backup.name))
    }

    /// Gives a backup its final name, after its content is on the disk.
    ///
    /// # Errors
    /// The system's reason.
    pub fn finish(&self, name: &Name) -> Result<PathBuf, Error> {
        let (partial, path) = (self.partial_path(name), self.dir.join(name.to_string()));
        fs::rename(&partial, &path).map_err(Error::file("move", partial))?;
        files::sync_parent(&path)?;
        Ok(path)
    }

    /// Removes the backups that are older than the newest `keep` complete ones with images, and
    /// adds their names to `removed`. Backups whose metadata cannot be read stay. The caller holds
    /// the lock.
    ///
    /// # Errors
    /// The system's reason; some backups may already have been removed.
    pub fn prune(&self, keep: usize, removed: &mut Vec<String>) -> Result<(), Error> {
        let all = self.list()?;
        let mut complete = all
            .iter()
            .rev()
            .filter(|backup| backup.is_complete() && backup.has_images());
        let Some(oldest) = complete.nth(keep.saturating_sub(1)) else {
            return Ok(());
        };
        for old in all
            .iter()
            .filter(|old| old.name < oldest.name && old.metadata.is_ok())
        {
            let partial = self.partial_path(&old.name);
            fs::rename(&old.path, &partial).map_err(Error::file("remove", &old.path))?;
            files::sync_parent(&partial)?;
            files::remove_dir(&partial)?;
            removed.push(old.name());
        }
        Ok(())
    }
}

/// Creates a directory and its parents with mode 0700, because images may contain secrets.
///
/// # Errors
/// The system's reason.
pub fn create_private_dir(dir: &Path) -> Result<(), Error> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(Error::file("create", dir))
}

#[cfg(test)]
#[path = "backups_tests.rs"]
mod tests;
