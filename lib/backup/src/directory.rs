//! The backups in a directory; a new one appears complete or not at all.

use std::fs;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use halite_durable::{FileLock, files};

use crate::envelope::BackupFile;
use crate::error::Error;
use crate::header::Header;
use crate::writer::BackupWriter;

/// The suffix of each name.
const SUFFIX: &str = ".halite-backup";
/// The suffix of a file that is being written; its name begins with a dot.
const PARTIAL: &str = "new";
/// Only root may access backups and their directory: they may contain all keys of the cluster.
const MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

/// A directory with backups.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
}

/// A file in the directory that is named like a backup.
#[derive(Debug)]
pub struct FoundBackup {
    /// The name.
    pub name: String,
    /// The file, if it begins and ends like a backup.
    pub file: Result<BackupFile, Error>,
}

/// The result of the removal of old backups.
#[derive(Debug, Default)]
pub struct Pruned {
    /// The names of the removed backups.
    pub removed: Vec<String>,
    /// The reasons why others could not be removed.
    pub failures: Vec<Error>,
}

/// The number that [`Directory::free_path`] gave one of several backups of the same second.
fn number(name: &str) -> u32 {
    let stem = name.strip_suffix(SUFFIX).unwrap_or(name);
    let number = stem.rsplit_once("Z-").map(|(_, number)| number.parse());
    number.and_then(Result::ok).unwrap_or(1)
}

impl Directory {
    /// A directory, which need not exist yet.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
        }
    }

    /// The files named like a backup, oldest first; invalid ones come before all others.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn list(&self) -> Result<Vec<FoundBackup>, Error> {
        let mut found = Vec::new();
        for name in self.names()? {
            if !name.starts_with('.') && name.ends_with(SUFFIX) {
                let file = BackupFile::open(&self.path.join(&name));
                found.push(FoundBackup { name, file });
            }
        }
        let time = |found: &FoundBackup| found.file.as_ref().ok().map(|file| file.header().created);
        let order = |found: &FoundBackup| (time(found), number(&found.name), found.name.clone());
        found.sort_by_cached_key(order);
        Ok(found)
    }

    fn names(&self) -> Result<Vec<String>, Error> {
        let list = |error| halite_durable::Error::file("list", &self.path)(error);
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(list)? {
            names.push(
                entry
                    .map_err(list)?
                    .file_name()
                    .to_string_lossy()
                    .into_owned(),
            );
        }
        Ok(names)
    }

    /// Starts a backup, and removes leftovers of killed processes. Until it is finished, no file
    /// has the name of a backup.
    ///
    /// # Errors
    /// Another process is making one here, or the directory cannot be written.
    pub fn begin(&self, header: Header) -> Result<PendingBackup, Error> {
        use std::os::unix::fs::DirBuilderExt as _;
        let make = halite_durable::Error::file("make", &self.path);
        let mut builder = fs::DirBuilder::new();
        let made = builder
            .recursive(true)
            .mode(DIRECTORY_MODE)
            .create(&self.path);
        made.map_err(make)?;
        let lock = FileLock::new(&self.path.join("backup"))?;
        for name in self.names()? {
            if name.starts_with('.') && name.ends_with(&format!("{SUFFIX}.{PARTIAL}")) {
                files::remove_any(&self.path.join(name))?;
            }
        }
        let path = self.free_path(&header);
        let partial = files::sibling(&path, PARTIAL);
        let file = files::create(&partial, MODE)?;
        let guard = Partial(partial);
        Ok(PendingBackup {
            writer: BackupWriter::new(BufWriter::new(file), header)?,
            path,
            guard,
            _lock: lock,
        })
    }

    /// An unused path: two backups may be made within one second.
    fn free_path(&self, header: &Header) -> PathBuf {
        let time = header.created.strftime("%Y%m%dT%H%M%SZ");
        let name = |number: u32| match number {
            1 => format!("{}-{time}{SUFFIX}", header.cluster),
            _ => format!("{}-{time}-{number}{SUFFIX}", header.cluster),
        };
        let mut number = 1;
        while self.path.join(name(number)).exists() {
            number += 1;
        }
        self.path.join(name(number))
    }

    /// Removes the backups of this cluster that are older than its newest `keep`. The new backup
    /// `made` always counts as one of these, even if the clock was ahead when others were made.
    /// Files that are not good backups, and backups of other clusters, stay and do not count. A
    /// failure to remove one does not stop the removal of the others.
    #[must_use]
    pub fn prune(&self, cluster_id: &str, keep: usize, made: &str) -> Pruned {
        let mut pruned = Pruned::default();
        match self.list() {
            Ok(mut found) => {
                found.retain(|found| found.name != made);
                let others = keep.saturating_sub(1);
                self.remove_old(found, cluster_id, others, &mut pruned);
            }
            Err(error) => pruned.failures.push(error),
        }
        pruned
    }

    fn remove_old(
        &self,
        found: Vec<FoundBackup>,
        cluster_id: &str,
        keep: usize,
        pruned: &mut Pruned,
    ) {
        let own = |found: &FoundBackup| {
            let header = found.file.as_ref().map(BackupFile::header);
            header.is_ok_and(|header| header.cluster_id == cluster_id)
        };
        let mut own: Vec<FoundBackup> = found.into_iter().filter(own).collect();
        own.truncate(own.len().saturating_sub(keep));
        for found in own {
            match files::remove_any(&self.path.join(&found.name)) {
                Ok(()) => pruned.removed.push(found.name),
                Err(error) => pruned.failures.push(error.into()),
            }
        }
    }
}

/// A backup that is being written. It is removed if dropped unfinished.
pub struct PendingBackup {
    /// Receives the files.
    pub writer: BackupWriter<BufWriter<File>>,
    path: PathBuf,
    guard: Partial,
    _lock: FileLock,
}

impl PendingBackup {
    /// Completes the backup, reads it again from its disk or share, and returns it once its name is
    /// on the disk.
    ///
    /// # Errors
    /// It is incomplete, differs from the written data, or a system call fails; it is then removed.
    pub fn finish(self) -> Result<BackupFile, Error> {
        let (buffer, _) = self.writer.finish()?;
        let write = |error| halite_durable::Error::file("write", &self.path)(error);
        let file = buffer
            .into_inner()
            .map_err(|error| write(error.into_error()))?;
        file.sync_all().map_err(write)?;
        let again =
            BackupFile::open(&self.guard.0).and_then(|made| made.check_on_disk().map(|()| made));
        let made = again.map_err(|error| Error::Reread {
            path: self.path.clone(),
            source: Box::new(error),
        })?;
        files::publish(&self.guard.0, &self.path)?;
        Ok(made.named(self.path))
    }

    /// The path that it will have.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// An unfinished file, removed on drop unless it has been renamed.
struct Partial(PathBuf);

impl Drop for Partial {
    fn drop(&mut self) {
        // The next backup removes a leftover.
        let _ = fs::remove_file(&self.0);
    }
}
