//! Unpacks archives: each file whole or not at all, all durable at the end, all owned by root.
//!
//! An archive is not trusted: every path is resolved by the kernel below the open target directory
//! (`openat2` with `RESOLVE_BENEATH`), so that neither a link in the archive nor an existing one
//! leads outside. Kernels before 5.6 have no `openat2`; there, no link is followed at all.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufReader, Read};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::files;
use super::files::{Owner, Target};
use crate::host::archive::{ArchiveEntry, unpack};
use crate::host::{HostError, HostResult};

/// Attempts to resolve a path while directories on it are being renamed.
const ATTEMPTS: u32 = 16;

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// Unpacks the archive at a path into a directory, which is created if it is missing.
///
/// # Errors
/// A broken archive, one that contains too much, an entry outside of the target, or another refusal
/// of the kernel.
pub(super) fn extract(archive: &str, target: &Path, strip: u32) -> HostResult<()> {
    let file = File::open(archive).map_err(|e| HostError::io("read", archive, e))?;
    let mut missing: Vec<&Path> = target.ancestors().take_while(|p| !p.is_dir()).collect();
    missing.reverse();
    for path in missing {
        files::mkdir(path, by_root(0o755))?;
    }
    let tree = Tree {
        path: target,
        root: rustix::fs::open(target, DIRECTORY, Mode::empty())
            .map_err(|e| HostError::io("open", target, e))?,
    };
    unpack(archive, BufReader::new(file), strip, |path, mode, entry| {
        tree.make(Path::new(path), mode, entry)
    })?;
    files::sync_tree(target)
}

fn by_root(mode: u32) -> Owner {
    Owner {
        uid: Some(0),
        gid: Some(0),
        mode: Some(mode),
    }
}

/// The target directory.
struct Tree<'a> {
    path: &'a Path,
    root: OwnedFd,
}

impl Tree<'_> {
    fn make(&self, path: &Path, mode: u32, entry: ArchiveEntry<'_>) -> HostResult<()> {
        let name = path.file_name().ok_or_else(|| self.outside(path))?;
        let parent = self.directory(path.parent().unwrap_or(Path::new("")))?;
        match entry {
            ArchiveEntry::Directory => {
                let made = self.one_directory(&parent, name, path)?;
                files::set_owner_of(&made, by_root(mode))
                    .map_err(|e| self.failed("set owner and mode of", path, e))
            }
            ArchiveEntry::File(content) => self.file(parent, name, path, mode, content),
            ArchiveEntry::Symlink(to) => {
                let target = Target::within(parent, name, &self.path.join(path));
                target.clear()?;
                rustix::fs::symlinkat(&to, &target.directory, &target.temporary)
                    .map_err(|e| self.failed("make the link", path, e))?;
                target.put_in_place()
            }
            ArchiveEntry::Hardlink(to) => {
                let mut from = self.content(Path::new(&to))?;
                self.file(parent, name, path, mode, &mut from)
            }
        }
    }

    fn file(
        &self,
        parent: OwnedFd,
        name: &OsStr,
        path: &Path,
        mode: u32,
        content: &mut dyn Read,
    ) -> HostResult<()> {
        let target = Target::within(parent, name, &self.path.join(path));
        target.write_unsynced(content, by_root(mode))
    }

    /// The file that a hard link names. A link in its place is not followed.
    fn content(&self, path: &Path) -> HostResult<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = self
            .resolve(path, flags)
            .map_err(|e| self.failed("read", path, e))?;
        let stat = rustix::fs::fstat(&file).map_err(|e| self.failed("inspect", path, e))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(self.refused(path, "a hard link leads to it, and it is not a file"));
        }
        Ok(file.into())
    }

    /// A directory below the target, created with its parents if it is missing.
    fn directory(&self, path: &Path) -> HostResult<OwnedFd> {
        if path.as_os_str().is_empty() {
            return self
                .root
                .try_clone()
                .map_err(|e| HostError::io("open", self.path, e));
        }
        match self.resolve(path, DIRECTORY) {
            Ok(found) => return Ok(found),
            Err(Errno::NOENT) => {}
            Err(e) => return Err(self.failed("open", path, e)),
        }
        let name = path.file_name().ok_or_else(|| self.outside(path))?;
        let parent = self.directory(path.parent().unwrap_or(Path::new("")))?;
        let made = self.one_directory(&parent, name, path)?;
        files::set_owner_of(&made, by_root(0o755))
            .map_err(|e| self.failed("set owner and mode of", path, e))?;
        Ok(made)
    }

    /// The directory with that name in an open one, created if it is missing.
    fn one_directory(&self, parent: &OwnedFd, name: &OsStr, path: &Path) -> HostResult<OwnedFd> {
        match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o700)) {
            Ok(()) => rustix::fs::openat(parent, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())
                .map_err(|e| self.failed("open", path, e)),
            // Possibly a link to a directory, which must be below the target too.
            Err(Errno::EXIST) => self
                .resolve(path, DIRECTORY)
                .map_err(|e| self.failed("make the directory", path, e)),
            Err(e) => Err(self.failed("make the directory", path, e)),
        }
    }

    /// Opens a path below the target.
    fn resolve(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..ATTEMPTS {
            match rustix::fs::openat2(&self.root, path, flags, Mode::empty(), how) {
                Err(Errno::AGAIN) => {}
                Err(Errno::NOSYS | Errno::PERM) => return self.walk(path, flags),
                answer => return answer,
            }
        }
        Err(Errno::AGAIN)
    }

    /// The same without `openat2`: component by component, and no link is followed.
    fn walk(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let mut at = self
            .root
            .as_fd()
            .try_clone_to_owned()
            .map_err(|_| Errno::MFILE)?;
        let mut parts = path.iter().peekable();
        while let Some(part) = parts.next() {
            let how = if parts.peek().is_some() {
                DIRECTORY
            } else {
                flags
            };
            at = rustix::fs::openat(&at, part, how | OFlags::NOFOLLOW, Mode::empty())?;
        }
        Ok(at)
    }

    fn failed(&self, action: &'static str, path: &Path, error: Errno) -> HostError {
        match error {
            Errno::XDEV => self.outside(path),
            Errno::LOOP => self.refused(path, "a link is in its place or in its path"),
            Errno::NOTDIR | Errno::EXIST => self.refused(
                path,
                "something other than a directory is in its place or in its path",
            ),
            error => HostError::io(action, self.path.join(path), error),
        }
    }

    fn outside(&self, path: &Path) -> HostError {
        HostError::refused(format!(
            "{} would be unpacked outside of {}",
            self.path.join(path).display(),
            self.path.display()
        ))
    }

    fn refused(&self, path: &Path, reason: &str) -> HostError {
        HostError::refused(format!(
            "cannot unpack {}: {reason}",
            self.path.join(path).display()
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::PathBuf;

    use halite_errors::chain;

    use super::*;

    /// A directory with a target, and next to it files that an archive must not reach.
    struct Scene {
        dir: tempfile::TempDir,
        builder: tar::Builder<Vec<u8>>,
    }

    impl Scene {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir(dir.path().join("outside")).unwrap();
            fs::set_permissions(
                dir.path().join("outside"),
                fs::Permissions::from_mode(0o700),
            )
            .unwrap();
            fs::write(dir.path().join("outside/secret"), "secret").unwrap();
            Self {
                dir,
                builder: tar::Builder::new(Vec::new()),
            }
        }

        fn path(&self, path: &str) -> PathBuf {
            self.dir.path().join(path)
        }

        fn header(kind: tar::EntryType, mode: u32, size: u64) -> tar::Header {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_mode(mode);
            header.set_size(size);
            header
        }

        fn link(mut self, kind: tar::EntryType, path: &str, to: &str) -> Self {
            let mut header = Self::header(kind, 0o777, 0);
            self.builder.append_link(&mut header, path, to).unwrap();
            self
        }

        fn directory(mut self, path: &str) -> Self {
            let mut header = Self::header(tar::EntryType::Directory, 0o777, 0);
            self.builder
                .append_data(&mut header, path, std::io::empty())
                .unwrap();
            self
        }

        fn file(mut self, path: &str, text: &str) -> Self {
            let mut header = Self::header(tar::EntryType::Regular, 0o644, text.len() as u64);
            self.builder
                .append_data(&mut header, path, text.as_bytes())
                .unwrap();
            self
        }

        /// Unpacks, and checks that nothing outside has changed.
        fn unpacked(mut self) -> (HostResult<()>, Self) {
            let builder = std::mem::replace(&mut self.builder, tar::Builder::new(Vec::new()));
            let archive = self.path("a.tar");
            fs::write(&archive, builder.into_inner().unwrap()).unwrap();
            let result = extract(archive.to_str().unwrap(), &self.path("target"), 0);
            let mut names: Vec<_> = fs::read_dir(self.path("outside"))
                .unwrap()
                .map(|entry| entry.unwrap().file_name())
                .collect();
            names.sort();
            assert_eq!(names, ["secret"], "something was made outside");
            let mode = fs::metadata(self.path("outside")).unwrap().permissions();
            assert_eq!(mode.mode() & 0o7777, 0o700, "the mode outside is another");
            (result, self)
        }

        fn refused(self) -> (String, Self) {
            let (result, scene) = self.unpacked();
            (chain(&result.unwrap_err()), scene)
        }
    }

    const SYMLINK: tar::EntryType = tar::EntryType::Symlink;

    #[test]
    fn an_archive_cannot_leave_its_target_through_a_link() {
        for to in ["..", "../outside", "/"] {
            let (error, scene) = Scene::new()
                .link(SYMLINK, "out", to)
                .file("out/evil", "x")
                .refused();
            assert!(error.contains("outside of"), "{to}: {error}");
            assert!(!scene.path("evil").exists());
        }
    }

    #[test]
    fn a_directory_in_place_of_a_link_changes_nothing_outside() {
        let (error, _) = Scene::new()
            .link(SYMLINK, "x", "../outside")
            .directory("x")
            .refused();
        assert!(error.contains("outside of"), "{error}");
    }

    #[test]
    fn no_directory_is_made_outside() {
        let (error, _) = Scene::new()
            .link(SYMLINK, "x", "../outside")
            .file("x/new/deep/file", "x")
            .refused();
        assert!(error.contains("outside of"), "{error}");
    }

    #[test]
    fn a_hard_link_to_a_link_reads_nothing() {
        let (error, scene) = Scene::new()
            .link(SYMLINK, "x", "../outside/secret")
            .link(tar::EntryType::Link, "y", "x")
            .refused();
        assert!(error.contains("a link is in its place"), "{error}");
        assert!(!scene.path("target/y").exists());
        let (error, _) = Scene::new()
            .link(SYMLINK, "x", "../outside")
            .link(tar::EntryType::Link, "y", "x/secret")
            .refused();
        assert!(error.contains("outside of"), "{error}");
    }

    #[test]
    fn links_that_stay_in_the_target_are_followed() {
        let scene = Scene::new()
            .directory("lib")
            .link(SYMLINK, "lib64", "lib")
            .file("lib64/a", "1")
            .directory("lib64")
            .file("b", "2")
            .link(tar::EntryType::Link, "c", "b");
        let (result, scene) = scene.unpacked();
        result.unwrap();
        assert_eq!(fs::read_to_string(scene.path("target/lib/a")).unwrap(), "1");
        assert_eq!(fs::read_to_string(scene.path("target/c")).unwrap(), "2");
        assert!(scene.path("target/lib64").is_symlink());
        let mode = |path: &str| fs::metadata(scene.path(path)).unwrap().permissions().mode();
        assert_eq!(mode("target/lib") & 0o7777, 0o777);
        assert_eq!(mode("target/b") & 0o7777, 0o644);
    }

    #[test]
    fn a_file_replaces_a_link_and_not_what_it_leads_to() {
        let scene = Scene::new().file("a", "new");
        fs::create_dir(scene.path("target")).unwrap();
        symlink("../outside/secret", scene.path("target/a")).unwrap();
        let (result, scene) = scene.unpacked();
        result.unwrap();
        assert_eq!(fs::read_to_string(scene.path("target/a")).unwrap(), "new");
        let secret = fs::read_to_string(scene.path("outside/secret")).unwrap();
        assert_eq!(secret, "secret");
    }

    #[test]
    fn without_openat2_no_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        symlink("a", dir.path().join("link")).unwrap();
        let tree = Tree {
            path: dir.path(),
            root: rustix::fs::open(dir.path(), DIRECTORY, Mode::empty()).unwrap(),
        };
        tree.walk(Path::new("a/b"), DIRECTORY).unwrap();
        for path in ["link", "link/b"] {
            let error = tree.walk(Path::new(path), DIRECTORY).unwrap_err();
            assert!(
                matches!(error, Errno::LOOP | Errno::NOTDIR),
                "{path}: {error}"
            );
        }
    }
}
