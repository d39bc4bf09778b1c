//! From a path to descriptors: each component is opened separately, so that no entry that another
//! user swaps in between leads root elsewhere.
//!
//! A link is followed if root (or the minion's own user) owns it. A link of another user is
//! refused: in a directory of a service that user could replace a file by a link to `/etc/shadow`
//! at any moment (systemd's `CHASE_SAFE` and the kernel's `protected_symlinks` have the same rule).

use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::refused;
use crate::host::{HostError, HostResult};

/// A path through more links than this is a loop.
const MAX_LINKS: u32 = 40;

/// An entry's directory, open, and its name there.
#[derive(Debug)]
pub(super) struct DirectoryPlace {
    /// Opened with `O_PATH`.
    pub(super) directory: OwnedFd,
    pub(super) name: OsString,
}

impl DirectoryPlace {
    /// The place of an entry that need not exist; a link at `path` is the entry.
    pub(super) fn of(path: &Path) -> HostResult<Self> {
        Walk::new(path)?.run(false)
    }

    /// The place that `path` leads to, with the links at its end followed; their target need not
    /// exist.
    pub(super) fn of_target(path: &Path) -> HostResult<Self> {
        Walk::new(path)?.run(true)
    }

    /// The entry itself, opened with `O_PATH`; `None` if it does not exist.
    pub(super) fn open(&self) -> Result<Option<OwnedFd>, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.directory, &self.name, flags, Mode::empty()) {
            Ok(entry) => Ok(Some(entry)),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// A path that leads to this place whatever happens to the names above it, for functions that
    /// accept no descriptor.
    pub(super) fn path(&self) -> PathBuf {
        let number = self.directory.as_raw_fd();
        PathBuf::from(format!("/proc/self/fd/{number}")).join(&self.name)
    }
}

/// Sets owner, group and mode of an entry that was opened with `O_PATH`, and makes that durable.
pub(super) fn set_owner(
    entry: &OwnedFd,
    uid: Option<u32>,
    gid: Option<u32>,
    mode: Option<u32>,
) -> Result<(), Errno> {
    if uid.is_some() || gid.is_some() {
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        rustix::fs::chownat(entry, "", uid, gid, AtFlags::EMPTY_PATH)?;
    }
    let found = kind(&rustix::fs::fstat(entry)?);
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let mode = mode.map(Mode::from_raw_mode);
    // A root may have no /proc. Directories work without it; the minion makes its own there.
    if found == FileType::Directory {
        let flags = flags | OFlags::DIRECTORY;
        let readable = rustix::fs::openat(entry, ".", flags, Mode::empty())?;
        if let Some(mode) = mode {
            rustix::fs::fchmod(&readable, mode)?;
        }
        let _ = rustix::fs::fsync(&readable);
        return Ok(());
    }
    // Kernels before 6.6 cannot change the mode of such a descriptor by itself.
    let itself = format!("/proc/self/fd/{}", entry.as_raw_fd());
    if let Some(mode) = mode {
        rustix::fs::chmod(&itself, mode)?;
    }
    // Sockets and devices are not opened for this; their inode follows with the next commit.
    if found == FileType::RegularFile
        && let Ok(readable) = rustix::fs::open(&itself, flags, Mode::empty())
    {
        let _ = rustix::fs::fsync(&readable);
    }
    Ok(())
}

pub(super) fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

struct Walk<'a> {
    path: &'a Path,
    at: OwnedFd,
    left: VecDeque<OsString>,
    links: u32,
}

impl<'a> Walk<'a> {
    fn new(path: &'a Path) -> HostResult<Self> {
        let start = if path.is_absolute() { "/" } else { "." };
        let mut walk = Self {
            path,
            at: directory(start).map_err(|e| HostError::io("open the directory", start, e))?,
            left: VecDeque::new(),
            links: 0,
        };
        walk.push(path);
        if walk.left.is_empty() {
            return Err(refused("change", path, "it has no file name"));
        }
        Ok(walk)
    }

    /// Puts the components of a path before the remaining ones.
    fn push(&mut self, path: &Path) {
        let parts = path.components().filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            _ => None,
        });
        for part in parts.rev() {
            self.left.push_front(part);
        }
    }

    fn run(mut self, follow: bool) -> HostResult<DirectoryPlace> {
        loop {
            let Some(name) = self.left.pop_front() else {
                return Err(refused("change", self.path, "it has no file name"));
            };
            let is_last = self.left.is_empty();
            if is_last && !follow {
                return Ok(self.place(name));
            }
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let entry = match rustix::fs::openat(&self.at, &name, flags, Mode::empty()) {
                Ok(entry) => entry,
                Err(Errno::NOENT) if is_last => return Ok(self.place(name)),
                Err(Errno::NOENT) => return Err(self.missing()),
                Err(e) => return Err(HostError::io("open the directory of", self.path, e)),
            };
            let stat = rustix::fs::fstat(&entry)
                .map_err(|e| HostError::io("inspect the directory of", self.path, e))?;
            match kind(&stat) {
                FileType::Symlink => self.follow(&entry, &stat)?,
                _ if is_last => return Ok(self.place(name)),
                FileType::Directory => self.at = entry,
                _ => {
                    let reason = format!("{} in the path is not a directory", name.display());
                    return Err(refused("change", self.path, &reason));
                }
            }
        }
    }

    fn follow(&mut self, link: &OwnedFd, stat: &Stat) -> HostResult<()> {
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(refused("follow", self.path, "too many links"));
        }
        let failed = |e: Errno| HostError::io("read a link in", self.path, e);
        let target = rustix::fs::readlinkat(link, "", Vec::new()).map_err(failed)?;
        let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
        if stat.st_uid != 0 && stat.st_uid != geteuid().as_raw() {
            let reason = format!(
                "a link to {} in the path belongs to the user {}, who may change it at any time; name the path that it \
                 leads to",
                target.display(),
                stat.st_uid
            );
            return Err(refused("follow", self.path, &reason));
        }
        if target.is_absolute() {
            self.at = directory("/").map_err(failed)?;
        }
        self.push(&target);
        Ok(())
    }

    fn missing(&self) -> HostError {
        let parent = self.path.parent().unwrap_or(Path::new("/"));
        HostError::refused(format!(
            "{}: the directory {} does not exist",
            self.path.display(),
            parent.display()
        ))
    }

    fn place(self, name: OsString) -> DirectoryPlace {
        DirectoryPlace {
            directory: self.at,
            name,
        }
    }
}

pub(super) fn directory(path: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path, flags, Mode::empty())
}
