//! The encrypted file of one host.

use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};

use halite_age::{AgeError, Decryptor, Encryptor, Identity};
use halite_durable::{Error, FileLock, files};
use halite_names::AgeRecipient;
use halite_pillar::declaration::Declaration;
use halite_pillar::load::Texts;
use halite_pillar::sealed::SEALED_FILE;
use halite_secrets::SecretText;

use crate::error::SecretFileError;
use crate::identity::IdentityFiles;
use crate::recipients::{RECIPIENTS_FILE, RecipientList};

/// The mode of the encrypted file.
const PRIVATE: u32 = 0o600;
/// The mode of the list of recipients, which are public keys.
const PUBLIC: u32 = 0o644;

/// The encrypted file in an operator's directory, with the identity of this host.
#[derive(Debug, Clone)]
pub struct SecretFile {
    path: PathBuf,
    list: PathBuf,
    pub(crate) identities: IdentityFiles,
}

impl SecretFile {
    /// The file in an operator's directory, as the master or standby with this state directory
    /// decrypts it. Nothing is read or written yet.
    #[must_use]
    pub fn new(config_dir: &Path, state_dir: &Path) -> Self {
        Self {
            path: config_dir.join(SEALED_FILE),
            list: config_dir.join(RECIPIENTS_FILE),
            identities: IdentityFiles::new(state_dir),
        }
    }

    /// The path of the encrypted file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of this host's identity.
    #[must_use]
    pub fn identity_path(&self) -> PathBuf {
        self.identities.path()
    }

    /// Returns whether the encrypted file exists.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.path.exists()
    }

    /// The recipient of this host, whose identity is made if there is none.
    ///
    /// # Errors
    /// The identity cannot be read or written.
    pub fn own_recipient(&self) -> Result<AgeRecipient, SecretFileError> {
        let _lock = self.lock()?;
        Ok(self.identities.present_or_new()?.recipient())
    }

    /// The recorded recipients.
    ///
    /// # Errors
    /// The list cannot be read.
    pub fn recipients(&self) -> Result<RecipientList, SecretFileError> {
        match std::fs::read_to_string(&self.list) {
            Ok(text) => RecipientList::parse(&text, &self.list),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(RecipientList::default()),
            Err(error) => Err(Error::file("read", &self.list)(error).into()),
        }
    }

    /// Decrypts the content of the file with this host's identity.
    ///
    /// # Errors
    /// This host has no identity, or another one, or the content is damaged.
    pub fn open(&self, bytes: &[u8]) -> Result<SecretText, SecretFileError> {
        let identities = self.identities.all()?;
        let (path, identity) = (self.path.clone(), self.identity_path());
        if identities.is_empty() {
            return Err(SecretFileError::NoIdentity {
                path,
                identity,
                recipients: self.phrase(),
            });
        }
        self.decrypt(bytes, &identities)
            .map_err(|error| match error {
                AgeError::NoMatch => SecretFileError::NoMatch {
                    path,
                    identity,
                    recipients: self.phrase(),
                },
                source => SecretFileError::Damaged { path, source },
            })
    }

    /// Decrypts the content of the file with other keys, such as those of a recovery.
    ///
    /// # Errors
    /// None of the keys decrypts it, or the content is damaged.
    pub fn open_with(
        &self,
        bytes: &[u8],
        keys: &[Identity],
    ) -> Result<SecretText, SecretFileError> {
        let path = self.path.clone();
        self.decrypt(bytes, keys).map_err(|error| match error {
            AgeError::NoMatch => SecretFileError::WrongKey {
                path,
                recipients: self.phrase(),
            },
            source => SecretFileError::Damaged { path, source },
        })
    }

    /// Adds the plain text to documents that were read from the operator's directory. If a rotation
    /// has replaced the encrypted file since, its content is replaced as well.
    ///
    /// # Errors
    /// See [`SecretFile::open`].
    pub fn open_in(&self, texts: &mut Texts) -> Result<(), SecretFileError> {
        if let Some(sealed) = &mut texts.sealed {
            let (bytes, plain) = self.open_now(sealed.bytes.clone())?;
            sealed.bytes = bytes;
            sealed.plain = Some(plain);
        }
        Ok(())
    }

    /// The plain text of the file; `None` if the file does not exist.
    ///
    /// # Errors
    /// See [`SecretFile::open`].
    pub fn read(&self) -> Result<Option<SecretText>, SecretFileError> {
        let bytes = self.bytes()?;
        let opened = bytes.map(|bytes| self.open_now(bytes)).transpose()?;
        Ok(opened.map(|(_, plain)| plain))
    }

    /// Decrypts a content that was read from the file before. If no identity fits, a rotation may
    /// have replaced both since: then it decrypts the present content, and returns it as well.
    fn open_now(&self, bytes: Vec<u8>) -> Result<(Vec<u8>, SecretText), SecretFileError> {
        let refused = match self.open(&bytes) {
            Ok(plain) => return Ok((bytes, plain)),
            Err(error) => error,
        };
        if !matches!(refused, SecretFileError::NoMatch { .. }) {
            return Err(refused);
        }
        match self.bytes()? {
            Some(bytes) => self.open(&bytes).map(|plain| (bytes, plain)),
            None => Err(refused),
        }
    }

    fn bytes(&self) -> Result<Option<Vec<u8>>, SecretFileError> {
        match std::fs::read(&self.path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::file("read", &self.path)(error).into()),
        }
    }

    /// Encrypts a plain text to the recipients that the declaration requires, and records them.
    ///
    /// # Errors
    /// A file cannot be read or written; the old content stays.
    pub fn write(&self, plain: &str, declaration: &Declaration) -> Result<(), SecretFileError> {
        let _lock = self.lock()?;
        self.write_locked(plain, declaration)
    }

    /// Like [`SecretFile::write`], if the plain text is still `before`; `None` if there was no
    /// file. If it is the new one already, an earlier call has failed in the middle, and is
    /// completed.
    ///
    /// # Errors
    /// Another process has changed the plain text; see also [`SecretFile::write`].
    pub fn replace(
        &self,
        before: Option<&SecretText>,
        plain: &str,
        declaration: &Declaration,
    ) -> Result<(), SecretFileError> {
        let _lock = self.lock()?;
        let present = self.read()?;
        let is_new = (present.as_ref()).is_some_and(|present| present.reveal() == plain);
        if present.as_ref() != before && !is_new {
            return Err(SecretFileError::Changed(self.path.clone()));
        }
        self.write_locked(plain, declaration)
    }

    fn write_locked(&self, plain: &str, declaration: &Declaration) -> Result<(), SecretFileError> {
        let own = self.identities.present_or_new()?.recipient();
        let required = RecipientList::required(declaration, own, &self.recipients()?);
        self.seal(plain, &required)
    }

    /// Records the recipient of a standby, and encrypts the file also to it. Returns `false` if it
    /// was recorded before.
    ///
    /// # Errors
    /// The file cannot be decrypted or written. The recipient is recorded last, so that another
    /// call tries again.
    pub fn add_host(
        &self,
        name: &str,
        recipient: AgeRecipient,
        declaration: &Declaration,
    ) -> Result<bool, SecretFileError> {
        let _lock = self.lock()?;
        let mut recorded = self.recipients()?;
        if !recorded.set_host(name, recipient) {
            return Ok(false);
        }
        match self.read()? {
            Some(plain) => {
                let own = self.identities.present_or_new()?.recipient();
                let required = RecipientList::required(declaration, own, &recorded);
                self.seal(plain.reveal(), &required)?;
            }
            None => self.record(&recorded)?,
        }
        Ok(true)
    }

    /// Encrypts the file to this host, whose identity does not decrypt it, with the key of another
    /// recipient. Without a declaration, the other recipients stay the recorded ones.
    ///
    /// # Errors
    /// None of the keys decrypts the file, or a file cannot be written.
    pub fn recover(
        &self,
        keys: &[Identity],
        declaration: Option<&Declaration>,
    ) -> Result<(), SecretFileError> {
        let _lock = self.lock()?;
        let bytes = self.bytes()?;
        let bytes = bytes.ok_or_else(|| SecretFileError::Missing(self.path.clone()))?;
        let plain = self.open_with(&bytes, keys)?;
        let own = self.identities.present_or_new()?.recipient();
        let recorded = self.recipients()?;
        let required = match declaration {
            Some(declaration) => RecipientList::required(declaration, own, &recorded),
            None => {
                let mut all = recorded;
                all.set_host("master", own);
                all
            }
        };
        self.seal(plain.reveal(), &required)
    }

    /// Encrypts and writes the file, then the list: a reader of the list never finds a recipient
    /// that cannot decrypt the file.
    pub(crate) fn seal(
        &self,
        plain: &str,
        recipients: &RecipientList,
    ) -> Result<(), SecretFileError> {
        let sealed = encrypt(plain, &recipients.keys());
        let sealed = sealed.map_err(|source| SecretFileError::Encrypt {
            path: self.path.clone(),
            source,
        })?;
        files::replace(&self.path, PRIVATE, &sealed)?;
        self.record(recipients)
    }

    pub(crate) fn record(&self, recipients: &RecipientList) -> Result<(), SecretFileError> {
        Ok(files::replace(
            &self.list,
            PUBLIC,
            recipients.text().as_bytes(),
        )?)
    }

    fn decrypt(&self, bytes: &[u8], keys: &[Identity]) -> Result<SecretText, AgeError> {
        let mut plain = Vec::new();
        Decryptor::new(bytes, keys)?
            .read_to_end(&mut plain)
            .map_err(|_| AgeError::Content)?;
        let text = String::from_utf8(plain);
        let text = text.map_err(|_| AgeError::Format("its content is not UTF-8"))?;
        Ok(SecretText::new(text))
    }

    /// One writer at a time, on this host.
    pub(crate) fn lock(&self) -> Result<FileLock, SecretFileError> {
        self.identities.make_directory()?;
        Ok(FileLock::wait(&self.identity_path(), &mut |_| {})?)
    }

    /// The recorded recipients, as the end of a message.
    fn phrase(&self) -> String {
        self.recipients().unwrap_or_default().phrase()
    }
}

fn encrypt(plain: &str, recipients: &[AgeRecipient]) -> Result<Vec<u8>, AgeError> {
    let mut encryptor = Encryptor::new(Vec::new(), recipients)?;
    encryptor.write_all(plain.as_bytes())?;
    Ok(encryptor.finish()?)
}
