//! Errors of key files.

use std::io;

use ring::error::KeyRejected;
use scrypt::errors::{InvalidOutputLen, InvalidParams};

use super::NOT_AFTER;

/// The reason why a text is not a key, or a key cannot be used. The errors of ring and scrypt are
/// not sources: without its feature `std`, neither crate implements the trait.
#[derive(Debug, thiserror::Error)]
pub enum InvalidKey {
    /// The text is not a public key.
    #[error(
        "it should be a public key of minisign but is {kind}: {}",
        remedy(kind)
    )]
    NotPublic {
        /// The kind of the text, judging by its beginning.
        kind: &'static str,
    },
    /// The file of a public key is not UTF-8.
    #[error("it should be a public key of minisign but is not text")]
    PublicText(#[source] std::str::Utf8Error),
    /// The expiry in the comment of a public key is malformed.
    #[error(
        "the expiry in its comment cannot be read, `{word}`: write `{NOT_AFTER}=2027-12-31`, once"
    )]
    NotAfter {
        /// The word that should be an expiry.
        word: String,
    },
    /// The text is not a secret key.
    #[error(
        "it should be a secret key of minisign but is {kind}: name the file that `-G` or `key generate` made"
    )]
    NotSecret {
        /// The kind of the text, judging by its beginning.
        kind: &'static str,
    },
    /// The file of a secret key cannot be read as text.
    #[error("it should be a secret key of minisign")]
    SecretText(#[source] io::Error),
    /// The key is encrypted with another key derivation.
    #[error("its key derivation is not scrypt")]
    Derivation,
    /// The key derivation exceeds the limit.
    #[error("its key derivation requires more than 1 GiB of memory")]
    Memory,
    /// The parameters of the key derivation are invalid.
    #[error("its key derivation cannot be computed: {0}")]
    Parameters(InvalidParams),
    /// The length of the derived key is invalid.
    #[error("its key derivation cannot be computed: {0}")]
    Length(InvalidOutputLen),
    /// The key has too few bytes.
    #[error("it is cut off")]
    CutOff,
    /// The checksum of an unencrypted key is wrong.
    #[error("it is damaged: its checksum is wrong")]
    Checksum,
    /// The checksum of a decrypted key is wrong.
    #[error("this is not its password")]
    Password,
    /// The two halves of the key do not belong together.
    #[error("it is damaged: its public half does not belong to its secret one")]
    Halves,
    /// The system provided no random numbers for a new key.
    #[error("the system provides no random numbers")]
    Random,
    /// A new key is not valid.
    #[error("a new key cannot be made: {0}")]
    New(KeyRejected),
}

fn remedy(kind: &str) -> &'static str {
    match kind {
        "a secret key of minisign" => "it must not be here; put the .pub file that belongs to it",
        _ => "put the .pub file of the signing key",
    }
}
