//! Atomic writes: a file is written whole or not at all, even if power fails.
//!
//! A temporary file in the same directory gets content, owner, mode and SELinux label, is fsynced
//! and renamed over the old file; then the directory is fsynced (only then is the rename durable).
//! All of this happens in the open directory, whatever happens to the names above it.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::io::Read;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat, Uid, XattrFlags};
use rustix::io::Errno;

use super::place::{DirectoryPlace, kind};
use super::{Owner, immutable, refused};
use crate::host::{HostError, HostResult};

const LABEL: &str = "security.selinux";

/// An entry that is about to be written, in its open directory.
pub(crate) struct Target {
    pub(crate) directory: OwnedFd,
    pub(crate) name: PathBuf,
    pub(crate) temporary: PathBuf,
    /// For messages.
    path: PathBuf,
}

impl Target {
    /// The entry at a path; a link there is the entry.
    pub(super) fn open(path: &Path) -> HostResult<Self> {
        Self::at(&DirectoryPlace::of(path)?, path)
    }

    fn at(place: &DirectoryPlace, path: &Path) -> HostResult<Self> {
        // An `O_PATH` descriptor cannot be synced.
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
        let directory = rustix::fs::openat(&place.directory, ".", flags, Mode::empty())
            .map_err(|e| HostError::io("open the directory of", path, e))?;
        Ok(Self::within(directory, &place.name, path))
    }

    /// An entry in an open directory.
    pub(crate) fn within(directory: OwnedFd, name: &OsStr, path: &Path) -> Self {
        // One fixed name for each path: the next write replaces the remains of a crash, so that
        // temporary files do not accumulate.
        let temporary = PathBuf::from(format!(".{}.halite-new", name.to_string_lossy()));
        Self {
            directory,
            name: PathBuf::from(name),
            temporary,
            path: path.to_owned(),
        }
    }

    /// Writes a whole file atomically, without making it durable.
    pub(crate) fn write_unsynced(&self, content: &mut dyn Read, owner: Owner) -> HostResult<()> {
        self.write(content, owner, false)
    }

    fn write(&self, content: &mut dyn Read, owner: Owner, durable: bool) -> HostResult<()> {
        let old = match rustix::fs::statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(old) => Some(old),
            Err(Errno::NOENT) => None,
            Err(e) => return Err(HostError::io("inspect", &self.path, e)),
        };
        if old
            .as_ref()
            .is_some_and(|old| kind(old) == FileType::Directory)
        {
            return Err(refused("write", &self.path, "it is a directory"));
        }
        self.clear()?;
        let written = fill(self, content, owner, old.as_ref(), durable).and_then(|()| {
            if durable {
                self.publish()
            } else {
                self.put_in_place()
            }
        });
        if written.is_err() {
            // The first error is the one to report.
            let _ = self.clear();
        }
        written
    }

    pub(crate) fn clear(&self) -> HostResult<()> {
        match rustix::fs::unlinkat(&self.directory, &self.temporary, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(HostError::io("remove the temporary file of", &self.path, e)),
        }
    }

    /// Renames the temporary entry over the real one and makes the directory durable.
    pub(super) fn publish(&self) -> HostResult<()> {
        self.put_in_place()?;
        self.sync()
    }

    /// Renames the temporary entry over the real one.
    pub(crate) fn put_in_place(&self) -> HostResult<()> {
        rustix::fs::renameat(
            &self.directory,
            &self.temporary,
            &self.directory,
            &self.name,
        )
        .map_err(|e| HostError::io("rename the temporary file of", &self.path, e))
    }

    pub(super) fn sync(&self) -> HostResult<()> {
        rustix::fs::fsync(&self.directory).map_err(|e| HostError::io("make durable", &self.path, e))
    }
}

/// Writes a whole file atomically; see the module's documentation. A link at `path` is followed and
/// its target replaced.
///
/// # Errors
/// A missing directory, a directory at `path`, a link of another user, or another refusal of the
/// kernel.
pub fn write(path: &Path, content: &[u8], owner: Owner) -> HostResult<()> {
    immutable::retried(path, || {
        Target::at(&DirectoryPlace::of_target(path)?, path)?.write(&mut &*content, owner, true)
    })
}

/// Like [`write`], with content that is read once: without another attempt when an attribute
/// prevents the change.
///
/// # Errors
/// Like [`write`], or the content cannot be read.
pub(in crate::host::linux) fn write_from(
    path: &Path,
    content: &mut dyn Read,
    owner: Owner,
) -> HostResult<()> {
    Target::at(&DirectoryPlace::of_target(path)?, path)?.write(content, owner, true)
}

/// Like [`write`], without making it durable: for files that can be recreated.
///
/// # Errors
/// Like [`write`].
pub fn write_unsynced(path: &Path, content: &[u8], owner: Owner) -> HostResult<()> {
    Target::at(&DirectoryPlace::of_target(path)?, path)?.write(&mut &*content, owner, false)
}

fn fill(
    target: &Target,
    content: &mut dyn Read,
    owner: Owner,
    old: Option<&Stat>,
    durable: bool,
) -> HostResult<()> {
    let failed = |e: Errno| HostError::io("write", &target.path, e);
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(
        &target.directory,
        &target.temporary,
        flags,
        Mode::from_raw_mode(0o600),
    )
    .map_err(failed)?;
    let mut file = File::from(fd);
    io::copy(content, &mut file).map_err(|e| HostError::io("write", &target.path, e))?;
    let uid = owner.uid.or(old.map(|s| s.st_uid));
    let gid = owner.gid.or(old.map(|s| s.st_gid));
    change_owner(&file, uid, gid).map_err(failed)?;
    // After the owner, because a change of owner clears set-id bits.
    let mode = owner
        .mode
        .or(old
            .filter(|s| kind(s) == FileType::RegularFile)
            .map(|s| s.st_mode & 0o7777))
        .unwrap_or(0o644);
    rustix::fs::fchmod(&file, Mode::from_raw_mode(mode)).map_err(failed)?;
    if old.is_some() {
        copy_label(target, &file)?;
    }
    if durable {
        file.sync_all()
            .map_err(|e| HostError::io("write", &target.path, e))?;
    }
    Ok(())
}

fn change_owner(file: &File, uid: Option<u32>, gid: Option<u32>) -> Result<(), Errno> {
    let now = rustix::fs::fstat(file)?;
    let uid = uid.filter(|u| *u != now.st_uid).map(Uid::from_raw);
    let gid = gid.filter(|g| *g != now.st_gid).map(Gid::from_raw);
    if uid.is_none() && gid.is_none() {
        Ok(())
    } else {
        rustix::fs::fchown(file, uid, gid)
    }
}

/// Gives the new file the old one's SELinux label, where there are labels.
fn copy_label(target: &Target, new: &File) -> HostResult<()> {
    let directory = format!("/proc/self/fd/{}", target.directory.as_raw_fd());
    let old = Path::new(&directory).join(&target.name);
    let mut buffer = [0_u8; 1024];
    match rustix::fs::lgetxattr(&old, LABEL, &mut buffer) {
        Ok(length) => {
            let label = buffer.get(..length).unwrap_or_default();
            rustix::fs::fsetxattr(new, LABEL, label, XattrFlags::empty())
                .map_err(|e| HostError::io("keep the SELinux label of", &target.path, e))
        }
        Err(_) => Ok(()),
    }
}
