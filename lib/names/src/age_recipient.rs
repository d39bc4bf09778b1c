//! A recipient of encrypted files.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{REPEATED, bech32};

const PREFIX: &str = "age";
/// The beginning of a secret key.
const SECRET: &str = "AGE-SECRET-KEY-";

/// A public key of age, of the kind X25519: `age1` and 58 characters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AgeRecipient([u8; 32]);

/// A text that is not such a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not an age recipient: `age1` and 58 characters in lower case, as `age-keygen` prints it; keys of plugins and \
     SSH keys are not supported"
)]
pub struct AgeRecipientError(String);

impl AgeRecipient {
    /// The recipient with this public key.
    #[must_use]
    pub fn from_key(key: [u8; 32]) -> Self {
        Self(key)
    }

    /// The public key.
    #[must_use]
    pub fn key(&self) -> &[u8; 32] {
        &self.0
    }
}

impl FromStr for AgeRecipient {
    type Err = AgeRecipientError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || {
            // An error must not repeat a secret key.
            let is_secret = text.to_ascii_uppercase().starts_with(SECRET);
            let shown = if is_secret { SECRET } else { text };
            AgeRecipientError(shown.chars().take(REPEATED).collect())
        };
        if text.chars().any(|c| c.is_ascii_uppercase()) {
            return Err(refused());
        }
        bech32::decode(PREFIX, text).map(Self).ok_or_else(refused)
    }
}

impl TryFrom<String> for AgeRecipient {
    type Error = AgeRecipientError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<AgeRecipient> for String {
    fn from(recipient: AgeRecipient) -> Self {
        recipient.to_string()
    }
}

impl fmt::Display for AgeRecipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&bech32::encode(PREFIX, &self.0))
    }
}

impl fmt::Debug for AgeRecipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the age specification.
    const KEY: &str = "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";

    #[test]
    fn a_recipient_has_one_text() {
        let recipient: AgeRecipient = KEY.parse().unwrap();
        assert_eq!(recipient.to_string(), KEY);
        for zero_or_ff in [[0; 32], [0xff; 32]] {
            let recipient = AgeRecipient::from_key(zero_or_ff);
            assert_eq!(recipient.to_string().parse(), Ok(recipient));
        }
    }

    #[test]
    fn every_slip_is_found() {
        assert!(KEY.to_uppercase().parse::<AgeRecipient>().is_err());
        for place in 0..KEY.len() {
            let mut slip = KEY.to_owned();
            let other = if &KEY[place..=place] == "q" { "p" } else { "q" };
            slip.replace_range(place..=place, other);
            assert!(slip.parse::<AgeRecipient>().is_err(), "{slip}");
            slip.remove(place);
            assert!(slip.parse::<AgeRecipient>().is_err(), "{slip}");
        }
        let secret = "AGE-SECRET-KEY-1QQQSYQCYQ5RQWZQFPG9SCRGWPUGPZYSNZS23V9CCRYDPK8QARC0SQF6CVH";
        let error = secret.parse::<AgeRecipient>().unwrap_err().to_string();
        assert!(!error.contains("1QQQ"), "{error}");
        for bad in ["", "age", "age1", "ssh-ed25519 AAAA", "age1ä"] {
            assert!(bad.parse::<AgeRecipient>().is_err(), "{bad}");
        }
    }
}
