//! File locks for paths that are being written. The kernel releases a lock when its process ends,
//! so leftovers of a killed process can be distinguished from work in progress.

use std::fs::{File, TryLockError};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::{fs, io};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::geteuid;
use tempfile::TempDir;

use crate::error::Error;
use crate::files;

/// An exclusive lock for a path: `.NAME.lock` beside it, until this value is dropped.
#[derive(Debug)]
pub struct FileLock {
    path: PathBuf,
    /// Holds the lock.
    _file: File,
}

impl FileLock {
    /// Locks a path before it is written.
    ///
    /// # Errors
    /// Another process holds the lock, or the directory is not writable.
    pub fn new(place: &Path) -> Result<Self, Error> {
        Self::take(place)?.ok_or_else(|| {
            Error::content(
                place,
                "another ctl is writing it; wait until it has ended, or choose another path",
            )
        })
    }

    /// Locks a path that several processes use one after the other; `progress` receives a message
    /// if the call has to wait.
    ///
    /// # Errors
    /// The directory is not writable.
    pub fn wait(place: &Path, progress: &mut dyn FnMut(&str)) -> Result<Self, Error> {
        if let Some(claim) = Self::take(place)? {
            return Ok(claim);
        }
        progress(&format!(
            "waiting for another build that uses {}",
            place.display()
        ));
        loop {
            let path = files::sibling(place, "lock");
            let locked = open(&path).and_then(|file| file.lock().map(|()| file));
            let file = locked.map_err(Error::file("lock", &path))?;
            if same(&file, &path) {
                return Ok(Self { path, _file: file });
            }
        }
    }

    /// Locks a path; `None` if another process holds the lock.
    ///
    /// # Errors
    /// The directory is not writable.
    pub fn take(place: &Path) -> Result<Option<Self>, Error> {
        let path = files::sibling(place, "lock");
        if let Some(dir) = path.parent() {
            files::make_dir(dir)?;
        }
        loop {
            let file = open(&path).map_err(Error::file("write", &path))?;
            match file.try_lock() {
                // The previous holder removed the file in the meantime.
                Ok(()) if !same(&file, &path) => {}
                Ok(()) => return Ok(Some(Self { path, _file: file })),
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(Error::file("lock", path)(error)),
            }
        }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // The file is removed while the lock is held; afterwards it could be another process's. A
        // leftover does no harm.
        let _ = fs::remove_file(&self.path);
    }
}

/// Opens or creates a lock file. A user who may write to the directory may put a link or a pipe
/// there: a link would create the file at its target, and a plain open would wait for the pipe's
/// reader.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
    let opened = rustix::fs::open(path, OFlags::WRONLY | OFlags::CREATE | flags, mode);
    let file = match opened {
        Ok(file) => File::from(file),
        Err(Errno::LOOP) => return Err(io::Error::other("it is a symbolic link; remove it")),
        // A pipe without a reader.
        Err(Errno::NXIO) => return Err(not_plain()),
        Err(error) => return Err(error.into()),
    };
    if !file.metadata()?.is_file() {
        return Err(not_plain());
    }
    Ok(file)
}

fn not_plain() -> io::Error {
    io::Error::other("it is not a plain file; remove it")
}

/// Returns whether a path still leads to the opened file.
fn same(file: &File, path: &Path) -> bool {
    let ids = |facts: fs::Metadata| (facts.dev(), facts.ino());
    let there = fs::symlink_metadata(path).map(ids);
    let opened = file.metadata().map(ids);
    matches!((opened, there), (Ok(opened), Ok(there)) if opened == there)
}

/// Name of the locked file in a scratch directory.
const OWNER: &str = ".owner";
/// The mode of a scratch directory: its files may have modes for a directory that is closed.
const CLOSED: u32 = 0o700;

/// A directory for temporary files that only its owner may read. It is removed when this value is
/// dropped; directories left by killed processes are removed when the next one of the same kind is
/// created.
#[derive(Debug)]
pub struct ScratchDir {
    dir: TempDir,
    /// Holds the lock.
    _owner: File,
}

impl ScratchDir {
    /// Creates a directory in the system's temporary directory. Its name begins with `kind`.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub fn new(kind: &str) -> Result<Self, Error> {
        Self::within(&std::env::temp_dir(), kind)
    }

    /// Creates a directory in another one.
    pub fn within(parent: &Path, kind: &str) -> Result<Self, Error> {
        sweep(parent, kind);
        let failed = || Error::file("make a directory in", parent);
        loop {
            let dir = tempfile::Builder::new()
                .prefix(kind)
                .permissions(fs::Permissions::from_mode(CLOSED))
                .tempdir_in(parent)
                .map_err(failed())?;
            let path = dir.path().join(OWNER);
            let owner = open(&path)
                .and_then(|file| file.lock().map(|()| file))
                .map_err(failed())?;
            // Between the two calls, another process may have removed it as a leftover.
            if same(&owner, &path) {
                return Ok(Self { dir, _owner: owner });
            }
        }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// Removes the directories of killed processes. Directories that cannot be read or removed belong
/// to other users and are skipped.
fn sweep(parent: &Path, kind: &str) {
    let user = geteuid().as_raw();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let own = |status: fs::Metadata| status.is_dir() && status.uid() == user;
        if !entry.file_name().to_string_lossy().starts_with(kind)
            || !entry.metadata().is_ok_and(own)
        {
            continue;
        }
        // Opened without `CREATE`: a directory without an owner file is just being created. Other
        // users may put a pipe or a link here, on which a plain open would block.
        let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let owner = rustix::fs::open(
            entry.path().join(OWNER),
            OFlags::RDONLY | flags,
            Mode::empty(),
        );
        let Ok(owner) = owner.map(File::from) else {
            continue;
        };
        if !owner.metadata().is_ok_and(|status| status.is_file()) {
            continue;
        }
        // The lock is held until the directory is gone: its creator may wait for the same lock, and
        // checks again afterwards.
        if owner.try_lock().is_ok() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_being_made_is_not_swept() {
        let dir = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let scratch = ScratchDir::within(dir.path(), "kind-").unwrap();
                        assert!(scratch.path().join(OWNER).exists());
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn only_its_owner_can_read_a_scratch_directory() {
        let dir = tempfile::tempdir().unwrap();
        let scratch = ScratchDir::within(dir.path(), "kind-").unwrap();
        let mode = fs::metadata(scratch.path()).unwrap().mode();
        assert_eq!(mode & 0o777, CLOSED, "{mode:o}");
    }

    #[test]
    fn a_place_is_claimed_once_and_nothing_stays() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("below/X.iso");
        let claim = FileLock::new(&place).unwrap();
        let error = FileLock::new(&place).unwrap_err().to_string();
        assert!(error.contains("another ctl is writing it"), "{error}");
        let (told, heard) = std::sync::mpsc::channel();
        let waiting = std::thread::spawn({
            let place = place.clone();
            move || {
                FileLock::wait(&place, &mut |line| told.send(line.to_owned()).unwrap()).map(drop)
            }
        });
        assert!(heard.recv().unwrap().contains("waiting for another build"));
        drop(claim);
        waiting.join().unwrap().unwrap();
        // Leftovers of a killed process are taken over.
        fs::write(dir.path().join("below/.X.iso.lock"), "").unwrap();
        drop(FileLock::new(&place).unwrap());
        assert_eq!(fs::read_dir(dir.path().join("below")).unwrap().count(), 0);
    }

    /// A user who may write to the backup directory must not make root write elsewhere.
    #[test]
    fn a_lock_follows_no_link_and_waits_for_no_pipe() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("backup");
        let (lock, outside) = (dir.path().join(".backup.lock"), dir.path().join("outside"));
        std::os::unix::fs::symlink(&outside, &lock).unwrap();
        let refused = |result: Result<FileLock, Error>| {
            result
                .expect_err("it locks a file that another user put there")
                .to_string()
        };
        let error = refused(FileLock::new(&place));
        assert!(error.contains("symbolic link; remove it"), "{error}");
        let error = refused(FileLock::wait(&place, &mut |_| {}));
        assert!(error.contains("symbolic link; remove it"), "{error}");
        assert!(!outside.exists(), "a file was created at the link's target");
        fs::write(&outside, "").unwrap();
        refused(FileLock::new(&place));
        fs::remove_file(&lock).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &lock, Mode::RUSR | Mode::WUSR).unwrap();
        let error = refused(FileLock::new(&place));
        assert!(error.contains("not a plain file; remove it"), "{error}");
        fs::remove_file(&lock).unwrap();
        drop(FileLock::new(&place).unwrap());
    }

    #[test]
    fn files_of_other_users_block_no_sweep() {
        use rustix::fs::{CWD, mkfifoat};
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["x-pipe", "x-link", "x-folder", "outside", "x-folder/.owner"] {
            fs::create_dir(at(name)).unwrap();
        }
        mkfifoat(CWD, at("x-pipe/.owner"), Mode::RUSR | Mode::WUSR).unwrap();
        fs::write(at("outside/.owner"), "").unwrap();
        std::os::unix::fs::symlink(at("outside/.owner"), at("x-link/.owner")).unwrap();
        std::os::unix::fs::symlink(at("outside"), at("x-directory")).unwrap();
        let mut left = vec!["outside", "x-directory", "x-folder", "x-link", "x-pipe"];
        if geteuid().is_root() {
            fs::create_dir(at("x-user")).unwrap();
            fs::write(at("x-user/.owner"), "").unwrap();
            std::os::unix::fs::chown(at("x-user"), Some(65534), None).unwrap();
            left.push("x-user");
        }
        let (done, waited) = std::sync::mpsc::channel();
        let parent = dir.path().to_owned();
        std::thread::spawn(move || done.send(ScratchDir::within(&parent, "x-").map(drop)));
        waited
            .recv_timeout(std::time::Duration::from_secs(60))
            .expect("it waits for a pipe")
            .unwrap();
        let mut there: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        there.sort();
        assert_eq!(there, left);
    }

    #[test]
    fn only_unlocked_directories_are_swept() {
        let dir = tempfile::tempdir().unwrap();
        let held = ScratchDir::within(dir.path(), "x-").unwrap();
        fs::create_dir(dir.path().join("x-left")).unwrap();
        fs::write(dir.path().join("x-left/.owner"), "").unwrap();
        fs::create_dir(dir.path().join("x-other")).unwrap();
        fs::create_dir(dir.path().join("y-left")).unwrap();
        fs::write(dir.path().join("y-left/.owner"), "").unwrap();
        let second = ScratchDir::within(dir.path(), "x-").unwrap();
        assert!(held.path().exists() && second.path().exists());
        drop((held, second));
        let mut left: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        left.sort();
        assert_eq!(left, ["x-other", "y-left"]);
    }
}
