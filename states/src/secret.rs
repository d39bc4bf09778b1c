//! Secrets as templates and low state see them: a reference that the master fills in when it sends
//! a job.
//!
//! A reference is the text `halite-secret::PATH::`, where PATH is the pillar path. It may be passed
//! on and put into texts; whatever would compute something from it (a hash, a cut, an encoding)
//! would compute it from the reference and is refused.

use serde_json::Value;

/// How a reference begins.
pub const PREFIX: &str = "halite-secret::";
/// How it ends.
pub const SUFFIX: &str = "::";

/// The reference to the secret at a pillar path.
#[must_use]
pub fn reference(path: &str) -> String {
    format!("{PREFIX}{path}{SUFFIX}")
}

/// The pillar path, if a text is exactly one reference.
#[must_use]
pub fn referenced(text: &str) -> Option<&str> {
    let path = text.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    is_path(path).then_some(path)
}

/// All pillar paths that a text refers to.
#[must_use]
pub fn references(text: &str) -> Vec<&str> {
    text.split(PREFIX)
        .skip(1)
        .filter_map(|rest| {
            rest.split_once(SUFFIX)
                .map(|(path, _)| path)
                .filter(|path| is_path(path))
        })
        .collect()
}

/// Whether a text holds a reference, whole or cut.
#[must_use]
pub fn mentions(text: &str) -> bool {
    text.contains(PREFIX)
}

/// Whether a value holds a reference anywhere.
#[must_use]
pub fn is_in(value: &Value) -> bool {
    match value {
        Value::String(text) => mentions(text),
        Value::Array(items) => items.iter().any(is_in),
        Value::Object(map) => map.iter().any(|(key, value)| mentions(key) || is_in(value)),
        _ => false,
    }
}

/// Puts the real values in place of the references, wherever they stand in a value.
///
/// # Errors
/// The pillar path of the first reference that `lookup` does not know.
pub fn fill(value: &mut Value, lookup: &dyn Fn(&str) -> Option<String>) -> Result<(), String> {
    match value {
        Value::String(text) if mentions(text) => {
            let mut filled = String::with_capacity(text.len());
            let mut parts = text.split(PREFIX);
            filled.push_str(parts.next().unwrap_or_default());
            for part in parts {
                match part.split_once(SUFFIX) {
                    Some((path, rest)) if is_path(path) => {
                        filled.push_str(&lookup(path).ok_or_else(|| path.to_owned())?);
                        filled.push_str(rest);
                    }
                    _ => return Err(part.chars().take(60).collect()),
                }
            }
            *text = filled;
            Ok(())
        }
        Value::Array(items) => items.iter_mut().try_for_each(|item| fill(item, lookup)),
        Value::Object(map) => map.values_mut().try_for_each(|item| fill(item, lookup)),
        _ => Ok(()),
    }
}

fn is_path(path: &str) -> bool {
    !path.is_empty()
        && path
            .chars()
            .all(|c| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '/' | '@' | '~'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fills_every_reference() {
        let lookup = |path: &str| (path == "a.key").then(|| "REAL".to_owned());
        let mut value = json!({"x": ["pre halite-secret::a.key:: post", 1]});
        fill(&mut value, &lookup).unwrap();
        assert_eq!(value, json!({"x": ["pre REAL post", 1]}));
        assert_eq!(
            fill(&mut json!("halite-secret::b::"), &lookup),
            Err("b".to_owned())
        );
        assert!(fill(&mut json!("halite-secret::cut"), &lookup).is_err());
    }

    #[test]
    fn finds_references() {
        assert_eq!(referenced(&reference("pki.ca.key")), Some("pki.ca.key"));
        assert_eq!(
            references("a halite-secret::x.y:: b halite-secret::z::"),
            ["x.y", "z"]
        );
        assert!(is_in(&json!({"a": [{"b": "--halite-secret::x::"}]})));
        assert!(!is_in(&json!(["halite-secret"])));
    }
}
