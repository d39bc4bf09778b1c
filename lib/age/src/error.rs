//! Errors of encryption.

use std::io;

/// The reason why a file could not be encrypted or decrypted. No variant contains a part of a key.
#[derive(Debug, thiserror::Error)]
pub enum AgeError {
    /// The system did not give random bytes.
    #[error("cannot get random bytes from the system")]
    Random,
    /// It is not an age file, or has an unsupported version or form.
    #[error("cannot read it as an age file, version 1: {0}")]
    Format(&'static str),
    /// The file is encrypted to other recipients.
    #[error(
        "the key does not fit: the file is encrypted to other recipients; name the file with the key of one of them"
    )]
    NoMatch,
    /// The header was modified.
    #[error("the encryption's header was changed")]
    Header,
    /// The content was modified or is truncated.
    #[error("the encrypted content was changed or is cut short")]
    Content,
    /// A recipient is a point of small order: everyone could read the file.
    #[error("the recipient {0} is not a usable public key")]
    WeakRecipient(String),
    /// A key file contains no key.
    #[error("it has no line that begins with AGE-SECRET-KEY-1; `age-keygen` makes such a file")]
    NoIdentity,
    /// A key is malformed.
    #[error("line {0} is not an age secret key: a character is wrong or missing")]
    Identity(usize),
    /// Reading or writing failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<AgeError> for io::Error {
    fn from(error: AgeError) -> Self {
        match error {
            AgeError::Io(error) => error,
            other => io::Error::new(io::ErrorKind::InvalidData, other),
        }
    }
}
