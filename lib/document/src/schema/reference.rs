//! The reference of a document in Markdown, from its schema.

use std::fmt::Write as _;

use serde_json::Value;

use super::{required, types};
use crate::source::join;

/// The keys of a document: one section for each mapping, one row for each key.
#[must_use]
pub fn markdown(schema: &Value) -> String {
    let mut text = String::new();
    section(schema, "", &mut text);
    text
}

/// Writes the table of a mapping's keys, then the sections below it.
fn section(schema: &Value, path: &str, text: &mut String) {
    let required = required(schema);
    let mut below = Vec::new();
    if !path.is_empty() {
        let _ = write!(text, "\n## `{path}`\n");
    }
    text.push_str("\n| key | takes | meaning |\n|---|---|---|\n");
    for (key, schema) in schema["properties"].as_object().into_iter().flatten() {
        let doc = schema["description"].as_str().unwrap_or_default();
        // A table cell must be a single line.
        let doc = doc.replace("\n\n", "<br>").replace('\n', " ");
        let needed = if required.contains(&key.as_str()) {
            " Required."
        } else {
            ""
        };
        let cell = doc.replace('|', "\\|");
        let _ = writeln!(text, "| `{key}` | {} | {cell}{needed} |", takes(schema));
        below.extend(mappings(schema, &join(path, key)));
    }
    for (path, schema) in below {
        section(schema, &path, text);
    }
}

/// The mappings with known keys that a value is or contains, with their paths.
fn mappings<'a>(schema: &'a Value, path: &str) -> Vec<(String, &'a Value)> {
    let mut found = Vec::new();
    if schema["properties"].is_object() {
        found.push((path.to_owned(), schema));
    }
    if schema["items"].is_object() {
        found.extend(mappings(&schema["items"], &format!("{path}[]")));
    }
    if schema["additionalProperties"].is_object() {
        let below = join(path, "NAME");
        found.extend(mappings(&schema["additionalProperties"], &below));
    }
    found
}

/// The kinds of value that a schema allows, in words.
fn takes(schema: &Value) -> String {
    if let Some(number) = schema["const"].as_i64() {
        return number.to_string();
    }
    if let Some(text) = schema["const"].as_str() {
        return text.to_owned();
    }
    let words: Vec<String> = types(schema)
        .into_iter()
        .filter(|kind| *kind != "null")
        .map(|kind| match kind {
            "object" if schema["additionalProperties"].is_object() => {
                format!(
                    "mapping of name to {}",
                    takes(&schema["additionalProperties"])
                )
            }
            "object" => "mapping".to_owned(),
            "array" => format!("list: {}", takes(&schema["items"])),
            "boolean" => "true or false".to_owned(),
            "integer" => "whole number".to_owned(),
            _ => "text".to_owned(),
        })
        .collect();
    if words.is_empty() {
        return "anything".to_owned();
    }
    words.join(", or ")
}
