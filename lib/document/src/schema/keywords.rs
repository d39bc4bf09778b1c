//! Keywords of JSON Schema as lists.

use serde_json::Value;

/// The types that a schema allows; empty means any type.
pub(super) fn types(schema: &Value) -> Vec<&str> {
    match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(many) => many.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// The keys that a mapping must have.
pub(super) fn required(schema: &Value) -> Vec<&str> {
    let keys = schema["required"].as_array().into_iter().flatten();
    keys.filter_map(Value::as_str).collect()
}
