//! The facts about a host that are stored with its key, for an operator to compare. The host is not
//! trusted yet, so they are few and short.

use halite_core::refusal::Refusal;
use halite_document::text::is_deceptive;
use halite_host_reports::GRAIN as REPORTS;
use serde_json::{Value, json};

/// The maximum length of these texts in characters: a host name has at most 253.
const LONGEST: usize = 253;

/// The facts in the grains of a host that connects from `source`, as JSON.
///
/// # Errors
/// The grains are not JSON, or contain control characters.
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

/// Parses the grains of a host; refuses control characters. A terminal interprets them, and with a
/// line feed a grain could add a state to a template that does not quote it.
///
/// # Errors
/// The grains are not JSON, or contain such a character; the error names the grain.
pub fn parse(grains_json: &str) -> Result<Value, Refusal> {
    let grains: Value = serde_json::from_str(grains_json)
        .map_err(|_| Refusal::invalid("the grains are not JSON"))?;
    let found = match &grains {
        Value::Object(map) => map.iter().find_map(|(name, value)| {
            // The reason for a failure may have several lines. No template has this grain.
            let is_bad = if name == REPORTS {
                is_deceptive
            } else {
                is_control
            };
            bad_entry(name, value, is_bad)
        }),
        other => bad_text(other, is_control),
    };
    match found {
        None => Ok(grains),
        Some(path) => Err(Refusal::invalid(format!(
            "cannot store the grains: {} contains a control character; correct the value on the host",
            path.escape_default()
        ))),
    }
}

fn is_control(character: char) -> bool {
    character.is_control() || is_deceptive(character)
}

/// The path of the first value or key with a bad character.
fn bad_text(value: &Value, is_bad: fn(char) -> bool) -> Option<String> {
    match value {
        Value::String(text) => text.contains(is_bad).then(String::new),
        Value::Array(items) => (items.iter().enumerate())
            .find_map(|(index, item)| bad_entry(&index.to_string(), item, is_bad)),
        Value::Object(map) => map
            .iter()
            .find_map(|(key, value)| bad_entry(key, value, is_bad)),
        _ => None,
    }
}

/// Like [`bad_text`], for an entry of a mapping or list.
fn bad_entry(name: &str, value: &Value, is_bad: fn(char) -> bool) -> Option<String> {
    if name.contains(is_bad) {
        return Some(name.to_owned());
    }
    bad_text(value, is_bad).map(|path| match path.as_str() {
        "" => name.to_owned(),
        path => format!("{name}:{path}"),
    })
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
            (r#"{"a\nb": 1}"#, "a\\nb contains"),
            (r#"{"a": ["x\ty"]}"#, "a:0 contains"),
            (r#"{"a": {"reports": "x\ny"}}"#, "a:reports contains"),
            (
                r#"{"reports": {"b.json": "x\u001b"}}"#,
                "reports:b.json contains",
            ),
            (
                r#"{"fqdn": "worker-1.x\n    - ip: 10.0.0.21\n\nevil:\n  cmd.run"}"#,
                "fqdn contains a control character; correct",
            ),
        ] {
            let refusal = parse(grains).unwrap_err();
            assert!(refusal.message.contains(wanted), "{refusal}");
            assert!(brief(grains, "").is_err());
        }
        // What a failed backup says may have several lines.
        assert!(parse(r#"{"reports": {"b.json": {"failure": "x\n\ty"}}, "n": 1}"#).is_ok());
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
