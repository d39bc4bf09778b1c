//! Files of the state tree and the bundle on this host, each under the SHA-256 of its content.

use std::path::{Path, PathBuf};
use std::time::Duration;

use halite_durable::digest::{is_sha256, sha256};

use crate::clock;
use crate::host::linux::{Blobs, files};
use crate::host::{HostError, HostFuture, HostResult};

/// A file that no job has used for this long is dropped from the cache.
const UNUSED: Duration = Duration::from_secs(7 * 86_400);

/// A directory with one file for each digest.
#[derive(Debug, Clone)]
pub struct Store(PathBuf);

impl Store {
    /// The directory need not exist yet.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self(directory.into())
    }

    /// A file, if it exists and is intact; a damaged one is removed.
    ///
    /// # Errors
    /// It cannot be read, or `hash` is invalid.
    pub fn get(&self, hash: &str) -> HostResult<Option<Vec<u8>>> {
        let path = self.path(hash)?;
        let Some(content) = files::read(&path)? else {
            return Ok(None);
        };
        if sha256(&content) == hash {
            // The time of last use, for `prune`. Losing it only costs a transfer.
            let _ = std::fs::File::options()
                .append(true)
                .open(&path)
                .and_then(|f| f.set_modified(clock::now()));
            return Ok(Some(content));
        }
        tracing::warn!(hash, "dropped a damaged file from the cache");
        files::remove(&path)?;
        Ok(None)
    }

    /// Stores a file, after checking its digest.
    ///
    /// # Errors
    /// Its content has another hash, or it cannot be written.
    pub fn put(&self, hash: &str, content: &[u8]) -> HostResult<()> {
        let path = self.path(hash)?;
        if sha256(content) != hash {
            return Err(HostError::refused(format!(
                "the file {hash} arrived damaged"
            )));
        }
        files::mkdir(
            &self.0,
            files::Owner {
                mode: Some(0o700),
                ..files::Owner::default()
            },
        )?;
        // A cache: a file lost in a crash is fetched again.
        files::write_unsynced(
            &path,
            content,
            files::Owner {
                mode: Some(0o600),
                ..files::Owner::default()
            },
        )
    }

    /// Drops files that were not used for a week.
    pub fn prune(&self) {
        let Ok(entries) = std::fs::read_dir(&self.0) else {
            return;
        };
        for entry in entries.flatten() {
            let used = entry.metadata().and_then(|m| m.modified()).ok();
            if used
                .and_then(|at| clock::now().duration_since(at).ok())
                .is_some_and(|age| age > UNUSED)
            {
                // Only a cache: files that cannot be removed now are retried next time.
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    fn path(&self, hash: &str) -> HostResult<PathBuf> {
        if is_sha256(hash) {
            Ok(self.0.join(hash))
        } else {
            Err(HostError::refused(
                "a blob is named by 64 lower-case hexadecimal digits",
            ))
        }
    }
}

/// The files of local mode, from a directory that the operator names.
#[derive(Debug, Clone)]
pub struct LocalBlobs(Option<PathBuf>);

impl LocalBlobs {
    /// Files named by their hash in `directory`.
    #[must_use]
    pub fn new(directory: Option<&Path>) -> Self {
        Self(directory.map(Path::to_owned))
    }
}

impl Blobs for LocalBlobs {
    fn blob<'a>(&'a self, hash: &'a str) -> HostFuture<'a, HostResult<Vec<u8>>> {
        Box::pin(async move {
            let directory = self.0.as_ref().ok_or_else(|| {
                HostError::refused(format!(
                    "the file {hash} is needed: name its directory with --blobs"
                ))
            })?;
            if !is_sha256(hash) {
                return Err(HostError::refused(
                    "a blob is named by 64 lower-case hexadecimal digits",
                ));
            }
            let path = directory.join(hash);
            let content = files::read(&path)?.ok_or_else(|| {
                HostError::refused(format!("the file {hash} is not in {}", directory.display()))
            })?;
            if sha256(&content) == hash {
                Ok(content)
            } else {
                Err(HostError::refused(format!(
                    "{} is damaged: its content has another hash",
                    path.display()
                )))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_files_are_kept_and_given() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().join("blobs"));
        let hash = sha256(b"content");
        assert_eq!(store.get(&hash).unwrap(), None);
        assert!(
            store
                .put(&hash, b"contenT")
                .unwrap_err()
                .to_string()
                .contains("damaged")
        );
        store.put(&hash, b"content").unwrap();
        assert_eq!(store.get(&hash).unwrap().unwrap(), b"content");
        std::fs::write(dir.path().join("blobs").join(&hash), "rotten").unwrap();
        assert_eq!(store.get(&hash).unwrap(), None);
        assert!(!dir.path().join("blobs").join(&hash).exists());
        assert!(store.get("../../etc/shadow").is_err());
    }

    #[test]
    fn what_is_not_used_goes() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        let (old, new) = (sha256(b"old"), sha256(b"new"));
        store.put(&old, b"old").unwrap();
        store.put(&new, b"new").unwrap();
        let file = std::fs::File::options()
            .append(true)
            .open(dir.path().join(&old))
            .unwrap();
        file.set_modified(clock::now() - 2 * UNUSED).unwrap();
        store.prune();
        assert_eq!(store.get(&old).unwrap(), None);
        assert!(store.get(&new).unwrap().is_some());
    }

    #[tokio::test]
    async fn local_files_are_verified() {
        let dir = tempfile::tempdir().unwrap();
        let hash = sha256(b"x");
        let blobs = LocalBlobs::new(Some(dir.path()));
        assert!(
            blobs
                .blob(&hash)
                .await
                .unwrap_err()
                .to_string()
                .contains("is not in")
        );
        std::fs::write(dir.path().join(&hash), "y").unwrap();
        assert!(
            blobs
                .blob(&hash)
                .await
                .unwrap_err()
                .to_string()
                .contains("damaged")
        );
        assert!(
            LocalBlobs::new(None)
                .blob(&hash)
                .await
                .unwrap_err()
                .to_string()
                .contains("--blobs")
        );
    }
}
