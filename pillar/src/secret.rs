//! Secrets: how they are held, and the placeholders that stand for them wherever something is
//! stored or shown.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

/// What a placeholder begins with; the path and two colons follow.
pub const PREFIX: &str = "halite-secret::";
const END: &str = "::";

/// What is shown in place of a secret.
pub const HIDDEN: &str = "(secret)";

/// A secret text. It shows itself neither in `Debug` nor when written out.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct SecretText(String);

impl SecretText {
    /// Wraps a text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The secret itself, for the one place that needs it.
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

/// The placeholder for the secret at a path below `halite` in the pillar, for example
/// `pki.kubernetes.key`.
#[must_use]
pub fn placeholder(path: &str) -> String {
    format!("{PREFIX}{path}{END}")
}

/// Why placeholders could not be replaced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// Nothing stands at the path, or this minion may not have it.
    #[error(
        "there is no secret {0:?} for this minion; use it only in states of hosts that have its role"
    )]
    Unknown(String),
    /// A template changed the placeholder.
    #[error(
        "a placeholder of a secret was cut or changed; use secrets only whole, without filters"
    )]
    Damaged,
    /// A placeholder stands in a mapping's key.
    #[error("the secret {0:?} stands in a mapping's key; only values may hold secrets")]
    InKey(String),
}

/// Replaces every placeholder in the texts of a value. What a secret itself holds is not looked at
/// again. Returns the paths that were replaced.
///
/// # Errors
/// The first placeholder that cannot be replaced; the value may be half filled then and must be
/// thrown away.
pub fn fill(
    value: &mut Value,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<BTreeSet<String>, SecretError> {
    let mut used = BTreeSet::new();
    walk(value, &mut |text| {
        let mut out = String::new();
        let mut rest = text.as_str();
        while let Some((before, path, after)) = next(rest)? {
            out.push_str(before);
            out.push_str(&lookup(path).ok_or_else(|| SecretError::Unknown(path.to_owned()))?);
            used.insert(path.to_owned());
            rest = after;
        }
        if rest.len() != text.len() {
            out.push_str(rest);
            *text = out;
        }
        Ok(())
    })?;
    Ok(used)
}

/// The paths of all whole placeholders in a value, keys included.
#[must_use]
pub fn secret_paths(value: &Value) -> BTreeSet<String> {
    fn texts(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::String(text) => collect(text, found),
            Value::Array(items) => items.iter().for_each(|item| texts(item, found)),
            Value::Object(map) => map.iter().for_each(|(key, item)| {
                collect(key, found);
                texts(item, found);
            }),
            _ => {}
        }
    }
    fn collect(text: &str, found: &mut BTreeSet<String>) {
        let mut rest = text;
        while let Ok(Some((_, path, after))) = next(rest) {
            found.insert(path.to_owned());
            rest = after;
        }
    }
    let mut found = BTreeSet::new();
    texts(value, &mut found);
    found
}

/// Hides what must not be shown: each given secret, wherever it stands in a text (also line by
/// line, as in a diff), and in its JSON form. Secrets shorter than four characters are only hidden
/// as whole texts.
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
    let _: Result<(), SecretError> = walk(value, &mut |text| {
        for needle in &needles {
            if (needle.len() >= 4 && text.contains(needle.as_str())) || text == needle {
                *text = text.replace(needle.as_str(), HIDDEN);
            }
        }
        Ok(())
    });
}

/// A line of its own says something: PEM's frames do not.
fn worth_hiding(line: &str) -> bool {
    line.len() >= 8 && !line.starts_with("-----")
}

fn walk(
    value: &mut Value,
    change: &mut dyn FnMut(&mut String) -> Result<(), SecretError>,
) -> Result<(), SecretError> {
    match value {
        Value::String(text) => change(text),
        Value::Array(items) => items.iter_mut().try_for_each(|item| walk(item, change)),
        Value::Object(map) => {
            if let Some(key) = map.keys().find(|key| key.contains(PREFIX)) {
                let path = next(key)?.map_or_else(String::new, |(_, path, _)| path.to_owned());
                return Err(SecretError::InKey(path));
            }
            map.values_mut().try_for_each(|item| walk(item, change))
        }
        _ => Ok(()),
    }
}

/// The next placeholder of a text: what stands before it, its path, and the rest.
fn next(text: &str) -> Result<Option<(&str, &str, &str)>, SecretError> {
    let Some((before, rest)) = text.split_once(PREFIX) else {
        return Ok(None);
    };
    let (path, after) = rest.split_once(END).ok_or(SecretError::Damaged)?;
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if path.is_empty() || !path.chars().all(fits) {
        return Err(SecretError::Damaged);
    }
    Ok(Some((before, path, after)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fills_every_text_once() {
        let mut value = json!({"a": [format!("x{}y{}", placeholder("p.a"), placeholder("p.b"))], "n": 1, "plain": "::"});
        let used = fill(&mut value, &|path| {
            Some(format!("<{path} {}>", placeholder("p.c")))
        })
        .unwrap();
        let wanted = format!("x<p.a {0}>y<p.b {0}>", placeholder("p.c"));
        assert_eq!(value, json!({"a": [wanted], "n": 1, "plain": "::"}));
        assert_eq!(used.into_iter().collect::<Vec<_>>(), ["p.a", "p.b"]);
    }

    #[test]
    fn refuses_what_it_cannot_fill() {
        let none = |_: &str| None;
        assert_eq!(
            fill(&mut json!(placeholder("a")), &none),
            Err(SecretError::Unknown("a".into()))
        );
        assert_eq!(
            fill(&mut json!("halite-secret::pki.ku"), &none),
            Err(SecretError::Damaged)
        );
        assert_eq!(
            fill(&mut json!("halite-secret::a b::"), &none),
            Err(SecretError::Damaged)
        );
        assert_eq!(
            fill(&mut json!({placeholder("k"): 1}), &none),
            Err(SecretError::InKey("k".into()))
        );
    }

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
