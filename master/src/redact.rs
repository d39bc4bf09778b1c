//! Redaction of returns. The state functions already keep the values of sensitive states out of
//! their returns; a text from a host that still contains one of its secrets loses it here, before
//! it is stored or shown.

use halite_pillar::secret::redact;
use serde_json::Value;

/// Removes the secrets that one minion may have.
#[derive(Default, Clone)]
pub struct Redactor {
    secrets: Vec<String>,
}

impl Redactor {
    /// A redactor for these texts.
    #[must_use]
    pub fn new(secrets: Vec<String>) -> Self {
        Self { secrets }
    }

    /// Removes the secrets from a text.
    #[must_use]
    pub fn text(&self, text: &str) -> String {
        let mut value = Value::from(text);
        self.value(&mut value);
        match value {
            Value::String(clean) => clean,
            other => other.to_string(),
        }
    }

    /// Removes the secrets from JSON text. A text that is no JSON becomes a JSON string.
    #[must_use]
    pub fn json(&self, json: &str) -> String {
        match serde_json::from_str::<Value>(json) {
            Ok(mut value) => {
                self.value(&mut value);
                value.to_string()
            }
            // The result must be JSON: readers parse it.
            Err(_) => Value::from(self.text(json)).to_string(),
        }
    }

    /// Removes the secrets from the texts of a value.
    pub fn value(&self, value: &mut Value) {
        redact(value, self.secrets.iter().map(String::as_str));
    }
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redactor({} secrets)", self.secrets.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_and_plain_text_lose_the_secret() {
        let redactor = Redactor::new(vec!["canary-secret\nsecond-line".into()]);
        assert!(
            !redactor
                .json(r#"{"a": ["x canary-secret y"], "b": "+second-line"}"#)
                .contains("canary")
        );
        let torn = redactor.json("{torn canary-secret");
        assert!(
            serde_json::from_str::<Value>(&torn).is_ok() && !torn.contains("canary"),
            "{torn}"
        );
        assert_eq!(redactor.text("nothing"), "nothing");
        assert!(!format!("{redactor:?}").contains("canary"));
    }
}
