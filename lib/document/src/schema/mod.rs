//! Reads a YAML tree by a JSON Schema: collects all problems, and returns the valid part as JSON.
//!
//! An unusable value is omitted (if it is optional) or replaced by an empty one, and its path is
//! recorded, so that the checks of the document's meaning can run without it and do not report
//! consequences of it.

mod commented;
mod keywords;
pub mod prose;
pub mod questions;
mod reader;
mod reference;

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use self::keywords::{required, types};
use crate::problem::Problem;
use crate::source::DocumentSource;
use crate::yaml::Node;

pub use commented::commented;
pub use reference::DocumentReference;

/// The reason why a text does not have its format, and the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// The problem, as the rest of a sentence that begins with the text.
    pub message: String,
    /// The remedy.
    pub hint: String,
    /// The value that the hint names, if it names one; the format accepts it.
    pub suggestion: Option<String>,
}

impl Misfit {
    /// A misfit whose remedy names no value.
    #[must_use]
    pub fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: hint.into(),
            suggestion: None,
        }
    }
}

/// The rules of one kind of document that its schema names but does not contain.
pub trait Rules {
    /// Checks a text by the name of a format. An unknown format accepts every text.
    ///
    /// # Errors
    /// The text does not have the format.
    fn check(&self, format: &str, text: &str) -> Result<(), Misfit>;

    /// A text that replaces an unusable one of a format. The checks of the meaning ignore it,
    /// because its path is recorded as unusable, but it must parse.
    fn placeholder(&self, _format: &str) -> Option<&'static str> {
        None
    }

    /// The prefixes of the paths whose lines are not displayed.
    fn secret_paths(&self) -> &'static [&'static str] {
        &[]
    }
}

/// The result of reading a document.
pub struct Read {
    /// The usable part.
    pub value: Value,
    /// The document, with the paths that were unusable.
    pub source: DocumentSource,
    /// All problems.
    pub problems: Vec<Problem>,
}

/// Reads the document `root` of a file by its schema; `text` is the file's text.
#[must_use]
pub fn read(file: &str, text: &str, root: Node, schema: &Value, rules: &dyn Rules) -> Read {
    let (value, broken, problems) = reader::read(&root, text, schema, rules);
    let mut source = DocumentSource::new(file, text, root).secret_paths(rules.secret_paths());
    source.broken = broken;
    Read {
        value,
        source,
        problems,
    }
}

/// The keywords that the reader implements; it ignores any other.
const KEYWORDS: [&str; 20] = [
    "$schema",
    "title",
    "description",
    "default",
    "type",
    "format",
    "const",
    "enum",
    "properties",
    "required",
    "additionalProperties",
    "propertyNames",
    "items",
    "minItems",
    "minLength",
    "minimum",
    "maximum",
    "examples",
    "writeOnly",
    questions::EXTENSION,
];

/// The flaws of a schema: keywords that the reader ignores, and keys without a description. For
/// tests of schemas.
#[must_use]
pub fn flaws(schema: &Value) -> Vec<String> {
    let mut found = BTreeSet::new();
    find_flaws(schema, "", &mut found);
    found.into_iter().collect()
}

fn find_flaws(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    for (word, value) in schema.as_object().into_iter().flatten() {
        if !KEYWORDS.contains(&word.as_str()) {
            found.insert(format!("{path}: the reader does not know {word:?}"));
        }
        match word.as_str() {
            "properties" => {
                for (key, below) in value.as_object().into_iter().flatten() {
                    let here = crate::source::join(path, key);
                    if below.get("description").is_none() {
                        found.insert(format!("{here}: has no description"));
                    }
                    find_flaws(below, &here, found);
                }
            }
            questions::EXTENSION => {
                for key in value.as_object().into_iter().flat_map(Map::keys) {
                    if !questions::KEYS.contains(&key.as_str()) {
                        found.insert(format!("{path}: {word} does not have {key:?}"));
                    }
                }
            }
            "additionalProperties" | "items" | "propertyNames" => {
                find_flaws(value, &format!("{path}.{word}"), found);
            }
            _ => {}
        }
    }
}

/// The replacement for a required value that was unusable.
fn empty(schema: &Value, rules: &dyn Rules) -> Value {
    match types(schema).first().copied().unwrap_or_default() {
        "object" => {
            let mut out = Map::new();
            for key in required(schema) {
                out.insert(key.to_owned(), empty(&schema["properties"][key], rules));
            }
            Value::Object(out)
        }
        "array" => json!([]),
        "boolean" => json!(false),
        "integer" => schema.get("minimum").cloned().unwrap_or(json!(0)),
        _ => {
            let placeholder = schema["format"]
                .as_str()
                .and_then(|format| rules.placeholder(format));
            let first = schema["enum"][0].as_str();
            json!(placeholder.or(first).unwrap_or_default())
        }
    }
}

#[cfg(test)]
mod tests;
