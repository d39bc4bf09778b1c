//! Taking all files out of an image.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs::{self, File},
    io::{Read as _, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use super::{
    read::{Entry, Image},
    sink::Sink,
};
use crate::{error::Error, files, tenths::Tenths};

/// How much is read at a time.
const CHUNK: usize = 1 << 20;

impl Image {
    /// Writes every file below a new directory, with its mode; directories get `0o755`. All of it is on the disk before
    /// the directory is there under its name: it is there whole or not at all. What an extraction that was killed has
    /// left is removed by the next one. `progress` hears ten times how far it is.
    ///
    /// # Errors
    /// When something is at `dir`, another extraction to it is under way, or a file cannot be read or written. Then
    /// there is nothing left of it.
    pub fn extract(&self, dir: &Path, progress: &mut dyn FnMut(&str)) -> Result<(), Error> {
        let new = files::sibling(dir, "new");
        // Held until the directory has its name: two that write the same files would both be wrong.
        let lock = take(&new, dir)?;
        let written = self.fill(&new, progress).and_then(|()| {
            fs::rename(&new, dir).map_err(Error::file("rename", &new))?;
            sync(above(dir))
        });
        if written.is_err() {
            let _ = fs::remove_dir_all(&new);
        }
        drop(lock);
        written
    }

    fn fill(&self, new: &Path, progress: &mut dyn FnMut(&str)) -> Result<(), Error> {
        let total = self.entries().iter().map(|entry| entry.size).sum();
        let mut tenths = Tenths::new("extracted", total, progress);
        let mut made = BTreeSet::from([new.to_owned()]);
        for entry in self.entries() {
            let path = inside(new, entry).ok_or_else(|| {
                Error::content(self.path(), format!("the path {:?} leads out of the image", entry.path))
            })?;
            make_directories(&path, &mut made)?;
            self.copy(entry, &path, &mut |count| tenths.add(count))?;
        }
        for directory in &made {
            sync(directory)?;
        }
        Ok(())
    }

    fn copy(&self, entry: &Entry, path: &Path, progress: &mut dyn FnMut(u64)) -> Result<(), Error> {
        let mut from = self.content(entry);
        let mut to = Sink::new(files::create(path, entry.mode)?);
        let mut buffer = vec![0; CHUNK.min(usize::try_from(entry.size).unwrap_or(CHUNK)).max(1)];
        loop {
            let count = from.read(&mut buffer).map_err(Error::file("read", self.path()))?;
            if count == 0 {
                return to.finish().map_err(Error::file("write", path));
            }
            to.write_all(&buffer[..count]).map_err(Error::file("write", path))?;
            progress(count as u64);
        }
    }
}

/// The path of an entry in a directory, if it is in it. The reader refuses images with such names already; this is
/// where it would do harm.
fn inside(dir: &Path, entry: &Entry) -> Option<PathBuf> {
    let mut path = dir.to_owned();
    for name in entry.path.split('/') {
        if Path::new(name).file_name() != Some(OsStr::new(name)) {
            return None;
        }
        path.push(name);
    }
    Some(path)
}

/// Makes the directories above a file that have not been made yet, whatever the caller's umask.
fn make_directories(path: &Path, made: &mut BTreeSet<PathBuf>) -> Result<(), Error> {
    let mut missing: Vec<&Path> = path.ancestors().skip(1).take_while(|dir| !made.contains(*dir)).collect();
    while let Some(dir) = missing.pop() {
        fs::create_dir(dir).map_err(Error::file("make", dir))?;
        open_to_all(dir)?;
        made.insert(dir.to_owned());
    }
    Ok(())
}

fn open_to_all(dir: &Path) -> Result<(), Error> {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).map_err(Error::file("make", dir))
}

/// Makes the directory that is to be renamed, or takes one that was left behind and empties it. The lock ends with the
/// process that holds it.
fn take(new: &Path, dir: &Path) -> Result<File, Error> {
    files::make_dir(new)?;
    let lock = File::open(new).map_err(Error::file("open", new))?;
    if lock.try_lock().is_err() {
        return Err(Error::content(dir, "another extraction to it is under way: wait until that has ended"));
    }
    // Only now nobody else can put it there.
    if fs::symlink_metadata(dir).is_ok() {
        let _ = fs::remove_dir(new);
        return Err(Error::content(dir, "something is there already: remove it, or choose another place"));
    }
    for left in fs::read_dir(new).map_err(Error::file("list", new))? {
        let left = left.map_err(Error::file("list", new))?;
        let path = left.path();
        let removed = match left.file_type() {
            Ok(kind) if kind.is_dir() => fs::remove_dir_all(&path),
            _ => fs::remove_file(&path),
        };
        removed.map_err(Error::file("remove", &path))?;
    }
    open_to_all(new)?;
    Ok(lock)
}

/// The directory that holds a path.
fn above(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Waits until the names in a directory are on the disk.
fn sync(dir: &Path) -> Result<(), Error> {
    File::open(dir).and_then(|opened| opened.sync_all()).map_err(Error::file("write", dir))
}
