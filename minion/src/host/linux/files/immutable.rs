//! The attributes *immutable* and *append-only* (chattr(1)), which prevent even root from making a
//! change. As in Salt's `file.managed`, a change removes them first; declared files do not have
//! them.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{Dir, FileType, IFlags, Mode, OFlags};
use rustix::io::Errno;

use super::place::{DirectoryPlace, kind};
use crate::host::{HostError, HostResult};

/// Makes a change at `path`. If the kernel does not permit it, removes the attributes from the
/// entry, everything below it and its directory, and makes the change again.
///
/// # Errors
/// The change's own errors.
pub(super) fn retried<T>(path: &Path, change: impl Fn() -> HostResult<T>) -> HostResult<T> {
    match change() {
        Err(error) if released(path, &error)? => change(),
        result => result,
    }
}

/// Removes the attributes if they may be the cause of an error; returns whether there were any.
///
/// # Errors
/// The attributes cannot be read or removed.
pub(in crate::host::linux) fn released(path: &Path, error: &HostError) -> HostResult<bool> {
    Ok(is_not_permitted(error) && release(path)?)
}

fn is_not_permitted(error: &HostError) -> bool {
    let HostError::Io { source, .. } = error else {
        return false;
    };
    source.raw_os_error() == Some(Errno::PERM.raw_os_error())
}

/// Removes the attributes; returns whether there were any.
fn release(path: &Path) -> HostResult<bool> {
    let failed = |e: Errno| HostError::io("take the attribute `immutable` off", path, e);
    let mut released = false;
    for place in [DirectoryPlace::of(path)?, DirectoryPlace::of_target(path)?] {
        if let Some(directory) = open(&place.directory, OsStr::new(".")).map_err(failed)? {
            released |= release_one(&directory).map_err(failed)?;
        }
        released |= release_tree(&place.directory, &place.name).map_err(failed)?;
    }
    if released {
        tracing::warn!(
            path = %path.display(),
            "took the attribute `immutable` or `append-only` off, which prevented a change"
        );
    }
    Ok(released)
}

fn release_tree(directory: &OwnedFd, name: &OsStr) -> Result<bool, Errno> {
    let Some(entry) = open(directory, name)? else {
        return Ok(false);
    };
    let mut released = release_one(&entry)?;
    if kind(&rustix::fs::fstat(&entry)?) == FileType::Directory {
        for below in Dir::read_from(&entry)? {
            let below = below?;
            let below = OsStr::from_bytes(below.file_name().to_bytes());
            if below != "." && below != ".." {
                released |= release_tree(&entry, below)?;
            }
        }
    }
    Ok(released)
}

fn release_one(entry: &OwnedFd) -> Result<bool, Errno> {
    // Not every file system has attributes.
    let Ok(flags) = rustix::fs::ioctl_getflags(entry) else {
        return Ok(false);
    };
    let held = IFlags::IMMUTABLE | IFlags::APPEND;
    if !flags.intersects(held) {
        return Ok(false);
    }
    rustix::fs::ioctl_setflags(entry, flags - held)?;
    Ok(true)
}

/// A file or directory, opened; `None` for anything else, which has no attributes.
fn open(directory: &OwnedFd, name: &OsStr) -> Result<Option<OwnedFd>, Errno> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = match rustix::fs::openat(directory, name, flags, Mode::empty()) {
        Ok(open) => open,
        Err(Errno::NOENT | Errno::LOOP | Errno::NXIO | Errno::NODEV) => return Ok(None),
        Err(e) => return Err(e),
    };
    let found = kind(&rustix::fs::fstat(&open)?);
    Ok(matches!(found, FileType::RegularFile | FileType::Directory).then_some(open))
}
