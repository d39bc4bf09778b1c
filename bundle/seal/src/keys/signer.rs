//! The keys that signed an image.

use std::fmt;

use super::KeyId;

/// A key that signed an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signer {
    /// The key's id.
    pub key: KeyId,
    /// The key's name in the trust directory.
    pub name: Option<String>,
}

impl fmt::Display for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name} ({})", self.key),
            None => write!(f, "{}", self.key),
        }
    }
}
