//! Signatures in the format of `minisign`: Ed25519 over the BLAKE2b-512 of the message.
//!
//! Source: "Signature format" in minisign's manual. This module reads and writes the format without
//! a crate: the only crate that can sign puts randomness into each signature, so no two builds
//! would be equal, and it panics on a comment signature that is too short. The curve, the hashes
//! and the key derivation come from crates.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use blake2::{Blake2b512, Digest as _};
use ring::signature::{ED25519, UnparsedPublicKey};

use super::{KeyId, PublicKey, SecretKey};

const UNTRUSTED: &str = "untrusted comment: ";
const TRUSTED: &str = "trusted comment: ";

/// A signature with the comment that it covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    key: KeyId,
    signature: [u8; 64],
    comment: String,
    /// The signature over signature and comment.
    global: [u8; 64],
}

/// The reason why a text is not a signature file.
#[derive(Debug, thiserror::Error)]
pub enum InvalidSignature {
    /// A line is missing.
    #[error("it has no line with the {0}")]
    NoLine(&'static str),
    /// A line is not base64.
    #[error("its {what} is not base64")]
    Base64 {
        /// The line's content.
        what: &'static str,
        /// The decoder's reason.
        source: base64::DecodeError,
    },
    /// A line has another length.
    #[error("its {what} has {found} bytes instead of {expected}")]
    Size {
        /// The line's content.
        what: &'static str,
        /// Its length in bytes.
        found: usize,
        /// The expected length in bytes.
        expected: usize,
    },
    /// The first line is not a comment.
    #[error("its first line does not begin with `{UNTRUSTED}`")]
    FirstLine,
    /// The third line is not a trusted comment.
    #[error("its third line does not begin with `{TRUSTED}`")]
    ThirdLine,
    /// There are more than four lines.
    #[error("it has data after its four lines")]
    TooLong,
    /// The signature is over the message itself, not over its hash.
    #[error("it was made in minisign's old form: sign again without `-l`")]
    OldForm,
    /// The algorithm is unknown.
    #[error("its algorithm is not minisign's `ED`")]
    Algorithm,
}

impl Signature {
    /// The id of the key that it names.
    pub fn key(&self) -> KeyId {
        self.key
    }

    /// Reads a signature file.
    pub fn parse(text: &str) -> Result<Self, InvalidSignature> {
        let mut lines = text.lines();
        let mut next = |what| lines.next().ok_or(InvalidSignature::NoLine(what));
        let untrusted = next("untrusted comment")?;
        let signature = decode::<74>(next("signature")?, "signature")?;
        let trusted = next("trusted comment")?;
        let global = decode::<64>(
            next("signature of the comment")?,
            "signature of the comment",
        )?;
        if !untrusted.starts_with(UNTRUSTED) {
            return Err(InvalidSignature::FirstLine);
        }
        let Some(comment) = trusted.strip_prefix(TRUSTED) else {
            return Err(InvalidSignature::ThirdLine);
        };
        if lines.next().is_some() {
            return Err(InvalidSignature::TooLong);
        }
        let [a, b, rest @ ..] = signature;
        match &[a, b] {
            b"ED" => {}
            b"Ed" => return Err(InvalidSignature::OldForm),
            _ => return Err(InvalidSignature::Algorithm),
        }
        let mut key = [0; 8];
        key.copy_from_slice(&rest[..8]);
        let mut signature = [0; 64];
        signature.copy_from_slice(&rest[8..]);
        Ok(Self {
            key: KeyId(key),
            signature,
            comment: comment.to_owned(),
            global,
        })
    }

    /// Returns whether this key made the signature, with its comment, for a message.
    pub fn is_by(&self, key: &PublicKey, message: &[u8]) -> bool {
        let key = UnparsedPublicKey::new(&ED25519, key.bytes());
        key.verify(&Blake2b512::digest(message), &self.signature)
            .is_ok()
            && key
                .verify(&with_comment(&self.signature, &self.comment), &self.global)
                .is_ok()
    }
}

/// Signs a message and returns the signature file.
pub fn sign(key: &SecretKey, message: &[u8], comment: &str) -> String {
    let signature = key.sign(&Blake2b512::digest(message));
    let global = key.sign(&with_comment(&signature, comment));
    let id = key.public().id();
    let signature = BASE64.encode([b"ED".as_slice(), &id.0, &signature].concat());
    let global = BASE64.encode(global);
    format!("{UNTRUSTED}signature by key {id}\n{signature}\n{TRUSTED}{comment}\n{global}\n")
}

fn with_comment(signature: &[u8], comment: &str) -> Vec<u8> {
    [signature, comment.as_bytes()].concat()
}

fn decode<const N: usize>(line: &str, what: &'static str) -> Result<[u8; N], InvalidSignature> {
    let bytes = BASE64
        .decode(line.trim())
        .map_err(|source| InvalidSignature::Base64 { what, source })?;
    let found = bytes.len();
    bytes.try_into().map_err(|_| InvalidSignature::Size {
        what,
        found,
        expected: N,
    })
}
