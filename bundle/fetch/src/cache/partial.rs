//! Incomplete blobs.

use std::fs;
use std::fs::{File, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use halite_durable::Digest;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Cache, CachedContent};
use crate::error::Error;

/// Size of one read in bytes.
const CHUNK: usize = 1 << 20;

/// The source of a partial blob: the server needs it to decide whether the rest still belongs to
/// it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Origin {
    /// The URL.
    pub url: String,
    /// Its strong `ETag`, or its `Last-Modified`.
    pub validator: Option<String>,
    /// The size of the whole blob in bytes, if the server sent it.
    #[serde(default)]
    pub total: Option<u64>,
}

/// The beginning of a blob, locked.
pub(crate) struct Partial {
    path: PathBuf,
    file: File,
    hash: Sha256,
    len: u64,
    origin: Origin,
}

impl Partial {
    /// Opens or creates a partial file and waits for its lock.
    pub(super) fn open(path: PathBuf) -> Result<Self, Error> {
        let file = lock(&path)?;
        let mut partial = Self {
            origin: Origin::default(),
            path,
            file,
            hash: Sha256::new(),
            len: 0,
        };
        let origin = fs::read(partial.record())
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok());
        partial.origin = origin.unwrap_or_default();
        let mut buffer = vec![0; CHUNK];
        loop {
            let count = partial
                .file
                .read(&mut buffer)
                .map_err(Error::file("read", &partial.path))?;
            if count == 0 {
                return Ok(partial);
            }
            partial.hash.update(&buffer[..count]);
            partial.len += count as u64;
        }
    }

    /// The number of existing bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The source of these bytes.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Records the source of the following bytes.
    pub fn set_origin(&mut self, origin: Origin) -> Result<(), Error> {
        if self.origin != origin {
            let path = self.record();
            let bytes = serde_json::to_vec(&origin)
                .map_err(|error| Error::content(path.to_string_lossy(), error))?;
            fs::write(&path, bytes).map_err(Error::file("write", &path))?;
            self.origin = origin;
        }
        Ok(())
    }

    /// Appends bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if let Err(error) = self.file.write_all(bytes) {
            // A full disk may have accepted some of them. The previous bytes are kept for the next
            // attempt.
            let _ = self.file.set_len(self.len);
            let _ = self.file.seek(std::io::SeekFrom::Start(self.len));
            return Err(Error::file("write", &self.path)(error));
        }
        self.hash.update(bytes);
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Discards the existing bytes.
    pub fn restart(&mut self) -> Result<(), Error> {
        let emptied = self.file.set_len(0).and_then(|()| self.file.rewind());
        emptied.map_err(Error::file("write", &self.path))?;
        self.hash = Sha256::new();
        self.len = 0;
        let _ = fs::remove_file(self.record());
        self.origin = Origin::default();
        Ok(())
    }

    /// The digest of the existing bytes.
    pub fn digest(&self) -> Digest {
        Digest::finish(self.hash.clone())
    }

    /// Makes the complete blob durable and renames it to its final path.
    pub fn keep(self, cache: &Cache) -> Result<CachedContent, Error> {
        let digest = self.digest();
        let to = cache.path(&digest);
        self.file
            .sync_all()
            .map_err(Error::file("write", &self.path))?;
        fs::rename(&self.path, &to).map_err(Error::file("write", &to))?;
        let _ = fs::remove_file(self.record());
        if let Some(dir) = to.parent() {
            File::open(dir)
                .and_then(|dir| dir.sync_all())
                .map_err(Error::file("write", dir))?;
        }
        Ok(CachedContent {
            digest,
            size: self.len,
            path: to,
        })
    }

    /// Removes the partial file.
    pub fn abandon(self) {
        // If it stays, the next transfer starts again, so a failure does no harm.
        let _ = fs::remove_file(self.record());
        let _ = fs::remove_file(&self.path);
    }

    fn record(&self) -> PathBuf {
        self.path.with_extension("part.json")
    }
}

/// Opens and locks the file with this name. The previous holder of the lock may have renamed or
/// removed the opened file, so the name is checked again under the lock.
fn lock(path: &Path) -> Result<File, Error> {
    loop {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path);
        let file = file.map_err(Error::file("write", path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                tracing::info!(
                    "waiting for another process or thread that is writing {}",
                    path.display()
                );
                file.lock().map_err(Error::file("lock", path))?;
            }
            Err(TryLockError::Error(error)) => return Err(Error::file("lock", path)(error)),
        }
        let held = file.metadata().map_err(Error::file("read", path))?;
        if fs::symlink_metadata(path)
            .is_ok_and(|now| (now.dev(), now.ino()) == (held.dev(), held.ino()))
        {
            return Ok(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_that_waited_leaves_the_complete_content_alone() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path()).unwrap();
        let mut first = cache.begin_unknown("https://x/").unwrap();
        first.write(b"first").unwrap();
        let node = first.file.metadata().unwrap().ino();
        let other = cache.clone();
        let second = std::thread::spawn(move || other.begin_unknown("https://x/").unwrap());
        // The kernel lists the processes that wait for a lock, with the file (proc_locks(5)).
        let waits = |line: &str| line.contains("-> FLOCK") && line.contains(&format!(":{node} "));
        while !fs::read_to_string("/proc/locks")
            .unwrap()
            .lines()
            .any(waits)
        {
            assert!(!second.is_finished(), "it did not wait");
            std::thread::yield_now();
        }
        let entry = first.keep(&cache).unwrap();
        let mut second = second.join().unwrap();
        assert_eq!(second.len(), 0);
        second.write(b"second").unwrap();
        let other = second.keep(&cache).unwrap();
        assert_eq!(fs::read(entry.path).unwrap(), b"first");
        assert_eq!(fs::read(other.path).unwrap(), b"second");
    }
}
