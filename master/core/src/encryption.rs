//! The keys that encrypt objects in etcd, in a file beside the CAs.
//!
//! The file has a directory of its own, which a standby's feed watches: a standby has each key
//! before a step that uses it has ended. It is one of the saved files, so that a restored cluster
//! can read its Secrets.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use halite_errors::chain;
use halite_pillar::encryption_keys::{EncryptionKeys, KEYS_FILE, NewKey};
use halite_proto::pki;

use crate::ca::{CaError, ContentError, files};

/// The length of a key, in bytes (XSalsa20 and Poly1305).
const LENGTH: usize = 32;
/// The length of the random part of a key's name, in bytes.
const ID_LENGTH: usize = 4;

/// The file of the keys.
#[derive(Debug, Clone)]
pub struct KeyFile {
    path: PathBuf,
}

impl KeyFile {
    /// The file of the master with this directory. Creates its directory, so that a standby's feed
    /// watches it before it contains the first key.
    pub fn new(state_dir: &Path) -> Self {
        let path = state_dir.join(KEYS_FILE);
        if let Some(directory) = path.parent()
            && let Err(error) = files::directory(directory, 0o700)
        {
            let error = chain(&error);
            tracing::warn!(error, "cannot create the directory of the encryption keys");
        }
        Self { path }
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the keys; `None` if there are none yet.
    ///
    /// # Errors
    /// The file cannot be read or used. It is never replaced then: without its keys, objects in
    /// etcd could not be read.
    pub fn read(&self) -> Result<Option<EncryptionKeys>, CaError> {
        let text = match files::read(&self.path) {
            Ok(text) => text,
            Err(CaError::Missing { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let keys = serde_json::from_str(&text)
            .map_err(|_| CaError::unusable(&self.path)(ContentError::NotKeys))?;
        Ok(Some(keys))
    }

    /// Reads the keys, and makes the first one if the cluster has had none yet.
    ///
    /// # Errors
    /// The file cannot be read, used or written, or it is missing although the cluster has
    /// encrypted with its keys.
    pub fn read_or_make(&self, age: ClusterAge) -> Result<EncryptionKeys, CaError> {
        if let Some(keys) = self.read()? {
            return Ok(keys);
        }
        if age == ClusterAge::Encrypted {
            return Err(CaError::LostKeys {
                path: self.path.clone(),
            });
        }
        let keys = EncryptionKeys::first(new_key()?, age == ClusterAge::New);
        self.write(&keys)?;
        Ok(keys)
    }

    /// Writes the keys.
    ///
    /// # Errors
    /// The file cannot be written; the old one stays.
    pub fn write(&self, keys: &EncryptionKeys) -> Result<(), CaError> {
        // Texts always convert to JSON.
        let text = serde_json::to_string(keys).unwrap_or_default();
        if let Some(directory) = self.path.parent() {
            files::directory(directory, 0o700)?;
        }
        files::write(&self.path, &text, 0o600)
    }
}

/// The age of a cluster whose encryption is declared, while it has no file of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterAge {
    /// No API server has run yet: the first key encrypts at once.
    New,
    /// API servers run that do not know the first key: it only decrypts.
    Running,
    /// Encryption was declared before, so there was a key.
    Encrypted,
}

/// Makes a key with a name of its own.
///
/// # Errors
/// The system has no randomness.
pub fn new_key() -> Result<NewKey, CaError> {
    let bytes: [u8; LENGTH] = pki::random()?;
    let id: [u8; ID_LENGTH] = pki::random()?;
    Ok(NewKey {
        id: pki::hex(&id),
        secret: STANDARD.encode(bytes),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_first_key_is_made_once_and_is_private() {
        let directory = tempfile::tempdir().unwrap();
        let file = KeyFile::new(directory.path());
        assert_eq!(file.read().unwrap(), None);
        let keys = file.read_or_make(ClusterAge::New).unwrap();
        assert_eq!(file.read_or_make(ClusterAge::Encrypted).unwrap(), keys);
        assert_eq!(file.read().unwrap(), Some(keys.clone()));
        let path = keys.paths().next().unwrap();
        let secret = keys.secret(&path).unwrap();
        assert_eq!(STANDARD.decode(secret).unwrap().len(), LENGTH);
        let mode = std::fs::metadata(file.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let (one, other) = (new_key().unwrap(), new_key().unwrap());
        assert!(one.secret != other.secret && one.id != other.id);
    }

    #[test]
    fn a_lost_file_is_an_error_with_its_remedy_once_the_cluster_has_encrypted() {
        let directory = tempfile::tempdir().unwrap();
        let file = KeyFile::new(directory.path());
        let error = chain(&file.read_or_make(ClusterAge::Encrypted).unwrap_err());
        for part in ["keys.json is missing", "put it back from", "standby"] {
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(file.read().unwrap(), None);
        let made = file.read_or_make(ClusterAge::Running).unwrap();
        assert_eq!(made.names().writer, None);
    }

    #[test]
    fn a_damaged_file_is_reported_and_never_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let file = KeyFile::new(directory.path());
        std::fs::write(file.path(), "{\"keys\": [canary").unwrap();
        let error = chain(&file.read_or_make(ClusterAge::New).unwrap_err());
        assert!(
            error.contains("keys.json") && !error.contains("canary"),
            "{error}"
        );
        assert!(
            std::fs::read_to_string(file.path())
                .unwrap()
                .contains("canary")
        );
    }
}
