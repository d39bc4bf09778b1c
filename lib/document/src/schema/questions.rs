//! The questions with which a program fills a document: the required fields of its schema, and the
//! fields that the extension [`EXTENSION`] marks.
//!
//! The extension is a mapping with these keys, all optional:
//!
//! - `ask: true`: the field is a question, though it is not required;
//! - `when: PATH`: only if the value at this path is given and not false;
//! - `default: VALUE`: the default, instead of the one in the schema;
//! - `suggest: NAME`: the program that asks knows a better default by this name.

use serde_json::{Map, Value, json};

use super::keywords::{required, types};
use super::prose::description;
use crate::source::join;

/// The extension of a field's schema.
pub const EXTENSION: &str = "x-wizard";
/// The keys of the extension.
pub(super) const KEYS: [&str; 4] = ["ask", "when", "default", "suggest"];

/// A mapping that contains a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OuterMapping {
    /// Its dotted path; empty for the document.
    pub path: String,
    /// Its description.
    pub description: String,
}

/// A question for the value of one field.
#[derive(Debug, Clone, PartialEq)]
pub struct SchemaQuestion<'a> {
    /// The dotted path of the field.
    pub path: String,
    /// The field's schema.
    pub schema: &'a Value,
    /// The mappings that contain the field, the document first.
    pub around: Vec<OuterMapping>,
    /// `true` if the document is invalid without the field.
    pub is_required: bool,
}

/// The questions of a schema, in the order of its fields.
#[must_use]
pub fn questions(schema: &Value) -> Vec<SchemaQuestion<'_>> {
    let mut found = Vec::new();
    add(schema, "", &[], true, &mut found);
    found
}

fn add<'a>(
    schema: &'a Value,
    path: &str,
    around: &[OuterMapping],
    is_required: bool,
    found: &mut Vec<SchemaQuestion<'a>>,
) {
    let around = [
        around,
        &[OuterMapping {
            path: path.to_owned(),
            description: description(schema),
        }],
    ]
    .concat();
    let needed = required(schema);
    for (key, field) in schema["properties"].as_object().into_iter().flatten() {
        let (path, is_required) = (
            join(path, key),
            is_required && needed.contains(&key.as_str()),
        );
        if field["properties"].is_object() {
            add(field, &path, &around, is_required, found);
        } else if field.get("const").is_none() && (is_required || field[EXTENSION]["ask"] == true) {
            found.push(SchemaQuestion {
                path,
                schema: field,
                around: around.clone(),
                is_required,
            });
        }
    }
}

/// A document with only the required fields that can have a single value.
#[must_use]
pub fn constants(schema: &Value) -> Value {
    let mut document = Map::new();
    for key in required(schema) {
        if let Some(value) = schema["properties"][key].get("const") {
            document.insert(key.to_owned(), value.clone());
        }
    }
    Value::Object(document)
}

impl SchemaQuestion<'_> {
    /// The description of the field.
    #[must_use]
    pub fn description(&self) -> String {
        description(self.schema)
    }

    /// The default; `None` if there is none, or if it is empty.
    #[must_use]
    pub fn default(&self) -> Option<Value> {
        let own = self.schema[EXTENSION].get("default");
        let value = own.or_else(|| self.schema.get("default"))?;
        let is_empty = value.is_null() || value.as_array().is_some_and(Vec::is_empty);
        (!is_empty).then(|| value.clone())
    }

    /// The path of the value without which the question is not asked.
    #[must_use]
    pub fn condition(&self) -> Option<&str> {
        self.schema[EXTENSION]["when"].as_str()
    }

    /// The name of a better default that the program knows.
    #[must_use]
    pub fn suggestion(&self) -> Option<&str> {
        self.schema[EXTENSION]["suggest"].as_str()
    }

    /// The value that a line means. A line of another type than the field's is a text, which the
    /// reader of the document refuses.
    #[must_use]
    pub fn value(&self, line: &str) -> Value {
        value_of(self.schema, line.trim())
    }

    /// A value as a line: the inverse of [`SchemaQuestion::value`].
    #[must_use]
    pub fn line(&self, value: &Value) -> String {
        match value {
            Value::Bool(true) => "yes".to_owned(),
            Value::Bool(false) => "no".to_owned(),
            Value::String(text) => text.clone(),
            Value::Array(items) => {
                let items: Vec<String> = items.iter().map(|item| self.line(item)).collect();
                items.join(", ")
            }
            other => other.to_string(),
        }
    }

    /// The accepted values in words.
    #[must_use]
    pub fn takes(&self) -> String {
        takes(self.schema)
    }
}

fn value_of(schema: &Value, text: &str) -> Value {
    let types = types(schema);
    let is = |name| types.contains(&name);
    let word = text.to_ascii_lowercase();
    match word.as_str() {
        "y" | "yes" | "true" if is("boolean") => return json!(true),
        "n" | "no" | "false" if is("boolean") => return json!(false),
        _ => {}
    }
    if is("integer")
        && let Ok(number) = text.parse::<i64>()
    {
        return json!(number);
    }
    let separators = |c: char| c == ',' || c.is_whitespace();
    if is("array") && (!is("string") || text.contains(separators)) {
        let bare = text
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        let items = bare.unwrap_or(text).split(separators);
        let items = items.filter(|item| !item.is_empty());
        return items.map(|item| value_of(&schema["items"], item)).collect();
    }
    json!(text)
}

fn takes(schema: &Value) -> String {
    let types = types(schema);
    let is = |name| types.contains(&name);
    if let Some(choices) = schema["enum"].as_array() {
        let choices: Vec<&str> = choices.iter().filter_map(Value::as_str).collect();
        return format!("one of {}", choices.join(", "));
    }
    if is("boolean") {
        return "yes or no".to_owned();
    }
    if is("integer") {
        let bound = |key: &str| schema[key].as_i64();
        return match (bound("minimum"), bound("maximum")) {
            (Some(least), Some(most)) => format!("a whole number from {least} to {most}"),
            (Some(least), None) => format!("a whole number, {least} or more"),
            (None, Some(most)) => format!("a whole number, at most {most}"),
            (None, None) => "a whole number".to_owned(),
        };
    }
    if is("array") {
        let each = takes(&schema["items"]);
        return match each.as_str() {
            "a text" => "a list, separated by commas".to_owned(),
            _ => format!("a list, separated by commas, each {each}"),
        };
    }
    "a text".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Value {
        json!({"description": "All.", "type": "object", "required": ["kind", "net"], "properties": {
            "kind": {"type": "string", "const": "Cluster"},
            "free": {"type": "string"},
            "net": {"type": "object", "description": "Nets.", "required": ["cidrs"], "properties": {
                "cidrs": {"type": "array", "items": {"type": "string"}, "description": "Cidrs."},
                "mtu": {"type": ["integer", "null"], "minimum": 1280, "maximum": 65535, "default": null,
                    "x-wizard": {"ask": true, "when": "net.cidrs"}},
            }},
            "tool": {"type": "object", "required": ["mode"], "properties": {
                "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
                "on": {"type": "boolean", "default": false, "x-wizard": {"ask": true, "default": true}},
                "roles": {"type": "array", "items": {"type": "string", "enum": ["x", "y"]}, "default": [],
                    "x-wizard": {"ask": true, "suggest": "role"}},
            }},
        }})
    }

    #[test]
    fn required_and_marked_fields_are_asked_in_the_order_of_the_schema() {
        let schema = schema();
        let questions = questions(&schema);
        let asked: Vec<(&str, bool)> = questions
            .iter()
            .map(|question| (question.path.as_str(), question.is_required))
            .collect();
        let expected = [
            ("net.cidrs", true),
            ("net.mtu", false),
            ("tool.on", false),
            ("tool.roles", false),
        ];
        assert_eq!(asked, expected);
        let around: Vec<&str> = questions[0]
            .around
            .iter()
            .map(|outer| outer.description.as_str())
            .collect();
        assert_eq!(around, ["All.", "Nets."]);
        assert_eq!(constants(&schema), json!({"kind": "Cluster"}));
        assert_eq!(questions[1].condition(), Some("net.cidrs"));
        assert_eq!(questions[1].default(), None);
        assert_eq!(questions[2].default(), Some(json!(true)));
        assert_eq!(questions[3].default(), None, "an empty list does not count");
        assert_eq!(questions[3].suggestion(), Some("role"));
    }

    #[test]
    fn a_line_becomes_a_value_of_the_fields_type_and_back() {
        let schema = schema();
        let questions = questions(&schema);
        for (at, line, value, back) in [
            (0, " a, b ", json!(["a", "b"]), "a, b"),
            (0, "[a b]", json!(["a", "b"]), "a, b"),
            (1, "1500", json!(1500), "1500"),
            (1, "many", json!("many"), "many"),
            (2, "Y", json!(true), "yes"),
            (2, "false", json!(false), "no"),
            (2, "perhaps", json!("perhaps"), "perhaps"),
        ] {
            let question = &questions[at];
            assert_eq!(question.value(line), value, "{line}");
            assert_eq!(question.line(&value), back);
        }
        let takes: Vec<String> = questions.iter().map(SchemaQuestion::takes).collect();
        let expected = [
            "a list, separated by commas",
            "a whole number from 1280 to 65535",
            "yes or no",
            "a list, separated by commas, each one of x, y",
        ];
        assert_eq!(takes, expected);
    }
}
