//! Errors of the encrypted file.

use std::path::PathBuf;

use halite_age::AgeError;

/// The reason why the encrypted file cannot be read or written. No variant contains a secret.
#[derive(Debug, thiserror::Error)]
pub enum SecretFileError {
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] halite_durable::Error),
    /// The file of an identity contains no key.
    #[error(
        "cannot use the identity {}; put the right file back, or remove it and run `ctl secrets recover --key FILE` with the key \
         of a recovery recipient",
        path.display()
    )]
    Identity {
        /// The file of the identity.
        path: PathBuf,
        /// The reason.
        source: AgeError,
    },
    /// This host has no identity.
    #[error(
        "cannot decrypt {}: its identity {} is missing on this host; put it back, or run `ctl secrets recover --key FILE` here with \
         the key of another recipient; without any key, remove the file and write the values again with `ctl secrets \
         edit`{recipients}",
        path.display(), identity.display()
    )]
    NoIdentity {
        /// The encrypted file.
        path: PathBuf,
        /// The missing file.
        identity: PathBuf,
        /// The recorded recipients, as the end of the message.
        recipients: String,
    },
    /// The file is encrypted to others.
    #[error(
        "cannot decrypt {}: it is not encrypted to the identity {} of this host; put the right identity there, or run \
         `ctl secrets recover --key FILE` here with the key of a recipient; without any key, remove the file and write the values \
         again with `ctl secrets edit`{recipients}",
        path.display(), identity.display()
    )]
    NoMatch {
        /// The encrypted file.
        path: PathBuf,
        /// The file of the identity.
        identity: PathBuf,
        /// The recorded recipients, as the end of the message.
        recipients: String,
    },
    /// None of the operator's keys decrypts the file.
    #[error(
        "cannot decrypt {} with this key; name the file with the key of a recipient{recipients}",
        path.display()
    )]
    WrongKey {
        /// The encrypted file.
        path: PathBuf,
        /// The recorded recipients, as the end of the message.
        recipients: String,
    },
    /// The file is damaged.
    #[error("cannot decrypt {}; put it back from a backup", path.display())]
    Damaged {
        /// The encrypted file.
        path: PathBuf,
        /// The reason.
        source: AgeError,
    },
    /// The content cannot be encrypted.
    #[error("cannot encrypt {}", path.display())]
    Encrypt {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: AgeError,
    },
    /// A line of the list of recipients is malformed.
    #[error(
        "cannot use {}: line {line} is not an age recipient; correct it, or remove the file: the next write makes it again, and \
         standbys send theirs when they connect",
        path.display()
    )]
    Recipients {
        /// The list.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// Another process has changed the values.
    #[error(
        "another command has changed {} meanwhile, and nothing was written; run this command again",
        .0.display()
    )]
    Changed(PathBuf),
    /// The encrypted file does not exist.
    #[error("there is no {}; `ctl secrets edit` and `ctl secrets encrypt` make it", .0.display())]
    Missing(PathBuf),
}
