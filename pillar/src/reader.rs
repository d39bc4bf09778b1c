//! Reads a YAML tree against a JSON Schema: collects all problems, and returns the valid part as
//! JSON.
//!
//! An unusable value is left out (if it is optional) or replaced by an empty one, and its path is
//! recorded, so that the checks of the document's meaning can run without it and do not report what
//! follows from it.

use std::collections::BTreeSet;

use halite_document::{yaml, Problem, did_you_mean};
use halite_document::yaml::{Kind, Node as Yaml};
use serde_json::{Map, Value, json};

use crate::formats;
use crate::source::join;

/// The outcome of reading a document.
pub(crate) struct Read {
    /// The usable part.
    pub value: Value,
    /// Paths that were unusable.
    pub broken: BTreeSet<String>,
    /// All problems.
    pub problems: Vec<Problem>,
}

/// Reads `node` by the schema. `text` is only used for excerpts.
pub(crate) fn read(node: &Yaml, schema: &Value, text: &str) -> Read {
    let mut reader = Reader {
        text,
        problems: Vec::new(),
        broken: BTreeSet::new(),
    };
    let value = reader.value(node, schema, "").unwrap_or_else(|| {
        reader.broken.insert(String::new());
        empty(schema)
    });
    Read {
        value,
        broken: reader.broken,
        problems: reader.problems,
    }
}

struct Reader<'a> {
    text: &'a str,
    problems: Vec<Problem>,
    broken: BTreeSet<String>,
}

impl Reader<'_> {
    fn report(&mut self, node: &Yaml, path: &str, message: String, hint: &str) {
        let problem = Problem::at(&node.position, message).path(path).hint(hint);
        // The line of a secret is not displayed.
        let shown = if path.starts_with("secrets.") {
            problem
        } else {
            problem.excerpt_from(self.text)
        };
        self.problems.push(shown);
    }

    /// The JSON of a node; `None` when it was unusable (and was reported).
    fn value(&mut self, node: &Yaml, schema: &Value, path: &str) -> Option<Value> {
        let types = types(schema);
        if types.is_empty() {
            return Some(node.to_json());
        }
        if node.kind == Kind::Null && types.contains(&"null") {
            return Some(Value::Null);
        }
        match (
            &node.kind,
            types
                .iter()
                .find(|name| **name != "null")
                .copied()
                .unwrap_or_default(),
        ) {
            (Kind::Map(entries), "object") => Some(self.object(node, entries, schema, path)),
            (Kind::List(items), "array") => Some(self.array(node, items, schema, path)),
            (Kind::Bool(value), "boolean") => Some(Value::Bool(*value)),
            (Kind::Int(value), "integer") => self.integer(node, *value, schema, path),
            (kind, "string") if node.is_scalar() && *kind != Kind::Null => {
                self.string(node, schema, path)
            }
            (Kind::Null, wanted) => {
                self.report(
                    node,
                    path,
                    "the value is missing".to_owned(),
                    &format!("give it {}", article(wanted)),
                );
                None
            }
            (_, wanted) => {
                let hint = match (wanted, &node.kind) {
                    ("boolean", _) => "write true or false".to_owned(),
                    ("array", Kind::Text(_) | Kind::Int(_)) => self.as_list(node, schema, path),
                    _ => String::new(),
                };
                self.report(
                    node,
                    path,
                    format!("must be {}, not {}", article(wanted), node.kind_name()),
                    &hint,
                );
                None
            }
        }
    }

    /// The hint for a text where a list is needed: the list of that text, if the schema accepts it.
    fn as_list(&self, node: &Yaml, schema: &Value, path: &str) -> String {
        let list = format!("[{}]", node.raw);
        let is_accepted = yaml::parse("", &list).is_ok_and(|root| {
            let read = read(&root, schema, "");
            read.problems.is_empty() && root.items().len() == 1
        });
        if is_accepted && !path.starts_with("secrets.") {
            format!("write {list}")
        } else {
            String::new()
        }
    }

    fn object(
        &mut self,
        node: &Yaml,
        entries: &[(Yaml, Yaml)],
        schema: &Value,
        path: &str,
    ) -> Value {
        let none = Map::new();
        let known = schema["properties"].as_object().unwrap_or(&none);
        let required: Vec<&str> = schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let mut out = Map::new();
        let mut meant: Vec<&str> = Vec::new();
        for (key, value) in entries {
            let here = join(path, &key.raw);
            let below = match known.get(&key.raw) {
                Some(below) => below,
                None => match &schema["additionalProperties"] {
                    Value::Bool(false) => {
                        let names: Vec<&str> = known.keys().map(String::as_str).collect();
                        let is_there =
                            |name: &str| entries.iter().any(|(have, _)| have.raw == name);
                        let hint = match near(&key.raw, &names) {
                            Some(near) => {
                                meant.push(near);
                                if is_there(near) {
                                    // Renamed to that, it would be refused as a duplicate.
                                    format!("`{near}` is there already; remove this key")
                                } else {
                                    format!("did you mean `{near}`?")
                                }
                            }
                            None => format!("the keys here are: {}", names.join(", ")),
                        };
                        self.report(key, &here, format!("unknown key `{}`", key.raw), &hint);
                        continue;
                    }
                    below => {
                        if let Some(format) = schema["propertyNames"]["format"].as_str()
                            && let Err(misfit) = formats::check(format, &key.raw)
                        {
                            self.report(
                                key,
                                &here,
                                format!("`{}` {}", key.raw, misfit.message),
                                &misfit.hint,
                            );
                            continue;
                        }
                        below
                    }
                },
            };
            // `labels:` with nothing behind it says the same as no `labels`.
            let nullable = types(below).is_empty() || types(below).contains(&"null");
            if value.kind == Kind::Null
                && !nullable
                && !required.contains(&key.raw.as_str())
                && known.contains_key(&key.raw)
            {
                continue;
            }
            match self.value(value, below, &here) {
                Some(value) => {
                    out.insert(key.raw.clone(), value);
                }
                None => {
                    self.broken.insert(here);
                    if required.contains(&key.raw.as_str()) {
                        out.insert(key.raw.clone(), empty(below));
                    }
                }
            }
        }
        for key in required {
            if !entries.iter().any(|(have, _)| have.raw == key) {
                let here = join(path, key);
                let what = known[key]["description"].as_str().unwrap_or_default();
                // A misspelt key is one mistake, not two.
                if !meant.contains(&key) {
                    self.report(node, &here, format!("`{key}` is missing"), &describe(what));
                }
                self.broken.insert(here);
                out.insert(key.to_owned(), empty(&known[key]));
            }
        }
        Value::Object(out)
    }

    fn array(&mut self, node: &Yaml, items: &[Yaml], schema: &Value, path: &str) -> Value {
        let mut out = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let here = format!("{path}[{index}]");
            match self.value(item, &schema["items"], &here) {
                Some(value) => out.push(value),
                // An empty replacement keeps the indexes of the following items right.
                None if schema["items"]["format"] == "ipv4-network" => {
                    out.push(empty(&schema["items"]));
                    self.broken.insert(here);
                }
                None => {
                    self.broken.insert(path.to_owned());
                }
            }
        }
        let least = schema["minItems"].as_u64().unwrap_or(0);
        if (items.len() as u64) < least {
            self.report(
                node,
                path,
                "the list is empty".to_owned(),
                "name at least one",
            );
            self.broken.insert(path.to_owned());
        }
        Value::Array(out)
    }

    fn integer(&mut self, node: &Yaml, value: i64, schema: &Value, path: &str) -> Option<Value> {
        let (low, high) = (schema["minimum"].as_i64(), schema["maximum"].as_i64());
        if low.is_some_and(|low| value < low) || high.is_some_and(|high| value > high) {
            let shown = |bound: Option<i64>, other: &str| {
                bound.map_or_else(|| other.to_owned(), |b| b.to_string())
            };
            let hint = format!(
                "from {} to {}",
                shown(low, "anything"),
                shown(high, "anything")
            );
            self.report(node, path, format!("{value} is out of range"), &hint);
            return None;
        }
        Some(Value::from(value))
    }

    fn string(&mut self, node: &Yaml, schema: &Value, path: &str) -> Option<Value> {
        let text = node.raw.as_str();
        if let Some(wanted) = schema["const"].as_str()
            && wanted != text
        {
            self.report(
                node,
                path,
                format!("`{text}` is not what this file must be"),
                &format!("write {wanted}"),
            );
            return None;
        }
        if let Some(allowed) = schema["enum"].as_array() {
            let allowed: Vec<&str> = allowed.iter().filter_map(Value::as_str).collect();
            if !allowed.contains(&text) {
                let hint = match near(text, &allowed) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("one of: {}", allowed.join(", ")),
                };
                self.report(
                    node,
                    path,
                    format!("`{text}` is not one of the choices"),
                    &hint,
                );
                return None;
            }
        }
        if let Some(format) = schema["format"].as_str()
            && let Err(misfit) = formats::check(format, text)
        {
            self.report(
                node,
                path,
                format!("`{text}` {}", misfit.message),
                &misfit.hint,
            );
            return None;
        }
        Some(Value::from(text))
    }
}

/// The types that a schema allows; none means anything.
fn types(schema: &Value) -> Vec<&str> {
    match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(many) => many.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// Same letters in another case are nearest.
fn near<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let folded = |text: &str| text.to_ascii_lowercase().replace(['-', '_'], "");
    candidates
        .iter()
        .find(|candidate| folded(candidate) == folded(word))
        .copied()
        .or_else(|| did_you_mean(word, candidates.iter().copied()))
}

fn article(kind: &str) -> &str {
    match kind {
        "object" => "a mapping",
        "array" => "a list",
        "boolean" => "a boolean",
        "integer" => "a whole number",
        _ => "a text",
    }
}

fn describe(doc: &str) -> String {
    let first = doc
        .split("\n\n")
        .next()
        .unwrap_or_default()
        .replace('\n', " ");
    if first.is_empty() {
        String::new()
    } else {
        format!("it says: {first}")
    }
}

/// The replacement of a required value that could not be used.
fn empty(schema: &Value) -> Value {
    match types(schema).first().copied().unwrap_or_default() {
        "object" => {
            let mut out = Map::new();
            for key in schema["required"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
            {
                out.insert(key.to_owned(), empty(&schema["properties"][key]));
            }
            Value::Object(out)
        }
        "array" => json!([]),
        "boolean" => json!(false),
        "integer" => schema.get("minimum").cloned().unwrap_or(json!(0)),
        _ => match schema["format"].as_str() {
            // It is never used, because its path is recorded as unusable, but it must parse.
            Some("ipv4-address") => json!("0.0.0.0"),
            Some("ipv4-network") => json!("0.0.0.0/32"),
            _ => schema["enum"][0]
                .as_str()
                .map_or(json!(""), |first| json!(first)),
        },
    }
}
