//! The text of a document whose comments are the descriptions in its schema.

use serde_json::Value;

use super::prose::{description, first_sentence};
use crate::yaml::{self, NodeKind};

/// The column in which comments end.
const COLUMNS: usize = 100;

/// Writes a document as YAML: its keys in the order of the schema, each below the first sentence of
/// its description. Keys that the schema does not know come last.
#[must_use]
pub fn commented(schema: &Value, document: &Value) -> String {
    let mut text = String::new();
    mapping(schema, document, 0, &mut text);
    text
}

fn mapping(schema: &Value, value: &Value, indent: usize, text: &mut String) {
    let known = schema["properties"].as_object();
    let has = |key: &str| known.is_some_and(|known| known.contains_key(key));
    let further = value.as_object().into_iter().flatten();
    let further = further.map(|(key, _)| key).filter(|key| !has(key));
    for key in known
        .into_iter()
        .flat_map(|known| known.keys())
        .chain(further)
    {
        let Some(value) = value.get(key) else {
            continue;
        };
        let schema = &schema["properties"][key];
        let is_constant = schema.get("const").is_some();
        if indent == 0 && !is_constant {
            text.push('\n');
        }
        if !is_constant {
            comment(first_sentence(&description(schema)), indent, text);
        }
        let (spaces, key) = (" ".repeat(indent), scalar(key));
        let is_section = schema["properties"].is_object()
            && value.as_object().is_some_and(|below| !below.is_empty());
        if is_section {
            text.push_str(&format!("{spaces}{key}:\n"));
            mapping(schema, value, indent + 2, text);
        } else {
            text.push_str(&format!("{spaces}{key}: {}\n", flow(value)));
        }
    }
}

fn comment(sentence: &str, indent: usize, text: &mut String) {
    let start = format!("{}#", " ".repeat(indent));
    let mut line = start.clone();
    for word in sentence.split_whitespace() {
        if line.len() > start.len() && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            text.push_str(&line);
            text.push('\n');
            line.clone_from(&start);
        }
        line.push(' ');
        line.push_str(word);
    }
    if line.len() > start.len() {
        text.push_str(&line);
        text.push('\n');
    }
}

/// A value on one line.
fn flow(value: &Value) -> String {
    match value {
        Value::String(text) => scalar(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(flow).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(map) => {
            let pair =
                |(key, value): (&String, &Value)| format!("{}: {}", scalar(key), flow(value));
            let pairs: Vec<String> = map.iter().map(pair).collect();
            format!("{{{}}}", pairs.join(", "))
        }
        other => other.to_string(),
    }
}

/// A text: in quotes unless every reader of YAML takes it for a text without them.
fn scalar(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '/' | '_' | '-');
    let is_text = text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(is_plain)
        && yaml::parse("", text).is_ok_and(|node| node.kind == NodeKind::Text(text.to_owned()));
    if is_text {
        text.to_owned()
    } else {
        // JSON is YAML.
        Value::from(text).to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn schema() -> Value {
        json!({"properties": {
            "kind": {"const": "X", "description": "Always X."},
            "net": {"description": "Nets. More.", "properties": {
                "cidrs": {"description": format!("Networks {}in order.", "that are long ".repeat(8))},
            }},
            "version": {"description": "The version."},
        }})
    }

    #[test]
    fn keys_have_the_order_and_the_words_of_the_schema() {
        let document = json!({"own": {"a b": "c: d", "e": null}, "version": "1.36",
            "net": {"cidrs": ["10.0.0.0/24", "yes"]}, "kind": "X"});
        let text = commented(&schema(), &document);
        let expected = "kind: X

# Nets.
net:
  # Networks that are long that are long that are long that are long that are long that are long
  # that are long that are long in order.
  cidrs: [10.0.0.0/24, \"yes\"]

# The version.
version: \"1.36\"

own: {\"a b\": \"c: d\", e: null}
";
        assert_eq!(text, expected);
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "[ -~é\n]{0,12}".prop_map(Value::from),
            "[0-9a-zA-Z._/-]{1,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-zA-Z0-9 .:-]{1,8}", inner, 0..4)
                    .prop_map(|map| map.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn every_document_reads_back(
            net in values(),
            other in values(),
        ) {
            let document = json!({"kind": "X", "net": {"cidrs": net}, "version": other.clone(), "z": other});
            let text = commented(&schema(), &document);
            let read = yaml::parse("f", &text).map(|node| node.to_json());
            prop_assert_eq!(read, Ok(document), "{}", text);
        }
    }
}
