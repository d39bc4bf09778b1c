//! The reference of a document in Markdown, from its schema.

use std::fmt::Write as _;

use serde_json::Value;

use super::{required, types};
use crate::source::join;

/// The reference of a document: its sections and fields come from the schema, with their
/// descriptions.
#[derive(Debug, Default)]
pub struct DocumentReference<'a> {
    /// Formats of the schema in words, for example `ipv4-address` and `IPv4 address`. A text with
    /// another format is called a text.
    pub formats: &'a [(&'a str, &'a str)],
    /// Examples by the path of their section; the path of the whole document is empty.
    pub examples: &'a [(&'a str, &'a str)],
}

impl DocumentReference<'_> {
    /// The tables of a document: one section for each mapping, one row for each field.
    #[must_use]
    pub fn markdown(&self, schema: &Value) -> String {
        let mut text = String::new();
        self.section(schema, "", &mut text);
        text
    }

    /// Writes the table of a mapping's fields and the example, then the sections below it.
    fn section(&self, schema: &Value, path: &str, text: &mut String) {
        if !path.is_empty() {
            let is_top = !path.replace(".NAME", "").contains('.');
            let level = if is_top { "##" } else { "###" };
            let _ = write!(text, "\n{level} `{path}`\n");
            for paragraph in paragraphs(schema) {
                let _ = write!(text, "\n{paragraph}\n");
            }
        }
        text.push_str("\n| field | value | default | meaning |\n|---|---|---|---|\n");
        let required = required(schema);
        let mut below = Vec::new();
        for (key, field) in schema["properties"].as_object().into_iter().flatten() {
            let here = join(path, key);
            let sections = mappings(field, &here);
            let name = match sections.first() {
                Some((section, _)) => format!("[`{here}`](#{})", anchor(section)),
                None => format!("`{here}`"),
            };
            let default = match required.contains(&key.as_str()) {
                true => "required".to_owned(),
                false => default(field),
            };
            // The section of the field itself repeats the first paragraph, and has the others.
            let has_section = sections.first().is_some_and(|(path, _)| *path == here);
            let take = if has_section { 1 } else { usize::MAX };
            let meaning: Vec<String> = paragraphs(field).take(take).collect();
            let _ = writeln!(
                text,
                "| {name} | {} | {} | {} |",
                cell(&self.value(field)),
                cell(&default),
                cell(&meaning.join(" "))
            );
            below.extend(sections);
        }
        for (of, example) in self.examples {
            if *of == path {
                let _ = write!(text, "\n```yaml\n{}\n```\n", example.trim_end());
            }
        }
        for (path, schema) in below {
            self.section(schema, &path, text);
        }
    }

    /// The values that a schema allows, in words.
    fn value(&self, schema: &Value) -> String {
        if let Some(value) = schema.get("const") {
            return code(value);
        }
        if let Some(values) = schema["enum"].as_array() {
            return values.iter().map(code).collect::<Vec<_>>().join(", ");
        }
        let words: Vec<String> = types(schema)
            .into_iter()
            .filter(|kind| *kind != "null")
            .map(|kind| match kind {
                "object" if schema["additionalProperties"].is_object() => format!(
                    "mapping of {} to {}",
                    self.format(&schema["propertyNames"], "name"),
                    self.value(&schema["additionalProperties"])
                ),
                "object" => "mapping".to_owned(),
                "array" => format!("list of {}", self.value(&schema["items"])),
                "boolean" => "`true`, `false`".to_owned(),
                "integer" => format!("whole number{}", range(schema)),
                _ => self.format(schema, "text").to_owned(),
            })
            .collect();
        match words.is_empty() {
            true => "anything".to_owned(),
            false => words.join(", or "),
        }
    }

    /// The format of a text in words.
    fn format<'b>(&'b self, schema: &Value, otherwise: &'b str) -> &'b str {
        let format = schema["format"].as_str().unwrap_or_default();
        let found = self.formats.iter().find(|(name, _)| *name == format);
        found.map_or(otherwise, |(_, words)| words)
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

/// The paragraphs of a description, each on one line.
fn paragraphs(schema: &Value) -> impl Iterator<Item = String> {
    let text = schema["description"].as_str().unwrap_or_default();
    text.split("\n\n")
        .map(|paragraph| paragraph.replace('\n', " "))
        .filter(|paragraph| !paragraph.is_empty())
}

/// The default of a field. Empty if there is none, and for a mapping with a section, whose fields
/// have their own.
fn default(schema: &Value) -> String {
    match schema.get("default") {
        None | Some(Value::Null) => String::new(),
        Some(Value::Object(_)) if schema["properties"].is_object() => String::new(),
        Some(value) => code(value),
    }
}

/// A value as code: a text without quotes, anything else as flow YAML.
fn code(value: &Value) -> String {
    fn flow(value: &Value) -> String {
        match value {
            Value::String(text) if !text.is_empty() => text.clone(),
            Value::Array(items) => {
                let items: Vec<String> = items.iter().map(flow).collect();
                format!("[{}]", items.join(", "))
            }
            other => other.to_string(),
        }
    }
    format!("`{}`", flow(value))
}

/// The range of a number, as the rest of a phrase.
fn range(schema: &Value) -> String {
    match (schema["minimum"].as_i64(), schema["maximum"].as_i64()) {
        (Some(least), Some(most)) => format!(" from {least} to {most}"),
        (Some(least), None) => format!(", at least {least}"),
        (None, Some(most)) => format!(", at most {most}"),
        (None, None) => String::new(),
    }
}

/// The anchor of a section's heading, as GitHub makes it.
fn anchor(path: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || "-_".contains(*c);
    path.to_lowercase().chars().filter(kept).collect()
}

/// A text as the cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}
