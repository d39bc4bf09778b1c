//! Redaction: secrets are removed from what is stored or displayed.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

/// The text that is displayed in place of a secret.
pub const HIDDEN: &str = "(secret)";

/// Replaces each given secret in the texts of a value by [`HIDDEN`]: as a whole, each of its lines
/// (a diff shows them one by one), and its JSON form. Secrets shorter than four characters are only
/// replaced where they are the whole text.
pub fn redact<'a>(value: &mut Value, secrets: impl IntoIterator<Item = &'a str>) {
    let mut needles: BTreeSet<String> = BTreeSet::new();
    for secret in secrets {
        if secret.is_empty() {
            continue;
        }
        needles.insert(secret.to_owned());
        needles.extend(
            secret
                .lines()
                .map(str::trim)
                .filter(|line| worth_hiding(line))
                .map(str::to_owned),
        );
        if let Ok(json) = serde_json::to_string(secret) {
            needles.insert(json.trim_matches('"').to_owned());
        }
    }
    // The longest first: a line must not be hidden inside the whole.
    let mut needles: Vec<String> = needles.into_iter().collect();
    needles.sort_by_key(|needle| std::cmp::Reverse(needle.len()));
    replace(value, &needles);
}

/// Whether a line of a secret reveals something by itself; the frame lines of PEM do not.
fn worth_hiding(line: &str) -> bool {
    line.len() >= 8 && !line.starts_with("-----")
}

/// Replaces the needles in every text below, keys excepted: a secret is never filled into a key.
fn replace(value: &mut Value, needles: &[String]) {
    match value {
        Value::String(text) => {
            for needle in needles {
                if (needle.len() >= 4 && text.contains(needle.as_str())) || text == needle {
                    *text = text.replace(needle.as_str(), HIDDEN);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, needles)),
        Value::Object(map) => map.values_mut().for_each(|item| replace(item, needles)),
        _ => {}
    }
}

/// Removes a set of secrets, for example those that one minion may have.
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

    /// A redactor for the secrets of both.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        let mut secrets = self.secrets.clone();
        secrets.extend(
            other
                .secrets
                .iter()
                .filter(|secret| !self.secrets.contains(secret))
                .cloned(),
        );
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

    /// Removes the secrets from JSON text. Text that is not JSON becomes a JSON string.
    #[must_use]
    pub fn json(&self, json: &str) -> String {
        match serde_json::from_str::<Value>(json) {
            Ok(mut value) => {
                self.value(&mut value);
                value.to_string()
            }
            // The outcome must be JSON: readers parse it.
            Err(_) => Value::from(self.text(json)).to_string(),
        }
    }

    /// Removes the secrets from the texts of a value.
    pub fn value(&self, value: &mut Value) {
        redact(value, self.secrets.iter().map(String::as_str));
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redactor({} secrets)", self.secrets.len())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hides_a_secret_whole_by_line_and_in_json() {
        let secret = "-----BEGIN KEY-----\nMIIEabcdefgh\n-----END KEY-----\n";
        let mut value = json!({
            "whole": secret,
            "diff": "+MIIEabcdefgh\n",
            "json": serde_json::to_string(&json!({"k": secret})).unwrap(),
            "other": "nothing",
        });
        redact(&mut value, [secret]);
        assert!(!value.to_string().contains("MIIE"), "{value}");
        assert_eq!(value["other"], "nothing");
        assert_eq!(value["diff"], "+(secret)\n");
    }

    #[test]
    fn json_text_and_what_is_neither_lose_the_secret() {
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
