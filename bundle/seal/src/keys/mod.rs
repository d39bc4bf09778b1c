//! Keys in `minisign`'s file formats: secret keys with their passwords, and trusted public keys.

mod directory;
mod error;
mod kdf;
mod kind;
mod password;
mod public;
mod secret;
pub(crate) mod signature;
mod signer;
mod trust;
mod trust_store;

use std::fmt;

use serde::{Serialize, Serializer};

pub use error::InvalidKey;
pub use password::Password;
pub use public::PublicKey;
pub use secret::{SecretKey, generate, load_all};
pub use signer::Signer;
pub use trust::{Trust, Untrusted};

/// The keyword in a public key's comment for the time until which the key is trusted.
const NOT_AFTER: &str = "not-after";

/// The id of a key, by which a signature names its key. It finds a key and proves nothing: anyone
/// can make a key with a given id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub(super) [u8; 8]);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016X}", u64::from_le_bytes(self.0))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyId({self})")
    }
}

impl Serialize for KeyId {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl KeyId {
    /// Parses an id as `minisign` displays it, without leading zeros.
    fn parse(text: &str) -> Option<Self> {
        let digits = !text.is_empty()
            && text.len() <= 16
            && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        let id = u64::from_str_radix(text, 16).ok().filter(|_| digits)?;
        Some(Self(id.to_le_bytes()))
    }
}
