//! Values as JSON and YAML texts, as Salt's filters write them.

use halite_document::yaml::{NodeKind, scalar};
use serde_json::Value;

/// The start of a key that is not a text in YAML; from the private use area.
const UNQUOTED: char = '\u{F8F2}';

/// A key that YAML writes without quotes.
pub(super) fn unquoted(key: &str) -> String {
    format!("{UNQUOTED}{key}")
}

fn quoted_key(key: &str) -> String {
    match key.strip_prefix(UNQUOTED) {
        Some(key) => key.to_owned(),
        None => Value::from(key).to_string(),
    }
}

/// One line of JSON with a blank after `,` and `:`, as Python writes it; it is also YAML's flow
/// style.
pub(super) fn flow(value: &Value) -> String {
    match value {
        Value::Array(items) => format!(
            "[{}]",
            items.iter().map(flow).collect::<Vec<_>>().join(", ")
        ),
        Value::Object(map) => {
            let entries: Vec<String> = map
                .iter()
                .map(|(key, value)| format!("{}: {}", quoted_key(key), flow(value)))
                .collect();
            format!("{{{}}}", entries.join(", "))
        }
        other => other.to_string(),
    }
}

/// JSON over several lines.
pub(super) fn pretty(value: &Value, indent: usize) -> String {
    let mut out = String::new();
    pretty_into(value, indent, indent, &mut out);
    out
}

fn pretty_into(value: &Value, step: usize, column: usize, out: &mut String) {
    let pad = " ".repeat(column);
    let end = " ".repeat(column - step.min(column));
    match value {
        Value::Array(items) if !items.is_empty() => {
            out.push_str("[\n");
            for (number, item) in items.iter().enumerate() {
                out.push_str(&pad);
                pretty_into(item, step, column + step, out);
                out.push_str(if number + 1 < items.len() {
                    ",\n"
                } else {
                    "\n"
                });
            }
            out.push_str(&format!("{end}]"));
        }
        Value::Object(map) if !map.is_empty() => {
            out.push_str("{\n");
            for (number, (key, item)) in map.iter().enumerate() {
                out.push_str(&format!("{pad}{}: ", Value::from(key.as_str())));
                pretty_into(item, step, column + step, out);
                out.push_str(if number + 1 < map.len() { ",\n" } else { "\n" });
            }
            out.push_str(&format!("{end}}}"));
        }
        other => out.push_str(&flow(other)),
    }
}

/// YAML's block style, without a newline at the end.
pub(super) fn block(value: &Value) -> String {
    let mut lines = Vec::new();
    block_into(value, "", &mut lines);
    lines.join("\n")
}

fn block_into(value: &Value, pad: &str, lines: &mut Vec<String>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, item) in map {
                let key = match key.strip_prefix(UNQUOTED) {
                    Some(key) => key.to_owned(),
                    None => plain(key),
                };
                match item {
                    Value::Object(inner) if !inner.is_empty() => {
                        lines.push(format!("{pad}{key}:"));
                        block_into(item, &format!("{pad}  "), lines);
                    }
                    // As Salt's `yaml` filter, and kubeadm, write lists: not indented.
                    Value::Array(inner) if !inner.is_empty() => {
                        lines.push(format!("{pad}{key}:"));
                        block_into(item, pad, lines);
                    }
                    _ => lines.push(format!("{pad}{key}: {}", leaf(item))),
                }
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                let first = lines.len();
                block_into(item, &format!("{pad}  "), lines);
                if let Some(line) = lines.get_mut(first) {
                    line.replace_range(pad.len()..pad.len() + 2, "- ");
                }
            }
        }
        _ => lines.push(format!("{pad}{}", leaf(value))),
    }
}

fn leaf(value: &Value) -> String {
    match value {
        Value::String(text) => plain(text),
        other => flow(other),
    }
}

/// A text as a YAML scalar: plain if it cannot be read as another type, else quoted.
fn plain(text: &str) -> String {
    let first = text.chars().next().unwrap_or(' ');
    let simple = (first.is_alphanumeric() || matches!(first, '/' | '_' | '.'))
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains(" #")
        && text.chars().all(|c| !c.is_control())
        && matches!(scalar::resolve(text), NodeKind::Text(_))
        && !is_time(text);
    if simple {
        text.to_owned()
    } else {
        Value::from(text).to_string()
    }
}

/// Tests whether YAML 1.1, which Salt and many programs read, takes a text for a number of base 60
/// (`22:22`) or a date.
fn is_time(text: &str) -> bool {
    let (first, rest) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(0));
    let of = |allowed: &str| {
        rest.chars()
            .all(|c| c.is_ascii_digit() || allowed.contains(c))
    };
    !first.is_empty()
        && (rest.starts_with(':') && of(":._")
            || first.len() == 4 && rest.starts_with('-') && of("-:.+ TtZz"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn block_style_reads_back_unchanged() {
        let value = json!({
            "a": {"b": [1, "two", {"c": null, "d": [[], {}, [1, [2]]]}]},
            "text": "x: y", "yes": "yes", "0644": "0644", "lines": "a\nb\n", "empty": "", "star": "*", "time": "1:2",
        });
        let text = block(&value);
        assert_eq!(
            halite_secrets::yaml::parse("x", &text).unwrap().to_json(),
            value,
            "{text}"
        );
        assert_eq!(block(&json!([{"a": 1, "b": 2}])), "- a: 1\n  b: 2");
        let times = json!([
            "22:22",
            "2026-01-02",
            "1.36.3-1",
            "10.0.0.1",
            "12:30x",
            "v1"
        ]);
        assert_eq!(
            block(&times),
            "- \"22:22\"\n- \"2026-01-02\"\n- 1.36.3-1\n- 10.0.0.1\n- 12:30x\n- v1"
        );
    }

    #[test]
    fn json_is_pythons() {
        let value = json!({"a": [1, {"b": "x"}], "c": {}});
        assert_eq!(flow(&value), r#"{"a": [1, {"b": "x"}], "c": {}}"#);
        assert_eq!(
            pretty(&json!({"a": [1]}), 2),
            "{\n  \"a\": [\n    1\n  ]\n}"
        );
        assert_eq!(
            serde_json::from_str::<Value>(&pretty(&value, 4)).unwrap(),
            value
        );
    }
}
