//! A lock file that only its owner can open. Taking a lock requires only a readable descriptor, so
//! any user that can open a file or directory could hold its lock forever.

use std::fs::{DirBuilder, File, Permissions, TryLockError};
use std::io;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::process::geteuid;

/// Permission bits of the file.
const MODE: u32 = 0o600;
/// Longest text that is read from it; a process id is shorter.
const LONGEST: u64 = 32;

/// A held lock. The kernel releases it when the value is dropped or the process ends; the file
/// stays.
#[derive(Debug)]
pub struct PrivateLock {
    _file: File,
}

/// The result of one attempt to take a lock.
#[derive(Debug)]
pub enum Attempt {
    /// The lock was taken.
    Taken(PrivateLock),
    /// Another process holds it; its process id, if known.
    Held(Option<u32>),
}

impl PrivateLock {
    /// Takes the lock if it is free. The file is created if it is missing, and made private if
    /// other users could open it.
    ///
    /// # Errors
    /// The directory is missing or not writable, or `path` belongs to another user or is not a
    /// regular file.
    pub fn attempt(path: &Path) -> io::Result<Attempt> {
        // Another user may have put a pipe or a link here: do not follow the link or wait for the
        // pipe.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(MODE)
            .custom_flags(flags.bits().cast_signed())
            .open(path)?;
        let there = file.metadata()?;
        if !there.is_file() || there.uid() != geteuid().as_raw() {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "it is not a file of this user; remove it",
            ));
        }
        if there.mode() & 0o7777 != MODE {
            file.set_permissions(Permissions::from_mode(MODE))?;
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(Attempt::Held(holder(&mut file))),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // Only for the message of the next process: the lock holds without it.
        let _ = file
            .set_len(0)
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Attempt::Taken(Self { _file: file }))
    }
}

/// Creates a directory that only its owner can enter, or makes an existing one private.
///
/// # Errors
/// The parent is missing, or the path belongs to another user or is not a directory.
pub fn private_dir(directory: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let there = directory.symlink_metadata()?;
    if !there.is_dir() || there.uid() != geteuid().as_raw() {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it is not a directory of this user; remove it",
        ));
    }
    if there.mode() & 0o7777 != 0o700 {
        std::fs::set_permissions(directory, Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// The process id that the holder wrote.
fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(LONGEST).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// The holder of a lock, for messages: `process 7`, or `another process`.
#[must_use]
pub fn name_of(holder: Option<u32>) -> String {
    holder.map_or_else(
        || "another process".to_owned(),
        |id| format!("process {id}"),
    )
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn the_second_learns_who_is_first() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = PrivateLock::attempt(&path).unwrap();
        assert!(matches!(first, Attempt::Taken(_)));
        let Attempt::Held(holder) = PrivateLock::attempt(&path).unwrap() else {
            panic!("two hold it");
        };
        assert_eq!(holder, Some(std::process::id()));
        drop(first);
        // A child that another test has just started also has the file open until it calls `exec`.
        let end = Instant::now() + Duration::from_secs(300);
        while !matches!(PrivateLock::attempt(&path).unwrap(), Attempt::Taken(_)) {
            assert!(Instant::now() < end, "it is still held");
            std::thread::yield_now();
        }
    }

    #[test]
    fn no_other_user_can_hold_it() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let path = dir.path().join("lock");
        // Left by a program with another umask.
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        drop(PrivateLock::attempt(&path).unwrap());
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        if geteuid().is_root() {
            let foreign = Command::new("/bin/cat")
                .arg(&path)
                .uid(65534)
                .output()
                .unwrap();
            assert!(!foreign.status.success(), "another user has opened it");
        }
    }

    #[test]
    fn what_another_user_left_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        fs::write(dir.path().join("elsewhere"), "x").unwrap();
        std::os::unix::fs::symlink("elsewhere", &path).unwrap();
        assert!(PrivateLock::attempt(&path).is_err());
        fs::remove_file(&path).unwrap();
        if geteuid().is_root() {
            fs::write(&path, "").unwrap();
            std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
            let error = PrivateLock::attempt(&path).unwrap_err().to_string();
            assert!(error.contains("not a file of this user"), "{error}");
        }
    }
}
