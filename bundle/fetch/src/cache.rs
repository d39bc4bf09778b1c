//! The cache: a directory of blobs, each under its digest.
//!
//! `sha256/HEX` is a complete blob and never changes. A blob that was damaged by a disk or by hand
//! is not used, and is replaced when it is fetched again. `partial/HEX.part` is the beginning of
//! the blob with that digest, and `HEX.part.json` its source. The process that writes a partial
//! file holds a lock on it, which the kernel releases when the process ends. A second process or
//! thread that needs the same blob waits, and then finds it complete.

mod partial;

use std::fs;
use std::fs::File;
use std::path::{Path, PathBuf};

use halite_durable::{Digest, digest, files};

use crate::error::Error;

pub(crate) use partial::{Origin, Partial};

/// A cache in a directory. Cloning is cheap; several processes can use one directory at once.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

/// A blob in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedContent {
    /// Its digest.
    pub digest: Digest,
    /// Its size in bytes.
    pub size: u64,
    /// Its file. It may be linked or copied, but never changed.
    pub path: PathBuf,
}

/// The part of a blob that the cache has.
pub(crate) enum Begun {
    /// The complete blob.
    There(CachedContent),
    /// The beginning of a blob, perhaps empty, which only the caller may continue.
    Partial(Partial),
}

impl Cache {
    /// Opens a cache; a missing directory is created.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub fn open(root: &Path) -> Result<Self, Error> {
        for part in ["sha256", "partial"] {
            let dir = root.join(part);
            fs::create_dir_all(&dir).map_err(Error::file("make", dir))?;
        }
        Ok(Self {
            root: root.to_owned(),
        })
    }

    /// A blob, if it exists with this size. Its digest was compared when it was fetched, but the
    /// disk may have damaged it since, so this is for callers that compare the digest while they
    /// read. Others use [`sound`](Self::sound).
    #[must_use]
    pub fn find(&self, digest: &Digest, size: Option<u64>) -> Option<CachedContent> {
        let path = self.path(digest);
        let status = fs::symlink_metadata(&path).ok()?;
        let found = status.is_file() && size.is_none_or(|size| size == status.len());
        found.then(|| CachedContent {
            digest: digest.clone(),
            size: status.len(),
            path,
        })
    }

    /// The bytes of a small blob, if it exists and matches its digest.
    ///
    /// # Errors
    /// It exists but cannot be read.
    pub fn read(&self, digest: &Digest) -> Result<Option<Vec<u8>>, Error> {
        let path = self.path(digest);
        match fs::read(&path) {
            Ok(bytes) => Ok((Digest::of(&bytes) == *digest).then_some(bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::file("read", path)(error)),
        }
    }

    /// Stores bytes.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn put(&self, bytes: &[u8]) -> Result<CachedContent, Error> {
        let digest = Digest::of(bytes);
        match self.begin(&digest, Some(bytes.len() as u64))? {
            Begun::There(entry) => Ok(entry),
            Begun::Partial(mut partial) => {
                partial.restart()?;
                partial.write(bytes)?;
                partial.keep(self)
            }
        }
    }

    /// A blob, if it exists with this size and matches its digest; it is read completely. A damaged
    /// blob counts as missing. It stays until it is fetched again, under the lock, and replaced.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn sound(
        &self,
        digest: &Digest,
        size: Option<u64>,
    ) -> Result<Option<CachedContent>, Error> {
        let Some(entry) = self.find(digest, size) else {
            return Ok(None);
        };
        let mut file = File::open(&entry.path).map_err(Error::file("read", &entry.path))?;
        let read = files::stream(&mut file, &mut std::io::sink());
        if read.map_err(Error::file("read", &entry.path))?.0 == digest.hex() {
            return Ok(Some(entry));
        }
        tracing::warn!("{} is damaged and is not used", entry.path.display());
        Ok(None)
    }

    /// Starts or resumes a blob with a known digest.
    pub(crate) fn begin(&self, digest: &Digest, size: Option<u64>) -> Result<Begun, Error> {
        if let Some(entry) = self.sound(digest, size)? {
            return Ok(Begun::There(entry));
        }
        let partial = Partial::open(self.root.join("partial").join(format!("{digest}.part")))?;
        // Another process may have completed it while this one waited for the lock.
        Ok(match self.sound(digest, size)? {
            Some(entry) => {
                partial.abandon();
                Begun::There(entry)
            }
            None => Begun::Partial(partial),
        })
    }

    /// Starts or resumes a blob with an unknown digest; its URL identifies it until the end.
    pub(crate) fn begin_unknown(&self, url: &str) -> Result<Partial, Error> {
        let name = format!("url-{}.part", digest::sha256(url.as_bytes()));
        Partial::open(self.root.join("partial").join(name))
    }

    /// The directory of complete blobs, each under its digest, which is also the directory of the
    /// blobs of all pulled images.
    #[must_use]
    pub fn contents(&self) -> PathBuf {
        self.root.join("sha256")
    }

    /// The path of a blob, whether or not it exists.
    #[must_use]
    pub fn path(&self, digest: &Digest) -> PathBuf {
        self.contents().join(digest.hex())
    }
}
