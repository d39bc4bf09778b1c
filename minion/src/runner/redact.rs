//! Removes the secret values of a sensitive chunk from comments, changes and errors.

use halite_states::low::Chunk;
use serde_json::{Value, json};

/// Stands for a secret value.
pub const REDACTED: &str = "<redacted: secret>";
/// Shorter values are not searched for in messages: they hide nothing, and replacing them would
/// break words.
const SHORTEST_SECRET: usize = 8;

/// Replaces every value inside `value`, so that only the names of changed items are left.
pub(super) fn redact(value: &mut Value) {
    match value {
        Value::Object(map) => map.values_mut().for_each(redact),
        Value::Null => {}
        other => *other = json!(REDACTED),
    }
}

/// `message` without any text from the arguments of a sensitive chunk.
pub(super) fn redacted(chunk: &Chunk, message: &str) -> String {
    let mut text = message.to_owned();
    if chunk.sensitive {
        let mut secrets = Vec::new();
        chunk
            .args
            .values()
            .for_each(|value| collect(value, &mut secrets));
        secrets.sort_by_key(|s| std::cmp::Reverse(s.len()));
        for secret in secrets {
            text = text.replace(secret, REDACTED);
        }
    }
    text
}

fn collect<'v>(value: &'v Value, into: &mut Vec<&'v str>) {
    match value {
        Value::String(text) => {
            into.push(text.as_str());
            into.extend(text.lines().map(str::trim));
            into.retain(|s| s.len() >= SHORTEST_SECRET);
        }
        Value::Array(items) => items.iter().for_each(|v| collect(v, into)),
        Value::Object(map) => map.values().for_each(|v| collect(v, into)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
