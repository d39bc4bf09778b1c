//! Files as they are really written: whole or not at all, also when the power goes.
//!
//! A file is made beside its place under a temporary name, gets its content, owner, mode and
//! SELinux label, is fsynced, renamed over the old one, and then the directory is fsynced (the
//! rename is durable only then).

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid, XattrFlags};
use rustix::io::Errno;

use crate::host::{FileKind, HostError, HostResult};

/// Owner and permission bits, as numbers; `None` keeps what is there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Owner {
    /// User id.
    pub uid: Option<u32>,
    /// Group id.
    pub gid: Option<u32>,
    /// Permission bits.
    pub mode: Option<u32>,
}

/// As [`crate::host::Stat`], owners as numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawStat {
    /// Kind.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Target of a link.
    pub target: Option<String>,
}

const LABEL: &str = "security.selinux";
/// A path through more links than this is a loop.
const MAX_LINKS: u32 = 40;

fn failed(doing: &str, path: &Path, error: impl std::fmt::Display) -> HostError {
    HostError(format!("cannot {doing} {}: {error}", path.display()))
}

/// What is at `path`, a final link not followed; `None` when nothing is.
///
/// # Errors
/// Anything but absence.
pub fn stat(path: &Path) -> HostResult<Option<RawStat>> {
    let found = match rustix::fs::lstat(path) {
        Ok(found) => found,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(e) => return Err(failed("look at", path, e)),
    };
    let kind = match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        _ => FileKind::Other,
    };
    let target = match kind {
        FileKind::Symlink => {
            let target = std::fs::read_link(path).map_err(|e| failed("read the link", path, e))?;
            Some(target.to_string_lossy().into_owned())
        }
        _ => None,
    };
    Ok(Some(RawStat {
        kind,
        mode: found.st_mode & 0o7777,
        uid: found.st_uid,
        gid: found.st_gid,
        size: u64::try_from(found.st_size).unwrap_or_default(),
        target,
    }))
}

/// A file's content, links followed; `None` when there is none.
///
/// # Errors
/// Anything but absence, for example a directory.
pub fn read(path: &Path) -> HostResult<Option<Vec<u8>>> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(e)
            if matches!(
                e.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(None);
        }
        Err(e) => return Err(failed("read", path, e)),
    };
    let mut content = Vec::new();
    file.read_to_end(&mut content)
        .map_err(|e| failed("read", path, e))?;
    Ok(Some(content))
}

/// Names in a directory, sorted; empty when there is none.
///
/// # Errors
/// Anything but absence.
pub fn list(path: &Path) -> HostResult<Vec<String>> {
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(failed("list", path, e)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|e| failed("list", path, e))?;
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// Where a path leads when the links at its end are followed (Salt's `follow_symlinks`).
fn follow(path: &Path) -> HostResult<PathBuf> {
    let mut at = path.to_owned();
    for _ in 0..MAX_LINKS {
        match rustix::fs::lstat(&at) {
            Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::Symlink => {
                let target =
                    std::fs::read_link(&at).map_err(|e| failed("read the link", &at, e))?;
                at = at.parent().unwrap_or(Path::new("/")).join(target);
            }
            _ => return Ok(at),
        }
    }
    Err(failed("follow", path, "too many links"))
}

/// An open directory with the name of the entry at hand in it.
struct Place {
    directory: OwnedFd,
    name: PathBuf,
    temporary: PathBuf,
    path: PathBuf,
}

impl Place {
    fn open(path: &Path) -> HostResult<Self> {
        let parent = path.parent().unwrap_or(Path::new("/"));
        let name = path
            .file_name()
            .ok_or_else(|| failed("write", path, "it has no file name"))?;
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
        let directory = rustix::fs::open(parent, flags, Mode::empty()).map_err(|e| match e {
            Errno::NOENT => HostError(format!(
                "{}: the directory {} does not exist",
                path.display(),
                parent.display()
            )),
            e => failed("open the directory", parent, e),
        })?;
        // One fixed name for a path: what a crash leaves behind is taken over by the next write,
        // and never piles up.
        let temporary = PathBuf::from(format!(".{}.halite-new", name.to_string_lossy()));
        Ok(Self {
            directory,
            name: PathBuf::from(name),
            temporary,
            path: path.to_owned(),
        })
    }

    fn clear(&self) -> HostResult<()> {
        match rustix::fs::unlinkat(&self.directory, &self.temporary, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(failed("clear the way for", &self.path, e)),
        }
    }

    /// Renames the temporary entry over the real one and makes the directory durable.
    fn publish(&self) -> HostResult<()> {
        rustix::fs::renameat(
            &self.directory,
            &self.temporary,
            &self.directory,
            &self.name,
        )
        .map_err(|e| failed("put in place", &self.path, e))?;
        self.sync()
    }

    fn sync(&self) -> HostResult<()> {
        rustix::fs::fsync(&self.directory).map_err(|e| failed("make durable", &self.path, e))
    }
}

/// Writes a whole file atomically; see the module's text. A link at `path` is followed and its
/// target replaced.
///
/// # Errors
/// A missing directory, a directory at `path`, or what the system says.
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
        return Err(failed("write", &path, "it is a directory"));
    }
    let place = Place::open(&path)?;
    place.clear()?;
    let written = fill(&place, content, owner, old.as_ref(), durable).and_then(|()| {
        if durable {
            return place.publish();
        }
        rustix::fs::renameat(
            &place.directory,
            &place.temporary,
            &place.directory,
            &place.name,
        )
        .map_err(|e| failed("put in place", &path, e))
    });
    if written.is_err() {
        // The first error is the one to tell.
        let _ = place.clear();
    }
    written
}

fn fill(
    place: &Place,
    content: &[u8],
    owner: Owner,
    old: Option<&RawStat>,
    durable: bool,
) -> HostResult<()> {
    let wrong = |e: &dyn std::fmt::Display| failed("write", &place.path, e);
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(
        &place.directory,
        &place.temporary,
        flags,
        Mode::from_raw_mode(0o600),
    )
    .map_err(|e| wrong(&e))?;
    let mut file = File::from(fd);
    file.write_all(content).map_err(|e| wrong(&e))?;
    let uid = owner.uid.or(old.map(|s| s.uid));
    let gid = owner.gid.or(old.map(|s| s.gid));
    change_owner(&file, uid, gid).map_err(|e| wrong(&e))?;
    // After the owner, because a change of owner clears set-id bits.
    let mode = owner
        .mode
        .or(old.filter(|s| s.kind == FileKind::File).map(|s| s.mode))
        .unwrap_or(0o644);
    rustix::fs::fchmod(&file, Mode::from_raw_mode(mode)).map_err(|e| wrong(&e))?;
    if old.is_some() {
        copy_label(&place.path, &file)?;
    }
    if durable {
        file.sync_all().map_err(|e| wrong(&e))?;
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
                .map_err(|e| failed("keep the SELinux label of", old, e))
        }
        Err(_) => Ok(()),
    }
}

/// Makes a directory for its owner alone, and the directories above it that are missing.
///
/// # Errors
/// As [`mkdir`].
pub fn mkdir_private(path: &Path) -> HostResult<()> {
    let above: Vec<&Path> = path
        .ancestors()
        .skip(1)
        .take_while(|above| !above.is_dir())
        .collect();
    for missing in above.into_iter().rev() {
        mkdir(
            missing,
            Owner {
                mode: Some(0o755),
                ..Owner::default()
            },
        )?;
    }
    mkdir(
        path,
        Owner {
            mode: Some(0o700),
            ..Owner::default()
        },
    )
}

/// Makes a directory; one that is there only gets owner and mode.
///
/// # Errors
/// A missing parent, something else at `path`, or what the system says.
pub fn mkdir(path: &Path, owner: Owner) -> HostResult<()> {
    if std::fs::metadata(path).is_ok_and(|m| m.is_dir()) {
        return set_owner(path, owner);
    }
    let place = Place::open(path)?;
    match rustix::fs::mkdirat(&place.directory, &place.name, Mode::from_raw_mode(0o700)) {
        Ok(()) => {}
        Err(Errno::EXIST) => return Err(failed("make", path, "it exists and is not a directory")),
        Err(e) => return Err(failed("make", path, e)),
    }
    set_owner(
        path,
        Owner {
            mode: Some(owner.mode.unwrap_or(0o755)),
            ..owner
        },
    )?;
    place.sync()
}

/// Makes or replaces a link.
///
/// # Errors
/// A missing parent, a directory at `path`, or what the system says.
pub fn symlink(path: &Path, target: &str) -> HostResult<()> {
    if stat(path)?.is_some_and(|s| s.kind == FileKind::Directory) {
        return Err(failed("make the link", path, "it is a directory"));
    }
    let place = Place::open(path)?;
    place.clear()?;
    rustix::fs::symlinkat(target, &place.directory, &place.temporary)
        .map_err(|e| failed("make the link", path, e))?;
    place.publish()
}

/// Sets owner, group and mode of what is there, links followed, and makes that durable.
///
/// # Errors
/// Nothing at `path`, or what the system says.
pub fn set_owner(path: &Path, owner: Owner) -> HostResult<()> {
    let wrong = |e: &dyn std::fmt::Display| failed("set owner and mode of", path, e);
    let (uid, gid) = (owner.uid.map(Uid::from_raw), owner.gid.map(Gid::from_raw));
    if uid.is_some() || gid.is_some() {
        rustix::fs::chown(path, uid, gid).map_err(|e| wrong(&e))?;
    }
    if let Some(mode) = owner.mode {
        rustix::fs::chmod(path, Mode::from_raw_mode(mode)).map_err(|e| wrong(&e))?;
    }
    // Sockets, devices and unreadable files cannot be opened for this; their inode follows with the
    // next commit.
    if let Ok(fd) = rustix::fs::open(
        path,
        OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK,
        Mode::empty(),
    ) {
        let _ = rustix::fs::fsync(&fd);
    }
    Ok(())
}

/// Removes a file, link or tree; nothing there is fine. Links inside are removed, never followed.
///
/// # Errors
/// What the system says.
pub fn remove(path: &Path) -> HostResult<()> {
    let Some(found) = stat(path)? else {
        return Ok(());
    };
    let removed = if found.kind == FileKind::Directory {
        std::fs::remove_dir_all(path)
    } else {
        std::fs::remove_file(path)
    };
    removed.map_err(|e| failed("remove", path, e))?;
    Place::open(path)?.sync()
}

/// Makes everything on the file system of `path` durable.
///
/// # Errors
/// What the system says.
pub fn sync_tree(path: &Path) -> HostResult<()> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| failed("open", path, e))?;
    rustix::fs::syncfs(&fd).map_err(|e| failed("make durable", path, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        list(directory).unwrap()
    }

    #[test]
    fn a_new_file_has_0644_and_a_kept_one_its_own_mode() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        write(&path, b"1", Owner::default()).unwrap();
        assert_eq!(stat(&path).unwrap().unwrap().mode, 0o644);
        set_owner(
            &path,
            Owner {
                mode: Some(0o4750),
                ..Owner::default()
            },
        )
        .unwrap();
        write(&path, b"2", Owner::default()).unwrap();
        assert_eq!(stat(&path).unwrap().unwrap().mode, 0o4750);
        assert_eq!(read(&path).unwrap().unwrap(), b"2");
        assert_eq!(names(dir.path()), ["a"], "no temporary file is left");
    }

    #[test]
    fn a_leftover_of_a_crash_is_taken_over() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(".a.halite-new"), "half").unwrap();
        write(
            &dir.path().join("a"),
            b"whole",
            Owner {
                mode: Some(0o600),
                ..Owner::default()
            },
        )
        .unwrap();
        assert_eq!(names(dir.path()), ["a"]);
    }

    #[test]
    fn a_link_is_written_through() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("real")).unwrap();
        symlink(&dir.path().join("link"), "real/file").unwrap();
        write(&dir.path().join("link"), b"x", Owner::default()).unwrap();
        assert_eq!(std::fs::read(dir.path().join("real/file")).unwrap(), b"x");
        assert_eq!(
            stat(&dir.path().join("link"))
                .unwrap()
                .unwrap()
                .target
                .as_deref(),
            Some("real/file")
        );
        symlink(&dir.path().join("loop"), "loop").unwrap();
        assert!(
            write(&dir.path().join("loop"), b"x", Owner::default())
                .unwrap_err()
                .0
                .contains("too many links")
        );
    }

    #[test]
    fn errors_name_the_path() {
        let dir = tempfile::tempdir().unwrap();
        let inside = dir.path().join("no/file");
        assert!(
            write(&inside, b"", Owner::default())
                .unwrap_err()
                .0
                .contains("does not exist")
        );
        assert!(
            write(dir.path(), b"", Owner::default())
                .unwrap_err()
                .0
                .contains("is a directory")
        );
        std::fs::write(dir.path().join("f"), "").unwrap();
        assert!(
            mkdir(&dir.path().join("f"), Owner::default())
                .unwrap_err()
                .0
                .contains("not a directory")
        );
    }

    #[test]
    fn trees_are_removed_without_following_links() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("tree/sub")).unwrap();
        std::fs::write(dir.path().join("kept"), "").unwrap();
        symlink(&dir.path().join("tree/out"), "..").unwrap();
        remove(&dir.path().join("tree")).unwrap();
        remove(&dir.path().join("tree")).unwrap();
        assert_eq!(names(dir.path()), ["kept"]);
    }

    #[test]
    fn a_directory_keeps_what_is_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d");
        mkdir(&path, Owner::default()).unwrap();
        std::fs::write(path.join("x"), "").unwrap();
        mkdir(
            &path,
            Owner {
                mode: Some(0o700),
                ..Owner::default()
            },
        )
        .unwrap();
        assert_eq!(stat(&path).unwrap().unwrap().mode, 0o700);
        assert_eq!(names(&path), ["x"]);
    }
}
