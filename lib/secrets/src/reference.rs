//! References to secrets: texts that templates and low state contain in place of a secret, until
//! the master sends a job.
//!
//! A reference is the text `halite-secret::PATH::`, where PATH is the path below `halite` in the
//! pillar, for example `pki.kubernetes.key`. A template may pass a reference on and put it into
//! texts. An operation that computes something from it (a hash, a slice, an encoding) would compute
//! it from the reference instead of the secret, and is refused.

use std::collections::BTreeSet;

use serde_json::Value;

/// The beginning of a reference; the path and [`SUFFIX`] follow.
pub const PREFIX: &str = "halite-secret::";
/// The end of a reference.
pub const SUFFIX: &str = "::";

/// The reference to the secret at a path below `halite` in the pillar, for example
/// `pki.kubernetes.key`.
#[must_use]
pub fn for_path(path: &str) -> String {
    format!("{PREFIX}{path}{SUFFIX}")
}

/// The pillar path of a text that is exactly one reference; `None` for any other text.
#[must_use]
pub fn path(text: &str) -> Option<&str> {
    let path = text.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    is_path(path).then_some(path)
}

/// The pillar paths of all whole references in a text.
#[must_use]
pub fn paths(text: &str) -> Vec<&str> {
    text.split(PREFIX)
        .skip(1)
        .filter_map(|rest| {
            rest.split_once(SUFFIX)
                .map(|(path, _)| path)
                .filter(|path| is_path(path))
        })
        .collect()
}

/// The pillar paths of all whole references in a value, keys included.
#[must_use]
pub fn paths_in(value: &Value) -> BTreeSet<String> {
    fn collect(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::String(text) => found.extend(paths(text).into_iter().map(str::to_owned)),
            Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
            Value::Object(map) => map.iter().for_each(|(key, item)| {
                found.extend(paths(key).into_iter().map(str::to_owned));
                collect(item, found);
            }),
            _ => {}
        }
    }
    let mut found = BTreeSet::new();
    collect(value, &mut found);
    found
}

/// Returns whether a text contains a reference, whole or cut.
#[must_use]
pub fn mentions(text: &str) -> bool {
    text.contains(PREFIX)
}

/// Returns whether a value contains a reference, whole or cut, in any text or key.
#[must_use]
pub fn is_in(value: &Value) -> bool {
    match value {
        Value::String(text) => mentions(text),
        Value::Array(items) => items.iter().any(is_in),
        Value::Object(map) => map.iter().any(|(key, value)| mentions(key) || is_in(value)),
        _ => false,
    }
}

/// The reason why references could not be filled in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FillError {
    /// The path has no secret, or this minion may not have it.
    #[error(
        "there is no secret {0:?} for this minion; use it only in states of hosts that have its role"
    )]
    Unknown(String),
    /// A template changed the reference.
    #[error("a reference to a secret was cut or changed; use secrets only whole, without filters")]
    Damaged,
    /// The key of a mapping contains a reference.
    #[error("the secret {0:?} is in a mapping's key; only values may contain secrets")]
    InKey(String),
}

/// Replaces every reference in the texts of a value by its secret. References within a secret are
/// not replaced. Returns the paths that were replaced.
///
/// # Errors
/// The first reference that cannot be replaced. The value may then be partly filled in: discard it.
pub fn fill(
    value: &mut Value,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<BTreeSet<String>, FillError> {
    let mut used = BTreeSet::new();
    fill_below(value, lookup, &mut used)?;
    Ok(used)
}

fn fill_below(
    value: &mut Value,
    lookup: &dyn Fn(&str) -> Option<String>,
    used: &mut BTreeSet<String>,
) -> Result<(), FillError> {
    match value {
        Value::String(text) => {
            if let Some(filled) = filled(text, lookup, used)? {
                *text = filled;
            }
            Ok(())
        }
        Value::Array(items) => items
            .iter_mut()
            .try_for_each(|item| fill_below(item, lookup, used)),
        Value::Object(map) => {
            if let Some(key) = map.keys().find(|key| mentions(key)) {
                let path = next(key)?.map_or_else(String::new, |(_, path, _)| path.to_owned());
                return Err(FillError::InKey(path));
            }
            map.values_mut()
                .try_for_each(|item| fill_below(item, lookup, used))
        }
        _ => Ok(()),
    }
}

/// A text with its references filled in; `None` if it has none.
fn filled(
    text: &str,
    lookup: &dyn Fn(&str) -> Option<String>,
    used: &mut BTreeSet<String>,
) -> Result<Option<String>, FillError> {
    if !mentions(text) {
        return Ok(None);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, path, after)) = next(rest)? {
        out.push_str(before);
        out.push_str(&lookup(path).ok_or_else(|| FillError::Unknown(path.to_owned()))?);
        used.insert(path.to_owned());
        rest = after;
    }
    out.push_str(rest);
    Ok(Some(out))
}

/// The next reference of a text: the text before it, its path, and the rest.
fn next(text: &str) -> Result<Option<(&str, &str, &str)>, FillError> {
    let Some((before, rest)) = text.split_once(PREFIX) else {
        return Ok(None);
    };
    match rest.split_once(SUFFIX) {
        Some((path, after)) if is_path(path) => Ok(Some((before, path, after))),
        _ => Err(FillError::Damaged),
    }
}

/// Names of secrets are restricted to these characters (`secret-name` of the pillar's schema).
fn is_path(path: &str) -> bool {
    !path.is_empty()
        && path
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fills_every_text_once() {
        let mut value = json!({"a": [format!("x{}y{}", for_path("p.a"), for_path("p.b"))], "n": 1, "plain": "::"});
        let used = fill(&mut value, &|path| {
            Some(format!("<{path} {}>", for_path("p.c")))
        })
        .unwrap();
        let expected = format!("x<p.a {0}>y<p.b {0}>", for_path("p.c"));
        assert_eq!(value, json!({"a": [expected], "n": 1, "plain": "::"}));
        assert_eq!(used.into_iter().collect::<Vec<_>>(), ["p.a", "p.b"]);
    }

    #[test]
    fn refuses_what_it_cannot_fill() {
        let none = |_: &str| None;
        assert_eq!(
            fill(&mut json!(for_path("a")), &none),
            Err(FillError::Unknown("a".into()))
        );
        assert_eq!(
            fill(&mut json!("halite-secret::pki.ku"), &none),
            Err(FillError::Damaged)
        );
        assert_eq!(
            fill(&mut json!("halite-secret::a b::"), &none),
            Err(FillError::Damaged)
        );
        assert_eq!(
            fill(&mut json!({for_path("k"): 1}), &none),
            Err(FillError::InKey("k".into()))
        );
    }

    #[test]
    fn finds_references() {
        assert_eq!(path(&for_path("pki.ca.key")), Some("pki.ca.key"));
        assert_eq!(
            paths("a halite-secret::x.y:: b halite-secret::z::"),
            ["x.y", "z"]
        );
        assert!(is_in(&json!({"a": [{"b": "--halite-secret::x::"}]})));
        assert!(!is_in(&json!(["halite-secret"])));
        let value =
            json!({"a": ["halite-secret::x::", {"halite-secret::y::": "halite-secret::cut"}]});
        assert_eq!(paths_in(&value).into_iter().collect::<Vec<_>>(), ["x", "y"]);
    }
}
