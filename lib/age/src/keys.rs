//! Key pairs, and the wrapping of a file's key for a recipient.

use halite_names::{AgeRecipient, bech32};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use x25519_dalek::{X25519_BASEPOINT_BYTES, x25519};
use zeroize::Zeroizing;

use super::FILE_KEY;
use super::error::AgeError;
use super::kdf::{derive, random};

/// The prefix of secret keys, in lower case.
const SECRET: &str = "age-secret-key-";
const INFO: &str = "age-encryption.org/v1/X25519";
/// Bytes of a wrapped key: the key and its tag.
pub(super) const WRAPPED: usize = FILE_KEY + 16;

/// A secret key, with which files can be decrypted. It has no `Debug`.
pub struct Identity(Zeroizing<[u8; 32]>);

impl Identity {
    /// Makes a new key.
    ///
    /// # Errors
    /// The system provides no random bytes.
    pub fn generate() -> Result<Self, AgeError> {
        Ok(Self(random()?))
    }

    /// Reads the keys in the text of a file made by `age-keygen`: one per line, with comments.
    ///
    /// # Errors
    /// There is no key, or a line is invalid.
    pub fn parse_file(text: &str) -> Result<Vec<Self>, AgeError> {
        let mut found = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let malformed = || AgeError::Identity(number + 1);
            if line.chars().any(|c| c.is_ascii_lowercase()) {
                return Err(malformed());
            }
            let secret = bech32::decode(SECRET, line).ok_or_else(malformed)?;
            found.push(Self(Zeroizing::new(secret)));
        }
        if found.is_empty() {
            return Err(AgeError::NoIdentity);
        }
        Ok(found)
    }

    /// The key as `age-keygen` writes it: a secret.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        Zeroizing::new(bech32::encode(SECRET, &self.0).to_ascii_uppercase())
    }

    /// The recipient whose files this key decrypts.
    #[must_use]
    pub fn recipient(&self) -> AgeRecipient {
        AgeRecipient::from_key(x25519(*self.0, X25519_BASEPOINT_BYTES))
    }

    /// The key of a file from a stanza; `None` if it is for another recipient.
    ///
    /// # Errors
    /// The share results in a publicly known secret.
    pub(super) fn unwrap(
        &self,
        share: [u8; 32],
        body: &[u8],
    ) -> Result<Option<Zeroizing<[u8; FILE_KEY]>>, AgeError> {
        let shared = agree(&self.0, share);
        let shared = shared.ok_or(AgeError::Format("a recipient's share is of small order"))?;
        let mut body = Zeroizing::new(body.to_vec());
        let cipher = wrapping(&shared, &share, self.recipient().key());
        let opened = cipher.and_then(|cipher| {
            let opened = cipher.open_in_place(zero(), Aad::empty(), &mut body);
            opened.ok()?.as_ref().try_into().ok()
        });
        Ok(opened.map(Zeroizing::new))
    }
}

/// Wraps the key of a file for a recipient: returns the share of an ephemeral key pair, and the
/// body of the stanza.
pub(super) fn wrap(
    recipient: &AgeRecipient,
    file_key: &[u8; FILE_KEY],
) -> Result<([u8; 32], Vec<u8>), AgeError> {
    let weak = || AgeError::WeakRecipient(recipient.to_string());
    let once: Zeroizing<[u8; 32]> = random()?;
    let share = x25519(*once, X25519_BASEPOINT_BYTES);
    let shared = agree(&once, *recipient.key()).ok_or_else(weak)?;
    let cipher = wrapping(&shared, &share, recipient.key()).ok_or_else(weak)?;
    let mut body = file_key.to_vec();
    let sealed = cipher.seal_in_place_append_tag(zero(), Aad::empty(), &mut body);
    sealed.map_err(|_| AgeError::Format("the key of the file cannot be wrapped"))?;
    Ok((share, body))
}

/// The shared secret; `None` if the other side forced a publicly known one.
fn agree(own: &[u8; 32], other: [u8; 32]) -> Option<Zeroizing<[u8; 32]>> {
    let shared = Zeroizing::new(x25519(*own, other));
    (*shared != [0; 32]).then_some(shared)
}

fn wrapping(shared: &[u8; 32], share: &[u8; 32], recipient: &[u8; 32]) -> Option<LessSafeKey> {
    let salt = [&share[..], &recipient[..]].concat();
    let key = derive(shared, &salt, INFO);
    UnboundKey::new(&CHACHA20_POLY1305, &*key)
        .ok()
        .map(LessSafeKey::new)
}

/// The nonce of a key that is used only once.
fn zero() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}
