//! Atomic writes: a file is written whole or not at all, even if power fails.
//!
//! A temporary file in the same directory gets content, owner, mode and SELinux label, is fsynced
//! and renamed over the old file; then the directory is fsynced (only then is the rename durable).

use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid, XattrFlags};
use rustix::io::Errno;

use super::{Owner, RawStat, refused, stat};
use crate::host::{FileKind, HostError, HostResult};

const LABEL: &str = "security.selinux";
/// A path through more links than this is a loop.
const MAX_LINKS: u32 = 40;

/// The path that the links at the end of `path` lead to (Salt's `follow_symlinks`).
fn follow(path: &Path) -> HostResult<PathBuf> {
    let mut at = path.to_owned();
    for _ in 0..MAX_LINKS {
        match rustix::fs::lstat(&at) {
            Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::Symlink => {
                let target =
                    std::fs::read_link(&at).map_err(|e| HostError::io("read the link", &at, e))?;
                at = at.parent().unwrap_or(Path::new("/")).join(target);
            }
            _ => return Ok(at),
        }
    }
    Err(refused("follow", path, "too many links"))
}

/// An entry that is about to be written, in its open directory.
pub(super) struct Target {
    pub(super) directory: OwnedFd,
    pub(super) name: PathBuf,
    pub(super) temporary: PathBuf,
    path: PathBuf,
}

impl Target {
    pub(super) fn open(path: &Path) -> HostResult<Self> {
        let parent = path.parent().unwrap_or(Path::new("/"));
        let name = path
            .file_name()
            .ok_or_else(|| refused("write", path, "it has no file name"))?;
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
        let directory = rustix::fs::open(parent, flags, Mode::empty()).map_err(|e| match e {
            Errno::NOENT => HostError::refused(format!(
                "{}: the directory {} does not exist",
                path.display(),
                parent.display()
            )),
            e => HostError::io("open the directory", parent, e),
        })?;
        // One fixed name for each path: the next write replaces what a crash has left, so that
        // temporary files do not accumulate.
        let temporary = PathBuf::from(format!(".{}.halite-new", name.to_string_lossy()));
        Ok(Self {
            directory,
            name: PathBuf::from(name),
            temporary,
            path: path.to_owned(),
        })
    }

    pub(super) fn clear(&self) -> HostResult<()> {
        match rustix::fs::unlinkat(&self.directory, &self.temporary, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(HostError::io("remove the temporary file of", &self.path, e)),
        }
    }

    /// Renames the temporary entry over the real one and makes the directory durable.
    pub(super) fn publish(&self) -> HostResult<()> {
        rustix::fs::renameat(
            &self.directory,
            &self.temporary,
            &self.directory,
            &self.name,
        )
        .map_err(|e| HostError::io("rename the temporary file of", &self.path, e))?;
        self.sync()
    }

    pub(super) fn sync(&self) -> HostResult<()> {
        rustix::fs::fsync(&self.directory).map_err(|e| HostError::io("make durable", &self.path, e))
    }
}

/// Writes a whole file atomically; see the module's documentation. A link at `path` is followed and
/// its target replaced.
///
/// # Errors
/// A missing directory, a directory at `path`, or another refusal of the kernel.
pub fn write(path: &Path, content: &[u8], owner: Owner) -> HostResult<()> {
    put(path, content, owner, true)
}

/// As [`write`], without making it durable: for many files at once, which [`sync_tree`] follows.
///
/// # Errors
/// As [`write`].
pub fn write_unsynced(path: &Path, content: &[u8], owner: Owner) -> HostResult<()> {
    put(path, content, owner, false)
}

fn put(path: &Path, content: &[u8], owner: Owner, durable: bool) -> HostResult<()> {
    let path = follow(path)?;
    let old = stat(&path)?;
    if old.as_ref().is_some_and(|s| s.kind == FileKind::Directory) {
        return Err(refused("write", &path, "it is a directory"));
    }
    let target = Target::open(&path)?;
    target.clear()?;
    let written = fill(&target, content, owner, old.as_ref(), durable).and_then(|()| {
        if durable {
            return target.publish();
        }
        rustix::fs::renameat(
            &target.directory,
            &target.temporary,
            &target.directory,
            &target.name,
        )
        .map_err(|e| HostError::io("rename the temporary file of", &path, e))
    });
    if written.is_err() {
        // The first error is the one to report.
        let _ = target.clear();
    }
    written
}

fn fill(
    target: &Target,
    content: &[u8],
    owner: Owner,
    old: Option<&RawStat>,
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
    file.write_all(content)
        .map_err(|e| HostError::io("write", &target.path, e))?;
    let uid = owner.uid.or(old.map(|s| s.uid));
    let gid = owner.gid.or(old.map(|s| s.gid));
    change_owner(&file, uid, gid).map_err(failed)?;
    // After the owner, because a change of owner clears set-id bits.
    let mode = owner
        .mode
        .or(old.filter(|s| s.kind == FileKind::File).map(|s| s.mode))
        .unwrap_or(0o644);
    rustix::fs::fchmod(&file, Mode::from_raw_mode(mode)).map_err(failed)?;
    if old.is_some() {
        copy_label(&target.path, &file)?;
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
fn copy_label(old: &Path, new: &File) -> HostResult<()> {
    let mut buffer = [0_u8; 1024];
    match rustix::fs::lgetxattr(old, LABEL, &mut buffer) {
        Ok(length) => {
            let label = buffer.get(..length).unwrap_or_default();
            rustix::fs::fsetxattr(new, LABEL, label, XattrFlags::empty())
                .map_err(|e| HostError::io("keep the SELinux label of", old, e))
        }
        Err(_) => Ok(()),
    }
}
