//! Directories that another user owns. Their content is opened name by name relative to an open
//! directory, and symbolic links are not followed, so that the owner cannot redirect root.

use std::fs::{File, Permissions, TryLockError};
use std::io;
use std::io::ErrorKind;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, mkdirat, openat, renameat, statat, unlinkat,
};

use crate::error::Error;

/// The result of opening a name in a directory.
pub enum Lookup<T> {
    /// The file or directory that was requested.
    Found(T),
    /// The name does not exist.
    Missing,
    /// It is of another kind, or cannot be opened; the reason, to follow the path.
    Unexpected(String),
}

/// The owner of the registry's files, and their mode.
#[derive(Debug, Clone, Copy)]
pub struct Owner {
    pub user: u32,
    pub group: u32,
    /// The mode of directories; files have the same without `x`.
    pub mode: u32,
}

/// An open directory.
pub struct Folder {
    file: File,
    path: PathBuf,
}

impl Folder {
    /// Opens a directory that the operator named. Symbolic links in its path are followed.
    ///
    /// # Errors
    /// The directory does not exist, or a system call fails.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(path, flags, Mode::empty());
        let file = opened
            .map_err(|error| Error::file("open", path)(error.into()))?
            .into();
        Ok(Self {
            file,
            path: path.to_owned(),
        })
    }

    /// The path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The open directory.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Locks the directory until it is closed, exclusively or shared. Returns `false` if another
    /// process holds a conflicting lock.
    ///
    /// # Errors
    /// The system's reason.
    pub fn lock(&self, exclusive: bool) -> Result<bool, Error> {
        match if exclusive {
            self.file.try_lock()
        } else {
            self.file.try_lock_shared()
        } {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(Error::file("lock", &self.path)(error)),
        }
    }

    /// Opens a directory by its path relative to this one.
    pub fn below(&self, names: &str) -> Lookup<Self> {
        let mut found = None;
        for name in names.split('/') {
            match found.as_ref().unwrap_or(self).enter(name) {
                Lookup::Found(folder) => found = Some(folder),
                other => return other,
            }
        }
        found.map_or(Lookup::Missing, Lookup::Found)
    }

    /// Opens a directory in this one.
    pub fn enter(&self, name: &str) -> Lookup<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(&self.file, name, flags, Mode::empty()) {
            Ok(file) => Lookup::Found(Self {
                file: file.into(),
                path: self.path.join(name),
            }),
            Err(error) => self.explain(name, error, "not a directory"),
        }
    }

    /// Opens a regular file in this directory for reading.
    pub fn open_file(&self, name: &str) -> Lookup<File> {
        // Without NONBLOCK, opening a pipe would wait for a writer.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(&self.file, name, flags, Mode::empty()).map(File::from) {
            Ok(file) if file.metadata().is_ok_and(|status| status.is_file()) => Lookup::Found(file),
            Ok(_) => Lookup::Unexpected("is not a regular file".to_owned()),
            Err(error) => self.explain(name, error, "not a regular file"),
        }
    }

    fn explain<T>(&self, name: &str, error: rustix::io::Errno, kind: &str) -> Lookup<T> {
        if error == rustix::io::Errno::NOENT {
            return Lookup::Missing;
        }
        let status = statat(&self.file, name, AtFlags::SYMLINK_NOFOLLOW);
        Lookup::Unexpected(
            match status.map(|status| FileType::from_raw_mode(status.st_mode)) {
                Ok(FileType::Symlink) => "is a symbolic link, which is not followed".to_owned(),
                Ok(FileType::Directory | FileType::RegularFile)
                    if !matches!(error, rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP) =>
                {
                    format!("cannot be opened: {}", io::Error::from(error))
                }
                _ => format!("is {kind}"),
            },
        )
    }

    /// The names in this directory, sorted. Bytes that are not UTF-8 become `�`, which never occurs
    /// in a name given by the registry.
    ///
    /// # Errors
    /// The system's reason.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.file)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Opens a directory by its path relative to this one, creates its missing parts, and sets the
    /// owner.
    ///
    /// # Errors
    /// The system's reason; a name is already used for something else.
    pub fn make(&self, names: &str, owner: &Owner) -> Result<Self, Error> {
        let mut found = None;
        for name in names.split('/') {
            let next = found.as_ref().unwrap_or(self).make_one(name, owner)?;
            found = Some(next);
        }
        found.ok_or_else(|| Error::unusable(&self.path, "the name is empty"))
    }

    fn make_one(&self, name: &str, owner: &Owner) -> Result<Self, Error> {
        let path = self.path.join(name);
        let made = mkdirat(&self.file, name, Mode::RWXU);
        if let Err(error) = made
            && error != rustix::io::Errno::EXIST
        {
            return Err(Error::file("create", path)(error.into()));
        }
        let folder = match self.enter(name) {
            Lookup::Found(folder) => folder,
            Lookup::Missing => return Err(Error::file("create", path)(ErrorKind::NotFound.into())),
            Lookup::Unexpected(why) => return Err(Error::unusable(path, why)),
        };
        owner
            .apply_to(&folder.file, owner.mode)
            .map_err(Error::file("change the owner of", path))?;
        Ok(folder)
    }

    /// Creates a file in this directory and sets its owner.
    ///
    /// # Errors
    /// The system's reason; the name already exists.
    pub fn create(&self, name: &str, owner: &Owner) -> Result<File, Error> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let path = self.path.join(name);
        let made = openat(&self.file, name, flags, Mode::RUSR | Mode::WUSR);
        let file = File::from(made.map_err(|error| Error::file("create", &path)(error.into()))?);
        owner
            .apply_to(&file, owner.mode & 0o666)
            .map_err(Error::file("change the owner of", path))?;
        Ok(file)
    }

    /// Moves a file of this directory to another one, and replaces a file with that name.
    ///
    /// # Errors
    /// The system's reason.
    pub fn move_file(&self, name: &str, to: &Self, new: &str) -> Result<(), Error> {
        renameat(self.file.as_fd(), name, to.file.as_fd(), new)
            .map_err(|error| Error::file("replace", to.path.join(new))(error.into()))
    }

    /// Removes a file of this directory.
    ///
    /// # Errors
    /// The system's reason.
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        unlinkat(&self.file, name, AtFlags::empty())
            .map_err(|error| Error::file("remove", self.path.join(name))(error.into()))
    }
}

impl Owner {
    /// The owner of a directory, with a mode for what will be created.
    ///
    /// # Errors
    /// The system's reason.
    pub fn of_directory(folder: &Folder, mode: u32) -> Result<Self, Error> {
        let status = folder
            .file
            .metadata()
            .map_err(Error::file("inspect", &folder.path))?;
        Ok(Self {
            user: status.uid(),
            group: status.gid(),
            mode,
        })
    }

    /// Gives an open file or directory this owner and a mode, unless it has them already. Sets the
    /// mode first: after an interruption the owner is still wrong, so that the next run sets both.
    ///
    /// # Errors
    /// The system's reason.
    pub fn apply_to(&self, file: &File, mode: u32) -> io::Result<()> {
        let status = file.metadata()?;
        let new = status.permissions().mode() & 0o077 == 0;
        if (status.uid(), status.gid()) == (self.user, self.group) && !new {
            return Ok(());
        }
        file.set_permissions(Permissions::from_mode(mode))?;
        fchown(file, Some(self.user), Some(self.group))
    }
}
