//! The keys that encrypt objects in etcd, in a file beside the CAs.
//!
//! The file has a directory of its own, which a standby's feed watches: a standby has each key before
//! a step that uses it has ended. It is one of the saved files, so that a restored cluster can read
//! its Secrets.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use halite_errors::chain;
use halite_pillar::encryption_keys::{EncryptionKeys, KEYS_FILE};
use halite_proto::pki;

use crate::ca::{CaError, ContentError, files};

/// The length of a key, in bytes (XSalsa20 and Poly1305).
const LENGTH: usize = 32;

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
    /// The file cannot be read or used. It is never replaced then: without its keys, objects in etcd
    /// could not be read.
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

    /// Reads the keys, and makes the first one if there is none. With `is_new`, no API server runs
    /// yet, so it may encrypt at once.
    ///
    /// # Errors
    /// The file cannot be read, used or written.
    pub fn read_or_make(&self, is_new: bool) -> Result<EncryptionKeys, CaError> {
        if let Some(keys) = self.read()? {
            return Ok(keys);
        }
        let keys = EncryptionKeys::first(new_secret()?, is_new);
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

/// Makes a key.
///
/// # Errors
/// The system has no randomness.
pub fn new_secret() -> Result<String, CaError> {
    let bytes: [u8; LENGTH] = pki::random()?;
    Ok(STANDARD.encode(bytes))
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
        let keys = file.read_or_make(true).unwrap();
        assert_eq!(file.read_or_make(false).unwrap(), keys);
        assert_eq!(file.read().unwrap(), Some(keys.clone()));
        let secret = keys.secret("encryption.first").unwrap();
        assert_eq!(STANDARD.decode(secret).unwrap().len(), LENGTH);
        let mode = std::fs::metadata(file.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_ne!(new_secret().unwrap(), new_secret().unwrap());
    }

    #[test]
    fn a_damaged_file_is_reported_and_never_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let file = KeyFile::new(directory.path());
        std::fs::write(file.path(), "{\"keys\": [canary").unwrap();
        let error = chain(&file.read_or_make(true).unwrap_err());
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
