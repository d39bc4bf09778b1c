//! The backups in a directory.

use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::{fmt, fs};

use halite_durable::{Error, FileLock, files};
use jiff::Timestamp;

use super::digest::Digest;
use super::facts::Facts;
use super::{CONTENT, ROOT};

/// How the names of what is not whole begin: it is being made or removed.
const PARTIAL: &str = ".partial-";

/// `20261121T231310Z`, and `-2` for a second one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    time: String,
    number: u32,
}

impl Name {
    /// One that comes after the last one, whatever the clock says: the order of names is that of
    /// the backups.
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
        let digits = |(have, want): (u8, &u8)| {
            if *want == b'0' {
                have.is_ascii_digit()
            } else {
                have == *want
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
    /// What it says of itself, or why that cannot be read.
    pub facts: Result<Facts, String>,
}

impl Backup {
    /// Its name.
    pub fn name(&self) -> String {
        self.name.to_string()
    }

    /// Whether it has all that the registry had, as far as it says so itself.
    pub fn is_whole(&self) -> bool {
        self.facts
            .as_ref()
            .is_ok_and(|facts| facts.damaged.is_empty())
    }

    /// Whether it has any image: that of an empty registry has none, nor has that of a disk that
    /// was not mounted.
    pub fn has_images(&self) -> bool {
        self.facts
            .as_ref()
            .is_ok_and(|facts| facts.repositories > 0)
    }

    fn read(path: PathBuf, name: Name) -> Self {
        let facts = Facts::read(&path);
        Self { name, path, facts }
    }

    /// The file of a blob with its size, if it is there.
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
    /// The backups in a directory that is there.
    ///
    /// # Errors
    /// It is not.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let dir = dir.canonicalize().map_err(Error::file("open", dir))?;
        Ok(Self { dir })
    }

    /// The same; the directory is made for root alone where it is not there.
    ///
    /// # Errors
    /// The system's reason.
    pub fn make(dir: &Path) -> Result<Self, Error> {
        private(dir)?;
        Self::open(dir)
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Keeps others from changing the backups.
    ///
    /// # Errors
    /// Somebody else does just now, or the system refuses.
    pub fn claim(&self) -> Result<FileLock, Error> {
        FileLock::take(&self.dir.join("backup"))?.ok_or_else(|| {
            let message = "another ctl works with the backups here: wait until that has ended";
            Error::content(&self.dir, message)
        })
    }

    /// All of them, the oldest first.
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

    /// The backup that a path leads to, or the newest one in the directory that it leads to.
    ///
    /// # Errors
    /// There is none.
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
            newest.ok_or_else(|| Error::content(path, "there is no backup of a registry here"))?;
        Ok((backups, newest))
    }

    /// Removes what was left by somebody who was cut off. The caller holds the claim.
    ///
    /// # Errors
    /// The system's reason.
    pub fn clear(&self) -> Result<(), Error> {
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

    /// Where a backup is while it is made or removed.
    pub fn partial(&self, name: &Name) -> PathBuf {
        self.dir.join(format!("{PARTIAL}{name}"))
    }

    /// The name of the next one.
    pub fn next(&self, now: Timestamp, all: &[Backup]) -> Name {
        Name::next(now, all.last().map(|backup| &backup.name))
    }

    /// Gives a backup that is on the disk its name.
    ///
    /// # Errors
    /// The system's reason.
    pub fn finish(&self, name: &Name) -> Result<PathBuf, Error> {
        let (partial, path) = (self.partial(name), self.dir.join(name.to_string()));
        fs::rename(&partial, &path).map_err(Error::file("move", partial))?;
        files::sync_parent(&path)?;
        Ok(path)
    }

    /// Removes all that are older than the newest `keep` whole ones with images, and adds their
    /// names to `removed`. What cannot be read is not ours to remove. The caller holds the claim.
    ///
    /// # Errors
    /// The system's reason; some may have been removed.
    pub fn prune(&self, keep: usize, removed: &mut Vec<String>) -> Result<(), Error> {
        let all = self.list()?;
        let mut whole = all
            .iter()
            .rev()
            .filter(|backup| backup.is_whole() && backup.has_images());
        let Some(oldest) = whole.nth(keep.saturating_sub(1)) else {
            return Ok(());
        };
        for old in all
            .iter()
            .filter(|old| old.name < oldest.name && old.facts.is_ok())
        {
            let partial = self.partial(&old.name);
            fs::rename(&old.path, &partial).map_err(Error::file("remove", &old.path))?;
            files::sync_parent(&partial)?;
            files::remove_dir(&partial)?;
            removed.push(old.name());
        }
        Ok(())
    }
}

/// Makes a directory and those above it, for root alone: images may hold secrets.
///
/// # Errors
/// The system's reason.
pub fn private(dir: &Path) -> Result<(), Error> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(Error::file("make", dir))
}

#[cfg(test)]
#[path = "backups_tests.rs"]
mod tests;
