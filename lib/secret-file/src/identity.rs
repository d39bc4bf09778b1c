//! The identities of this host: the present one, and the next one during a rotation.

use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use halite_age::Identity;
use halite_durable::{Error, files};

use crate::error::SecretFileError;

/// The directory of the identities, below the master's.
const DIRECTORY: &str = "secrets";
const IDENTITY: &str = "identity";
const NEXT: &str = "identity.next";
const PRIVATE: u32 = 0o600;

/// The files of the identities of one host.
#[derive(Debug, Clone)]
pub(crate) struct IdentityFiles {
    directory: PathBuf,
}

impl IdentityFiles {
    /// The files below the directory of a master or standby.
    pub fn new(state_dir: &Path) -> Self {
        Self {
            directory: state_dir.join(DIRECTORY),
        }
    }

    /// The path of the present identity.
    pub fn path(&self) -> PathBuf {
        self.directory.join(IDENTITY)
    }

    fn next_path(&self) -> PathBuf {
        self.directory.join(NEXT)
    }

    /// The present identity; `None` if there is none.
    pub fn present(&self) -> Result<Option<Identity>, SecretFileError> {
        read(&self.path())
    }

    /// The present identity, which is made if there is none.
    pub fn present_or_new(&self) -> Result<Identity, SecretFileError> {
        self.read_or_make(&self.path())
    }

    /// The next identity of a rotation, which is made if there is none.
    pub fn next_or_new(&self) -> Result<Identity, SecretFileError> {
        self.read_or_make(&self.next_path())
    }

    /// All identities with which this host decrypts.
    pub fn all(&self) -> Result<Vec<Identity>, SecretFileError> {
        // First the next one: a rotation that ends in between puts it in the place of the present
        // one, which would otherwise be neither of the two.
        let next = read(&self.next_path())?;
        let both = [self.present()?, next];
        Ok(both.into_iter().flatten().collect())
    }

    /// Puts the next identity in the place of the present one.
    pub fn replace(&self) -> Result<(), SecretFileError> {
        Ok(files::publish(&self.next_path(), &self.path())?)
    }

    fn read_or_make(&self, path: &Path) -> Result<Identity, SecretFileError> {
        if let Some(found) = read(path)? {
            return Ok(found);
        }
        let made = Identity::generate().map_err(|source| SecretFileError::Identity {
            path: path.to_owned(),
            source,
        })?;
        self.make_directory()?;
        let text = made.to_text();
        files::replace(path, PRIVATE, text.as_bytes())?;
        Ok(made)
    }

    /// Makes the private directory.
    pub fn make_directory(&self) -> Result<(), SecretFileError> {
        let mut builder = std::fs::DirBuilder::new();
        let made = builder
            .recursive(true)
            .mode(0o700)
            .create(&self.directory)
            .map_err(Error::file("make", &self.directory));
        made?;
        Ok(files::sync_parent(&self.directory)?)
    }
}

fn read(path: &Path) -> Result<Option<Identity>, SecretFileError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::file("read", path)(error).into()),
    };
    let keys = Identity::parse_file(&text).map_err(|source| SecretFileError::Identity {
        path: path.to_owned(),
        source,
    })?;
    Ok(keys.into_iter().next())
}
