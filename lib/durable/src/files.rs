//! Files: digests, copies, links and directory listings.

use std::fs;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek as _, SeekFrom, Write};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use sha2::{Digest as _, Sha256};

use crate::digest::hex;
use crate::error::Error;

/// Size of one read in bytes.
const CHUNK: usize = 1 << 20;

/// Number of attempts to remove a directory.
const ATTEMPTS: u32 = 20;

/// Opens a file for reading and determines its size in bytes by seeking, because the metadata of a
/// block device has no size.
pub fn open_sized(path: &Path) -> Result<(File, u64), Error> {
    let mut file = File::open(path).map_err(Error::file("read", path))?;
    let size = file
        .seek(SeekFrom::End(0))
        .map_err(Error::file("read", path))?;
    Ok((file, size))
}

/// The SHA-256 and the size of a file, which is read as a stream.
pub fn digest(path: &Path) -> Result<(String, u64), Error> {
    let mut from = File::open(path).map_err(Error::file("read", path))?;
    stream(&mut from, &mut std::io::sink()).map_err(Error::file("read", path))
}

/// Copies a file and returns SHA-256 and size of the copied bytes.
pub fn copy(from: &Path, to: &Path, mode: u32) -> Result<(String, u64), Error> {
    let mut source = RecordingReader::new(File::open(from).map_err(Error::file("read", from))?);
    let mut target = create(to, mode)?;
    let copied = stream(&mut source, &mut target);
    // The error names the disk that failed.
    let at_fault = if source.failed {
        Error::file("read", from)
    } else {
        Error::file("write", to)
    };
    copied.map_err(at_fault)
}

/// A reader that records its own errors, to distinguish them from errors of the writer.
pub struct RecordingReader<R> {
    from: R,
    /// Set after a read error.
    pub failed: bool,
}

impl<R> RecordingReader<R> {
    /// Wraps a reader.
    pub fn new(from: R) -> Self {
        Self {
            from,
            failed: false,
        }
    }
}

impl<R: Read> Read for RecordingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.from.read(buffer);
        self.failed |= matches!(&read, Err(error) if error.kind() != ErrorKind::Interrupted);
        read
    }
}

/// Creates a new file with a mode, and its parent directories.
pub fn create(path: &Path, mode: u32) -> Result<File, Error> {
    make_parent(path)?;
    let file = File::options()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)
        .map_err(Error::file("write", path))?;
    // The caller's umask must not affect the content of a bundle.
    file.set_permissions(fs::Permissions::from_mode(mode))
        .map_err(Error::file("write", path))?;
    Ok(file)
}

/// Writes a new file.
pub fn write(path: &Path, mode: u32, content: &[u8]) -> Result<(), Error> {
    create(path, mode)?
        .write_all(content)
        .map_err(Error::file("write", path))
}

/// Writes a new file atomically and syncs it: it is complete or absent, even after a power cut. An
/// existing file is an error, and stays as it is. Creates its parent directories.
pub fn write_new(path: &Path, mode: u32, content: &[u8]) -> Result<(), Error> {
    make_parent(path)?;
    let dir = parent(path);
    let write = || {
        let mut file = tempfile::NamedTempFile::new_in(dir)?;
        file.as_file()
            .set_permissions(fs::Permissions::from_mode(mode))?;
        file.write_all(content)?;
        file.as_file().sync_all()?;
        file.persist_noclobber(path).map_err(|error| error.error)?;
        File::open(dir)?.sync_all()
    };
    write().map_err(Error::file("write", path))
}

/// Hard-links a file, or copies it if the other path is on another file system.
pub fn link(from: &Path, to: &Path) -> Result<(), Error> {
    make_parent(to)?;
    if fs::hard_link(from, to).is_ok() {
        return Ok(());
    }
    let mode = fs::metadata(from)
        .map_err(Error::file("read", from))?
        .permissions()
        .mode();
    copy(from, to, mode & 0o777).map(|_| ())
}

/// The relative paths of all regular files below a directory, sorted, with `/`. Any other kind of
/// file is an error: a bundle must fit on every file system.
pub fn walk(root: &Path) -> Result<Vec<String>, Error> {
    let (files, others) = entries(root)?;
    match others.first() {
        None => Ok(files),
        Some(name) => Err(Error::content(
            root.join(name),
            "only plain files can be in a bundle",
        )),
    }
}

/// The regular files below a directory, and separately everything that is neither a file nor a
/// directory.
pub fn entries(root: &Path) -> Result<(Vec<String>, Vec<String>), Error> {
    let (mut files, mut others) = (Vec::new(), Vec::new());
    let mut waiting = vec![(root.to_owned(), String::new())];
    while let Some((dir, prefix)) = waiting.pop() {
        for entry in fs::read_dir(&dir).map_err(Error::file("list", &dir))? {
            let entry = entry.map_err(Error::file("list", &dir))?;
            let kind = entry.file_type().map_err(Error::file("list", &dir))?;
            let Ok(name) = entry.file_name().into_string() else {
                return Err(Error::content(entry.path(), "its name is not UTF-8"));
            };
            let name = format!("{prefix}{name}");
            if kind.is_dir() {
                waiting.push((entry.path(), format!("{name}/")));
            } else if kind.is_file() {
                files.push(name);
            } else {
                others.push(name);
            }
        }
    }
    files.sort_unstable();
    others.sort_unstable();
    Ok((files, others))
}

/// Removes a directory with its content; a missing one is not an error.
pub fn remove_dir(dir: &Path) -> Result<(), Error> {
    for attempt in 1.. {
        match fs::remove_dir_all(dir) {
            // A child process of a killed build may still write there for a moment.
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty && attempt < ATTEMPTS => {
                std::thread::sleep(Duration::from_millis(100));
            }
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(Error::file("remove", dir)(error));
            }
            _ => break,
        }
    }
    Ok(())
}

/// Removes a file, a link (not its target), or a directory with its content.
pub fn remove_any(path: &Path) -> Result<(), Error> {
    let removed = match fs::symlink_metadata(path) {
        Ok(status) if status.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::file("remove", path)(error))
        }
        _ => Ok(()),
    }
}

/// Removes a file, a link or a directory with its content, durably even across a power cut. A
/// missing one is not an error.
pub fn remove(path: &Path) -> Result<(), Error> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        _ => remove_any(path).and_then(|()| sync_parent(path)),
    }
}

/// Creates a directory and its parents.
pub fn make_dir(dir: &Path) -> Result<(), Error> {
    fs::create_dir_all(dir).map_err(Error::file("make", dir))
}

/// Replaces a file atomically and syncs it: it has the old content or the new one, never a part,
/// even after a power cut. Creates its parent directories.
pub fn replace(path: &Path, mode: u32, content: &[u8]) -> Result<(), Error> {
    let new = sibling(path, "new");
    let _ = fs::remove_file(&new);
    let written = create(&new, mode)
        .and_then(|mut file| file.write_all(content).map_err(Error::file("write", path)))
        .and_then(|()| publish(&new, path));
    if written.is_err() {
        // Best effort: the first error is the one that matters.
        let _ = fs::remove_file(&new);
    }
    written
}

/// Renames a written file to its final name, replacing an existing file, and returns when both
/// content and name are on the disk.
pub fn publish(new: &Path, path: &Path) -> Result<(), Error> {
    File::open(new)
        .and_then(|file| file.sync_all())
        .map_err(Error::file("write", path))?;
    fs::rename(new, path).map_err(Error::file("replace", path))?;
    sync_parent(path)
}

/// Syncs the whole file system that contains a directory: one call instead of one for each file.
pub fn settle(dir: &Path) -> Result<(), Error> {
    let opened = File::open(dir).map_err(Error::file("open", dir))?;
    rustix::fs::syncfs(&opened).map_err(|error| Error::file("write", dir)(error.into()))
}

/// Syncs the directory entry of a file or directory.
pub fn sync_parent(path: &Path) -> Result<(), Error> {
    let dir = parent(path);
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(Error::file("write", dir))
}

/// The directory of a file.
fn parent(path: &Path) -> &Path {
    path.parent()
        .filter(|dir| !dir.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

/// Makes the error of moving a directory, for `map_err`. The kernel reports a mount point as busy.
pub fn moved(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |cause| match cause.kind() {
        ErrorKind::ResourceBusy => {
            let what = format!(
                "cannot {action} it: a file system is mounted there; unmount it first (`umount {}`; a line in /etc/fstab would \
                 bring it back)",
                path.display()
            );
            Error::content(path, what)
        }
        _ => Error::file(action, path)(cause),
    }
}

/// Moves a sibling into place, and removes the previous file or directory.
pub fn put_in_place(new: &Path, place: &Path) -> Result<(), Error> {
    let aside = sibling(place, "replaced");
    if fs::symlink_metadata(place).is_err() {
        fs::rename(new, place).map_err(Error::file("move", new))?;
        sync_parent(place)?;
        return remove_any(&aside);
    }
    match renameat_with(CWD, new, CWD, place, RenameFlags::EXCHANGE) {
        // Not every file system can exchange two names atomically. After an interruption between
        // these two calls, the caller repeats the operation.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
            // A leftover of an interrupted call; the complete one is already in place.
            remove_any(&aside)?;
            fs::rename(place, &aside).map_err(moved("replace", place))?;
            if let Err(cause) = fs::rename(new, place) {
                // Without the new one, the previous one stays in place.
                let _ = fs::rename(&aside, place);
                return Err(Error::file("replace", place)(cause));
            }
            sync_parent(place)?;
            remove_any(&aside)
        }
        done => {
            done.map_err(|error| moved("replace", place)(error.into()))?;
            sync_parent(place)?;
            remove_any(new)
        }
    }
}

/// A hidden sibling of a path, on the same file system: `.NAME.suffix`.
pub fn sibling(path: &Path, suffix: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{suffix}"))
}

fn make_parent(path: &Path) -> Result<(), Error> {
    path.parent().map_or(Ok(()), make_dir)
}

/// Copies a stream to its end and returns its SHA-256 and size.
pub fn stream(from: &mut impl Read, to: &mut impl Write) -> std::io::Result<(String, u64)> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; CHUNK];
    let mut size = 0;
    loop {
        let count = from.read(&mut buffer)?;
        if count == 0 {
            return Ok((hex(&hash.finalize()), size));
        }
        hash.update(&buffer[..count]);
        to.write_all(&buffer[..count])?;
        size += count as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kill_left_beside_a_place_goes_when_another_is_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let (new, place) = (dir.path().join("new"), dir.path().join("place"));
        // The old one was moved aside, and the call was interrupted before the new one was in
        // place.
        make_dir(&sibling(&place, "replaced").join("old")).unwrap();
        make_dir(&new.join("first")).unwrap();
        put_in_place(&new, &place).unwrap();
        make_dir(&new.join("second")).unwrap();
        put_in_place(&new, &place).unwrap();
        let names: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, ["place"]);
        assert!(place.join("second").is_dir());
    }

    #[test]
    fn a_new_file_is_complete_and_never_replaces_another() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys/one");
        write_new(&path, 0o600, b"first").unwrap();
        let error = write_new(&path, 0o644, b"second").unwrap_err().to_string();
        assert!(error.contains("keys/one"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"first");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let count = fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(count, 1, "nothing is left beside it");
    }

    #[test]
    fn a_copy_says_which_side_failed() {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("to");
        // A directory can be opened but not read.
        let error = copy(dir.path(), &to, 0o644).unwrap_err().to_string();
        assert!(
            error.contains("read") && error.contains(&dir.path().display().to_string()),
            "{error}"
        );
        assert!(!error.contains("write"), "{error}");
        let error = copy(
            Path::new("/proc/self/stat"),
            Path::new("/dev/full/x"),
            0o644,
        )
        .unwrap_err()
        .to_string();
        assert!(error.contains("/dev/full"), "{error}");
    }
}
