//! Directories that belong to somebody else: what is in them is reached name by name, and no link
//! is followed.

use std::fs::{File, Permissions, TryLockError};
use std::io;
use std::io::ErrorKind;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use halite_durable::Error;
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, mkdirat, openat, renameat, statat, unlinkat,
};

/// What there is under a name.
pub enum Found<T> {
    /// What was looked for.
    Here(T),
    /// Nothing.
    Gone,
    /// Something else, or nothing that can be opened; why.
    Strange(String),
}

/// Whose the files of the registry are, and who may read them.
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
    /// Opens one that the operator has named; links on the way there are the operator's own.
    ///
    /// # Errors
    /// There is no such directory.
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

    /// Where it is, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Itself, to be asked or locked.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Locks it until it is closed: for oneself alone, or together with others that are not alone.
    /// Whether that was possible at once.
    ///
    /// # Errors
    /// The system's reason.
    pub fn lock(&self, alone: bool) -> Result<bool, Error> {
        match if alone {
            self.file.try_lock()
        } else {
            self.file.try_lock_shared()
        } {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(Error::file("lock", &self.path)(error)),
        }
    }

    /// A directory some names below.
    pub fn below(&self, names: &str) -> Found<Self> {
        let mut found = None;
        for name in names.split('/') {
            match found.as_ref().unwrap_or(self).enter(name) {
                Found::Here(folder) => found = Some(folder),
                other => return other,
            }
        }
        found.map_or(Found::Gone, Found::Here)
    }

    /// A directory in it.
    pub fn enter(&self, name: &str) -> Found<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(&self.file, name, flags, Mode::empty()) {
            Ok(file) => Found::Here(Self {
                file: file.into(),
                path: self.path.join(name),
            }),
            Err(error) => self.explain(name, error, "no directory"),
        }
    }

    /// A plain file in it, to be read.
    pub fn plain(&self, name: &str) -> Found<File> {
        // Nobody is waited for at the other end of a pipe.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(&self.file, name, flags, Mode::empty()).map(File::from) {
            Ok(file) if file.metadata().is_ok_and(|facts| facts.is_file()) => Found::Here(file),
            Ok(_) => Found::Strange("is no plain file".to_owned()),
            Err(error) => self.explain(name, error, "no plain file"),
        }
    }

    fn explain<T>(&self, name: &str, error: rustix::io::Errno, wanted: &str) -> Found<T> {
        if error == rustix::io::Errno::NOENT {
            return Found::Gone;
        }
        let status = statat(&self.file, name, AtFlags::SYMLINK_NOFOLLOW);
        Found::Strange(
            match status.map(|status| FileType::from_raw_mode(status.st_mode)) {
                Ok(FileType::Symlink) => "is a symbolic link, which is not followed".to_owned(),
                Ok(FileType::Directory | FileType::RegularFile)
                    if !matches!(error, rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP) =>
                {
                    format!("cannot be opened: {}", io::Error::from(error))
                }
                _ => format!("is {wanted}"),
            },
        )
    }

    /// The names in it, in order. Whatever is no UTF-8 in one shows as `�`, and no name that the
    /// registry gives has that.
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

    /// The directory some names below, made where it is not there yet, and its owner's.
    ///
    /// # Errors
    /// The system's reason; something else is there.
    pub fn make(&self, names: &str, owner: &Owner) -> Result<Self, Error> {
        let mut found = None;
        for name in names.split('/') {
            let next = found.as_ref().unwrap_or(self).make_one(name, owner)?;
            found = Some(next);
        }
        found.ok_or_else(|| Error::content(&self.path, "no name"))
    }

    fn make_one(&self, name: &str, owner: &Owner) -> Result<Self, Error> {
        let path = self.path.join(name);
        let made = mkdirat(&self.file, name, Mode::RWXU);
        if let Err(error) = made
            && error != rustix::io::Errno::EXIST
        {
            return Err(Error::file("make", path)(error.into()));
        }
        let folder = match self.enter(name) {
            Found::Here(folder) => folder,
            Found::Gone => return Err(Error::file("make", path)(ErrorKind::NotFound.into())),
            Found::Strange(why) => return Err(Error::content(path, why)),
        };
        owner
            .take(&folder.file, owner.mode)
            .map_err(Error::file("change the owner of", path))?;
        Ok(folder)
    }

    /// A new file in it, its owner's.
    ///
    /// # Errors
    /// The system's reason; something is there.
    pub fn create(&self, name: &str, owner: &Owner) -> Result<File, Error> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let path = self.path.join(name);
        let made = openat(&self.file, name, flags, Mode::RUSR | Mode::WUSR);
        let file = File::from(made.map_err(|error| Error::file("write", &path)(error.into()))?);
        owner
            .take(&file, owner.mode & 0o666)
            .map_err(Error::file("change the owner of", path))?;
        Ok(file)
    }

    /// Moves a file of it into another directory, in the place of what is there.
    ///
    /// # Errors
    /// The system's reason.
    pub fn hand_over(&self, name: &str, to: &Self, new: &str) -> Result<(), Error> {
        renameat(self.file.as_fd(), name, to.file.as_fd(), new)
            .map_err(|error| Error::file("replace", to.path.join(new))(error.into()))
    }

    /// Removes a file of it.
    ///
    /// # Errors
    /// The system's reason.
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        unlinkat(&self.file, name, AtFlags::empty())
            .map_err(|error| Error::file("remove", self.path.join(name))(error.into()))
    }
}

impl Owner {
    /// The owner of a directory.
    ///
    /// # Errors
    /// The system's reason.
    pub fn of(folder: &Folder, mode: u32) -> Result<Self, Error> {
        let facts = folder
            .file
            .metadata()
            .map_err(Error::file("look at", &folder.path))?;
        Ok(Self {
            user: facts.uid(),
            group: facts.gid(),
            mode,
        })
    }

    /// Makes what is open this owner's, if it is not yet: the mode first, so that whoever was cut
    /// off between the two does both again.
    ///
    /// # Errors
    /// The system's reason.
    pub fn take(&self, file: &File, mode: u32) -> io::Result<()> {
        let facts = file.metadata()?;
        let new = facts.permissions().mode() & 0o077 == 0;
        if (facts.uid(), facts.gid()) == (self.user, self.group) && !new {
            return Ok(());
        }
        file.set_permissions(Permissions::from_mode(mode))?;
        fchown(file, Some(self.user), Some(self.group))
    }
}
