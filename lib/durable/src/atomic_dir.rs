//! Directories that appear complete or not at all: they are filled under another name and renamed
//! atomically once everything in them is synced.

use std::fs;
use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::files;

/// A directory that is being filled. A lock keeps other processes from filling it at the same time;
/// leftovers of a killed process are removed.
pub struct AtomicDir {
    /// The directory to write to.
    pub new: PathBuf,
    dir: PathBuf,
    /// The kernel releases the lock when the process ends.
    _lock: File,
}

impl AtomicDir {
    /// Creates a temporary directory that will be renamed to `dir`, in the same file system.
    ///
    /// # Errors
    /// `dir` exists, another process is filling it, or a system call fails.
    pub fn begin(dir: &Path) -> Result<Self, Error> {
        let new = files::sibling(dir, "new");
        files::make_dir(&new)?;
        let lock = File::open(&new).map_err(Error::file("open", &new))?;
        if lock.try_lock().is_err() {
            return Err(Error::content(
                dir,
                "another extraction to this path is in progress; wait until it has ended",
            ));
        }
        // With the lock held, no other process can create it.
        if fs::symlink_metadata(dir).is_ok() {
            let _ = fs::remove_dir(&new);
            return Err(Error::content(
                dir,
                "it already exists; remove it or choose another path",
            ));
        }
        for left in fs::read_dir(&new).map_err(Error::file("list", &new))? {
            files::remove_any(&left.map_err(Error::file("list", &new))?.path())?;
        }
        open_to_all(&new)?;
        Ok(Self {
            new,
            dir: dir.to_owned(),
            _lock: lock,
        })
    }

    /// Calls `filler`, syncs the directories, and renames the result into place. The filler syncs
    /// its own files. After an error, nothing is left behind.
    ///
    /// # Errors
    /// The error of the filler or of a system call.
    pub fn fill<E: From<Error>>(
        self,
        filler: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<(), E> {
        let written = filler(&self.new).and_then(|()| {
            sync_dirs(&self.new)?;
            fs::rename(&self.new, &self.dir).map_err(Error::file("rename", &self.new))?;
            Ok(files::sync_parent(&self.dir)?)
        });
        if written.is_err() {
            let _ = fs::remove_dir_all(&self.new);
        }
        written
    }
}

/// Makes a file's missing parent directories below `root`, readable by all regardless of the
/// caller's umask.
///
/// # Errors
/// The error of a system call.
pub fn make_above(root: &Path, path: &Path) -> Result<(), Error> {
    let mut missing: Vec<&Path> = path
        .ancestors()
        .skip(1)
        .take_while(|dir| *dir != root && !dir.is_dir())
        .collect();
    while let Some(dir) = missing.pop() {
        fs::create_dir(dir).map_err(Error::file("make", dir))?;
        open_to_all(dir)?;
    }
    Ok(())
}

fn open_to_all(dir: &Path) -> Result<(), Error> {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).map_err(Error::file("make", dir))
}

/// Syncs the names in a directory and in all directories below it.
fn sync_dirs(root: &Path) -> Result<(), Error> {
    let mut waiting = vec![root.to_owned()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(&dir).map_err(Error::file("list", &dir))? {
            let entry = entry.map_err(Error::file("list", &dir))?;
            if entry
                .file_type()
                .map_err(Error::file("list", &dir))?
                .is_dir()
            {
                waiting.push(entry.path());
            }
        }
        File::open(&dir)
            .and_then(|opened| opened.sync_all())
            .map_err(Error::file("write", &dir))?;
    }
    Ok(())
}
