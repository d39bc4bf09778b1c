//! A secret as a value.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

use crate::redact::HIDDEN;

/// A secret text. `Debug` and `Serialize` write [`HIDDEN`] instead.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct SecretText(String);

impl SecretText {
    /// Wraps a text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The secret itself, for the place that uses it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl Serialize for SecretText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(HIDDEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_shows_itself_nowhere() {
        let secret = SecretText::new("hunter2");
        assert_eq!(format!("{secret:?}"), HIDDEN);
        assert_eq!(
            serde_json::to_string(&secret).unwrap(),
            format!("\"{HIDDEN}\"")
        );
        assert_eq!(secret.reveal(), "hunter2");
    }
}
