//! The reader itself.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{Rules, empty, required, types};
use crate::problem::Problem;
use crate::source::{is_secret, join};
use crate::suggestion::did_you_mean;
use crate::yaml;
use crate::yaml::{Node as Yaml, NodeKind};

/// Reads `node` by the schema: the usable part, the paths that were unusable, and all problems.
/// `text` is only used for excerpts.
pub(super) fn read(
    node: &Yaml,
    text: &str,
    schema: &Value,
    rules: &dyn Rules,
) -> (Value, BTreeSet<String>, Vec<Problem>) {
    let mut reader = Reader {
        text,
        rules,
        problems: Vec::new(),
        broken: BTreeSet::new(),
    };
    let value = reader.value(node, schema, "").unwrap_or_else(|| {
        reader.broken.insert(String::new());
        empty(schema, rules)
    });
    (value, reader.broken, reader.problems)
}

struct Reader<'a> {
    text: &'a str,
    rules: &'a dyn Rules,
    problems: Vec<Problem>,
    broken: BTreeSet<String>,
}

impl Reader<'_> {
    fn report(&mut self, node: &Yaml, path: &str, message: String, hint: &str) {
        let problem = Problem::at(&node.position, message).path(path).hint(hint);
        // The line of a secret is not displayed.
        let shown = if is_secret(self.rules.secret_paths(), path) {
            problem
        } else {
            problem.excerpt_from(self.text)
        };
        self.problems.push(shown);
    }

    /// The JSON of a node; `None` if it was unusable (and was reported).
    fn value(&mut self, node: &Yaml, schema: &Value, path: &str) -> Option<Value> {
        let types = types(schema);
        if types.is_empty() {
            return Some(node.to_json());
        }
        if node.kind == NodeKind::Null && types.contains(&"null") {
            return Some(Value::Null);
        }
        let is = |name| types.contains(&name);
        match &node.kind {
            NodeKind::Null => {
                let message = "the value is missing".to_owned();
                self.report(
                    node,
                    path,
                    message,
                    &format!("give it {}", articles(&types)),
                );
                None
            }
            NodeKind::Map(entries) if is("object") => {
                Some(self.object(node, entries, schema, path))
            }
            NodeKind::List(items) if is("array") => Some(self.array(node, items, schema, path)),
            NodeKind::Bool(value) if is("boolean") => Some(Value::Bool(*value)),
            NodeKind::Int(value) if is("integer") => self.integer(node, *value, schema, path),
            _ if is("string") && node.is_scalar() => self.string(node, schema, path),
            kind => {
                let hint = match kind {
                    _ if is("boolean") => "write true or false".to_owned(),
                    NodeKind::Text(_) | NodeKind::Int(_) if is("array") => {
                        self.as_list(node, schema, path)
                    }
                    _ => String::new(),
                };
                let message = format!("must be {}, not {}", articles(&types), node.kind_name());
                self.report(node, path, message, &hint);
                None
            }
        }
    }

    /// The hint for a text where a list is needed: the list of that text, if the schema accepts it.
    fn as_list(&self, node: &Yaml, schema: &Value, path: &str) -> String {
        let list = format!("[{}]", node.raw);
        let is_accepted = yaml::parse("", &list).is_ok_and(|root| {
            let (_, _, problems) = read(&root, "", schema, self.rules);
            problems.is_empty() && root.items().len() == 1
        });
        if is_accepted && !is_secret(self.rules.secret_paths(), path) {
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
        let required = required(schema);
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
                                    // Renamed to it, the key would be refused as a duplicate.
                                    format!("`{near}` exists already; remove this key")
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
                            && let Err(misfit) = self.rules.check(format, &key.raw)
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
            // `labels:` without a value means the same as no `labels`.
            let nullable = types(below).is_empty() || types(below).contains(&"null");
            if value.kind == NodeKind::Null
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
                        out.insert(key.raw.clone(), empty(below, self.rules));
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
                out.insert(key.to_owned(), empty(&known[key], self.rules));
            }
        }
        Value::Object(out)
    }

    fn array(&mut self, node: &Yaml, items: &[Yaml], schema: &Value, path: &str) -> Value {
        let items_schema = &schema["items"];
        let mut out = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let here = format!("{path}[{index}]");
            match self.value(item, items_schema, &here) {
                Some(value) => out.push(value),
                // An empty replacement preserves the indexes of the following items.
                None if types(items_schema).contains(&"object")
                    || items_schema["format"]
                        .as_str()
                        .is_some_and(|format| self.rules.placeholder(format).is_some()) =>
                {
                    out.push(empty(items_schema, self.rules));
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
        if let Some(wanted) = schema["const"].as_i64()
            && wanted != value
        {
            let message = format!("`{value}` is not the required value");
            self.report(node, path, message, &format!("write {wanted}"));
            return None;
        }
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
        if text.is_empty() && schema["minLength"].as_u64().unwrap_or(0) > 0 {
            let what = schema["description"].as_str().unwrap_or_default();
            self.report(node, path, "the text is empty".to_owned(), &describe(what));
            return None;
        }
        if let Some(wanted) = schema["const"].as_str()
            && wanted != text
        {
            self.report(
                node,
                path,
                format!("`{text}` is not the required value"),
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
            && let Err(misfit) = self.rules.check(format, text)
        {
            // Redact malformed or misplaced secrets, too.
            let shown = if is_secret(self.rules.secret_paths(), path) {
                "the value".to_owned()
            } else {
                format!("`{text}`")
            };
            let message = format!("{shown} {}", misfit.message);
            self.report(node, path, message, &misfit.hint);
            return None;
        }
        Some(Value::from(text))
    }
}

/// The nearest candidate; the same letters in another case come first.
fn near<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let folded = |text: &str| text.to_ascii_lowercase().replace(['-', '_'], "");
    candidates
        .iter()
        .find(|candidate| folded(candidate) == folded(word))
        .copied()
        .or_else(|| did_you_mean(word, candidates.iter().copied()))
}

/// The types in words: `a text or a mapping`.
fn articles(types: &[&str]) -> String {
    let article = |kind: &&str| match *kind {
        "object" => "a mapping",
        "array" => "a list",
        "boolean" => "a boolean",
        "integer" => "a whole number",
        _ => "a text",
    };
    let words: Vec<&str> = types
        .iter()
        .filter(|kind| **kind != "null")
        .map(article)
        .collect();
    match words.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => words.concat(),
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
        format!("expected: {first}")
    }
}
