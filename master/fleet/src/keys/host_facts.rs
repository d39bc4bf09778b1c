//! The facts about a host that are stored with its key, for an operator to compare. The host is not
//! trusted yet, so they are few and short.

use halite_core::refusal::Refusal;
use halite_document::text::is_deceptive;
use serde_json::{Value, json};

/// The maximum length of these texts in characters: a host name has at most 253.
const LONGEST: usize = 253;

/// The facts in the grains of a host that connects from `source`, as JSON.
///
/// # Errors
/// The grains are not JSON, or contain control characters that a terminal interprets.
pub(super) fn brief(grains_json: &str, source: &str) -> Result<String, Refusal> {
    let grains = match grains_json {
        "" => Value::Null,
        text => parse(text)?,
    };
    let fact = |name: &str| {
        let text = grains.get(name).and_then(Value::as_str);
        text.map(|text| text.chars().take(LONGEST).collect::<String>())
    };
    let facts = json!({
        "fqdn": fact("fqdn"),
        "osfinger": fact("osfinger"),
        "source": source,
    });
    Ok(facts.to_string())
}

/// The address from which the key came; empty if unknown.
pub(super) fn source(facts_json: &str) -> String {
    let facts: Value = serde_json::from_str(facts_json).unwrap_or_default();
    facts["source"].as_str().unwrap_or_default().to_owned()
}

/// Parses the grains of a host; refuses control characters that a terminal interprets.
///
/// # Errors
/// The grains are not JSON, or contain such a character; the error names the grain.
pub fn parse(grains_json: &str) -> Result<Value, Refusal> {
    let grains: Value = serde_json::from_str(grains_json)
        .map_err(|_| Refusal::invalid("the grains are not JSON"))?;
    match deceptive(&grains) {
        None => Ok(grains),
        Some(path) => Err(Refusal::invalid(format!(
            "cannot store the grains: {} contains a control character; correct the value on the host",
            path.escape_default()
        ))),
    }
}

/// The path of the first value or key with a control character.
fn deceptive(value: &Value) -> Option<String> {
    let below = |name: String, value: &Value| {
        deceptive(value).map(|path| match path.as_str() {
            "" => name,
            path => format!("{name}:{path}"),
        })
    };
    match value {
        Value::String(text) => text.contains(is_deceptive).then(String::new),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(index, item)| below(index.to_string(), item)),
        Value::Object(map) => map.iter().find_map(|(key, value)| {
            if key.contains(is_deceptive) {
                return Some(key.clone());
            }
            below(key.clone(), value)
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grains_with_control_characters_are_refused_with_their_place() {
        for (grains, wanted) in [
            (r#"{"host": "w7\u001b[2K"}"#, "grains: host contains"),
            (r#"{"a": {"b": ["x", "\u202e"]}}"#, "a:b:1 contains"),
            (r#"{"a\u009b": 1}"#, "a\\u{9b} contains"),
        ] {
            let refusal = parse(grains).unwrap_err();
            assert!(refusal.message.contains(wanted), "{refusal}");
            assert!(brief(grains, "").is_err());
        }
        assert!(parse(r#"{"motd": "two\nlines\tand a tab", "n": 1}"#).is_ok());
        assert!(parse("{").is_err());
    }

    #[test]
    fn only_a_few_short_facts_are_stored() {
        let long = "x".repeat(100_000);
        let grains = json!({ "fqdn": long, "osfinger": {"a": long}, "further": long });
        let facts = brief(&grains.to_string(), "10.0.0.7").unwrap();
        assert!(facts.len() < 400, "{}", facts.len());
        assert_eq!(source(&facts), "10.0.0.7");
    }
}
