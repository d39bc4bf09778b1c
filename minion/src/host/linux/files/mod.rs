//! Files and directories of the real host, each change durable when its function returns.

mod atomic;
mod immutable;
mod names;
mod place;
#[cfg(test)]
mod swapped_tests;

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use self::place::DirectoryPlace;
use crate::host::{FileKind, HostError, HostResult};

pub(crate) use self::atomic::Target;
pub(super) use self::atomic::write_from;
pub use self::atomic::{write, write_unsynced};
pub(super) use self::immutable::released;
pub use self::names::{list, utf8_names};

/// Owner and permission bits, as numbers; `None` keeps the present value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Owner {
    /// User id.
    pub uid: Option<u32>,
    /// Group id.
    pub gid: Option<u32>,
    /// Permission bits.
    pub mode: Option<u32>,
}

/// Like [`crate::host::Stat`], owners as numbers.
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

fn refused(action: &str, path: &Path, reason: &str) -> HostError {
    HostError::refused(format!("cannot {action} {}: {reason}", path.display()))
}

/// The entry at `path`, a final link not followed; `None` if it does not exist.
///
/// # Errors
/// Any failure except absence.
pub fn stat(path: &Path) -> HostResult<Option<RawStat>> {
    let found = match rustix::fs::lstat(path) {
        Ok(found) => found,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(e) => return Err(HostError::io("inspect", path, e)),
    };
    let kind = match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        _ => FileKind::Other,
    };
    let target = match kind {
        FileKind::Symlink => {
            let target =
                std::fs::read_link(path).map_err(|e| HostError::io("read the link", path, e))?;
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

/// A file's content, links followed; `None` if it does not exist.
///
/// # Errors
/// Any failure except absence, for example a directory or a pipe.
pub fn read(path: &Path) -> HostResult<Option<Vec<u8>>> {
    head(path, u64::MAX)
}

/// The first bytes of a file, at most `bytes`, following links; `None` if it does not exist.
///
/// # Errors
/// Like [`read`].
pub fn head(path: &Path, bytes: u64) -> HostResult<Option<Vec<u8>>> {
    let failed = |e: Errno| HostError::io("read", path, e);
    // Non-blocking: opening a pipe would wait for its other end.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(e) => return Err(failed(e)),
    };
    match place::kind(&rustix::fs::fstat(&file).map_err(failed)?) {
        FileType::RegularFile => {}
        FileType::Directory => return Err(failed(Errno::ISDIR)),
        _ => return Err(refused("read", path, "it is a device, socket or pipe")),
    }
    let mut content = Vec::new();
    file.take(bytes)
        .read_to_end(&mut content)
        .map_err(|e| HostError::io("read", path, e))?;
    Ok(Some(content))
}

/// Makes a directory for its owner alone, and its missing parents.
///
/// # Errors
/// Like [`mkdir`].
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

/// Makes a directory; an existing one only gets owner and mode.
///
/// # Errors
/// A missing parent, something else at `path`, or another refusal of the kernel.
pub fn mkdir(path: &Path, owner: Owner) -> HostResult<()> {
    immutable::retried(path, || make_directory(path, owner))
}

fn make_directory(path: &Path, owner: Owner) -> HostResult<()> {
    let failed = |e: Errno| HostError::io("make", path, e);
    if let Some(there) = open_target(path)? {
        let stat = rustix::fs::fstat(&there).map_err(failed)?;
        if place::kind(&stat) != FileType::Directory {
            return Err(refused("make", path, "it exists and is not a directory"));
        }
        return set_owner_of(&there, owner)
            .map_err(|e| HostError::io("set owner and mode of", path, e));
    }
    let entry = Target::open(path)?;
    match rustix::fs::mkdirat(&entry.directory, &entry.name, Mode::from_raw_mode(0o700)) {
        Ok(()) => {}
        Err(Errno::EXIST) => return Err(refused("make", path, "it exists and is not a directory")),
        Err(e) => return Err(failed(e)),
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = rustix::fs::openat(&entry.directory, &entry.name, flags, Mode::empty());
    let owner = Owner {
        mode: Some(owner.mode.unwrap_or(0o755)),
        ..owner
    };
    set_owner_of(&made.map_err(failed)?, owner)
        .map_err(|e| HostError::io("set owner and mode of", path, e))?;
    entry.sync()
}

/// Makes or replaces a link.
///
/// # Errors
/// A missing parent, a directory at `path`, or another refusal of the kernel.
pub fn symlink(path: &Path, target: &str) -> HostResult<()> {
    immutable::retried(path, || make_link(path, target))
}

fn make_link(path: &Path, target: &str) -> HostResult<()> {
    if stat(path)?.is_some_and(|s| s.kind == FileKind::Directory) {
        return Err(refused("make the link", path, "it is a directory"));
    }
    let entry = Target::open(path)?;
    entry.clear()?;
    rustix::fs::symlinkat(target, &entry.directory, &entry.temporary)
        .map_err(|e| HostError::io("make the link", path, e))?;
    entry.publish()
}

/// Sets owner, group and mode of an existing entry, links followed, and makes that durable. A link
/// of another user is not followed.
///
/// # Errors
/// Nothing at `path`, or another refusal of the kernel.
pub fn set_owner(path: &Path, owner: Owner) -> HostResult<()> {
    let failed = |e: Errno| HostError::io("set owner and mode of", path, e);
    immutable::retried(path, || {
        let entry = open_target(path)?.ok_or_else(|| failed(Errno::NOENT))?;
        set_owner_of(&entry, owner).map_err(failed)
    })
}

/// The same for an open entry.
pub(crate) fn set_owner_of(entry: &OwnedFd, owner: Owner) -> Result<(), Errno> {
    place::set_owner(entry, owner.uid, owner.gid, owner.mode)
}

/// Opens the target of a path, only to change it; `None` if it does not exist.
fn open_target(path: &Path) -> HostResult<Option<OwnedFd>> {
    let failed = |e: Errno| HostError::io("open", path, e);
    if path == Path::new("/") {
        return place::directory("/").map(Some).map_err(failed);
    }
    DirectoryPlace::of_target(path)?.open().map_err(failed)
}

/// Removes a file, link or tree, if there is one. Links inside are removed, never followed.
///
/// # Errors
/// The kernel refuses.
pub fn remove(path: &Path) -> HostResult<()> {
    immutable::retried(path, || remove_once(path))
}

fn remove_once(path: &Path) -> HostResult<()> {
    let Some(found) = stat(path)? else {
        return Ok(());
    };
    let place = DirectoryPlace::of(path)?;
    let removed = if found.kind == FileKind::Directory {
        std::fs::remove_dir_all(place.path())
    } else {
        rustix::fs::unlinkat(&place.directory, &place.name, AtFlags::empty()).map_err(Into::into)
    };
    removed.map_err(|e| HostError::io("remove", path, e))?;
    Target::open(path)?.sync()
}

/// Renames an entry within its file system, durably. The new name must be free.
///
/// # Errors
/// The entry does not exist, the new name is taken, or the kernel refuses.
pub fn rename(from: &Path, to: &Path) -> HostResult<()> {
    match (stat(from)?, stat(to)?) {
        // An interrupted run has already renamed it.
        (None, Some(_)) => {}
        (Some(_), Some(_)) => return Err(refused("make", to, "it exists")),
        _ => std::fs::rename(from, to).map_err(|e| HostError::io("rename", from, e))?,
    }
    Target::open(from)?.sync()?;
    Target::open(to)?.sync()
}

/// Renames a file over another one in its file system, durably. Unlike [`write()`], it needs no
/// space on the disk.
///
/// # Errors
/// `from` does not exist, or the kernel refuses.
pub fn replace(from: &Path, to: &Path) -> HostResult<()> {
    immutable::retried(to, || {
        // The content first: otherwise a power cut may leave an empty file under the new name.
        let synced = File::open(from).and_then(|file| file.sync_all());
        synced.map_err(|e| HostError::io("make durable", from, e))?;
        std::fs::rename(from, to).map_err(|e| HostError::io("rename", from, e))?;
        Target::open(to)?.sync()
    })
}

/// Makes the whole file system of `path` durable.
///
/// # Errors
/// The kernel refuses.
pub fn sync_tree(path: &Path) -> HostResult<()> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let fd =
        rustix::fs::open(path, flags, Mode::empty()).map_err(|e| HostError::io("open", path, e))?;
    rustix::fs::syncfs(&fd).map_err(|e| HostError::io("make durable", path, e))
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
    fn a_temporary_file_from_before_a_crash_is_replaced() {
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
    fn a_file_replaces_another() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        std::fs::write(at("old"), "old").unwrap();
        std::fs::write(at("new"), "new").unwrap();
        replace(&at("old"), &at("new")).unwrap();
        assert_eq!(std::fs::read_to_string(at("new")).unwrap(), "old");
        assert_eq!(names(home.path()), ["new"]);
        assert!(replace(&at("old"), &at("new")).is_err());
        assert_eq!(names(home.path()), ["new"]);
    }

    #[test]
    fn a_pipe_is_an_error_and_no_wait() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        let pipe = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &path, pipe, Mode::RUSR, 0).unwrap();
        let refused = read(&path).unwrap_err().to_string();
        assert!(refused.contains("device, socket or pipe"), "{refused}");
        // Like a unit that is masked by hand.
        assert!(read(Path::new("/dev/null")).is_err());
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
                .to_string()
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
                .to_string()
                .contains("does not exist")
        );
        assert!(
            write(dir.path(), b"", Owner::default())
                .unwrap_err()
                .to_string()
                .contains("is a directory")
        );
        std::fs::write(dir.path().join("f"), "").unwrap();
        assert!(
            mkdir(&dir.path().join("f"), Owner::default())
                .unwrap_err()
                .to_string()
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

    #[test]
    fn a_tree_gets_another_name_and_replaces_nothing() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        std::fs::create_dir_all(at("member/wal")).unwrap();
        std::fs::write(at("member/wal/log"), "etcd").unwrap();
        rename(&at("member"), &at("aside")).unwrap();
        let moved = || std::fs::read_to_string(at("aside/wal/log")).unwrap();
        assert_eq!((at("member").exists(), moved().as_str()), (false, "etcd"));
        // Carried out twice, it has the same result.
        rename(&at("member"), &at("aside")).unwrap();
        assert_eq!(moved(), "etcd");
        std::fs::create_dir(at("member")).unwrap();
        assert!(rename(&at("member"), &at("aside")).is_err());
        assert!(rename(&at("none"), &at("new")).is_err());
    }

    #[test]
    fn the_head_of_a_file_is_read_alone() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("log");
        std::fs::write(&file, "0123456789").unwrap();
        assert_eq!(head(&file, 4).unwrap().unwrap(), b"0123");
        assert_eq!(head(&file, 99).unwrap().unwrap(), b"0123456789");
        assert_eq!(head(&home.path().join("none"), 4).unwrap(), None);
    }
}
