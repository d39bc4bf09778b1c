//! Data as the text of a file, byte for byte as Salt's `file.serialize` writes it. Data for which
//! that is not sure are refused.

use std::sync::OnceLock;

use halite_document::yaml::KEY_MARK;
use regex::Regex;
use serde_json::{Map, Value};

/// A text with blanks may have this many bytes; PyYAML breaks longer ones into lines.
const MAX_BROKEN: usize = 60;
/// A key may have this many bytes; PyYAML writes longer ones in another form.
const MAX_KEY: usize = 100;

/// Data that cannot be written exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum SerializeError {
    #[error("a key that is not a text, or is long")]
    Key,
    #[error("a number with an exponent")]
    Exponent,
    #[error("a text with several lines, with signs that are not ASCII, or a long one")]
    Text,
}

type Written<T> = Result<T, SerializeError>;

/// JSON, with sorted keys and an indentation of two.
pub(super) fn json(value: &Value) -> Written<String> {
    Ok(json_at(value, 0)? + "\n")
}

fn json_at(value: &Value, depth: usize) -> Written<String> {
    let (inner, outer) = ("  ".repeat(depth + 1), "  ".repeat(depth));
    let around = |open: char, items: Vec<String>, close: char| {
        if items.is_empty() {
            return format!("{open}{close}");
        }
        format!(
            "{open}\n{inner}{}\n{outer}{close}",
            items.join(&format!(",\n{inner}"))
        )
    };
    Ok(match value {
        Value::Array(items) => {
            let items: Written<Vec<String>> =
                items.iter().map(|item| json_at(item, depth + 1)).collect();
            around('[', items?, ']')
        }
        Value::Object(map) => {
            let mut items = Vec::new();
            for (key, value) in sorted(map)? {
                items.push(format!(
                    "{}: {}",
                    Value::from(key),
                    json_at(value, depth + 1)?
                ));
            }
            around('{', items, '}')
        }
        Value::Number(_) => number(value)?,
        scalar => scalar.to_string(),
    })
}

/// YAML in block style, with sorted keys.
pub(super) fn yaml(value: &Value) -> Written<String> {
    Ok(lines(value)?.join("\n") + "\n")
}

fn lines(value: &Value) -> Written<Vec<String>> {
    let mut all = Vec::new();
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in sorted(map)? {
                let key = text(key)?;
                let mut below = lines(value)?;
                match value {
                    Value::Object(map) if !map.is_empty() => {
                        all.push(format!("{key}:"));
                        all.extend(below.iter().map(|line| format!("  {line}")));
                    }
                    Value::Array(items) if !items.is_empty() => {
                        all.push(format!("{key}:"));
                        all.append(&mut below);
                    }
                    _ => all.push(format!("{key}: {}", below.concat())),
                }
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                for (at, line) in lines(item)?.into_iter().enumerate() {
                    all.push(format!("{}{line}", if at == 0 { "- " } else { "  " }));
                }
            }
        }
        Value::Object(_) => all.push("{}".to_owned()),
        Value::Array(_) => all.push("[]".to_owned()),
        Value::String(scalar) => all.push(text(scalar)?),
        Value::Number(_) => all.push(number(value)?),
        scalar => all.push(scalar.to_string()),
    }
    Ok(all)
}

fn sorted(map: &Map<String, Value>) -> Written<Vec<(&str, &Value)>> {
    let mut entries: Vec<(&str, &Value)> = map.iter().map(|(k, v)| (k.as_str(), v)).collect();
    if entries
        .iter()
        .any(|(key, _)| key.starts_with(KEY_MARK) || key.len() > MAX_KEY)
    {
        return Err(SerializeError::Key);
    }
    entries.sort_by_key(|(key, _)| *key);
    Ok(entries)
}

fn number(value: &Value) -> Written<String> {
    let text = value.to_string();
    if text.contains(['e', 'E']) {
        return Err(SerializeError::Exponent);
    }
    Ok(text)
}

/// A text, in quotes where PyYAML puts it in quotes.
fn text(text: &str) -> Written<String> {
    let is_plain_ascii = text.bytes().all(|byte| (0x20..=0x7e).contains(&byte));
    if !is_plain_ascii || text.contains(' ') && text.len() > MAX_BROKEN {
        return Err(SerializeError::Text);
    }
    Ok(if is_plain(text) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "''"))
    })
}

fn is_plain(text: &str) -> bool {
    let mut letters = text.chars();
    let (first, second) = (letters.next().unwrap_or(' '), letters.next().unwrap_or(' '));
    let begins = match first {
        '?' | ':' | '-' => second != ' ',
        first => !"#,[]{}&*!|>'\"%@` ".contains(first),
    };
    begins
        && !text.ends_with([' ', ':'])
        && !text.starts_with("---")
        && !text.starts_with("...")
        && !text.contains(": ")
        && !text.contains(" #")
        && !is_special(text)
}

/// Tests whether YAML 1.1 reads a text without quotes as something else.
fn is_special(text: &str) -> bool {
    static SPECIAL: OnceLock<Option<Regex>> = OnceLock::new();
    let special = SPECIAL.get_or_init(|| {
        Regex::new(concat!(
            r"^(?:yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF",
            r"|[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?",
            r"|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
            r"|[-+]?0b[0-1_]+|[-+]?0[0-7_]+|[-+]?(?:0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+",
            r"|[-+]?[1-9][0-9_]*(?::[0-5]?[0-9])+|<<|=|~|null|Null|NULL|",
            r"|[0-9]{4}-[0-9]{2}-[0-9]{2}",
            r"|[0-9]{4}-[0-9][0-9]?-[0-9][0-9]?(?:[Tt]|[ \t]+)[0-9][0-9]?:[0-9]{2}:[0-9]{2}(?:\.[0-9]*)?",
            r"(?:[ \t]*(?:Z|[-+][0-9][0-9]?(?::[0-9]{2})?))?)$",
        ))
        .ok()
    });
    special
        .as_ref()
        .is_none_or(|special| special.is_match(text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The texts are those of Salt 3008.3.
    #[test]
    fn data_are_written_as_salt_writes_them() {
        let data = json!({
            "b": {"y": [1, "two", {"k": "v", "a": []}], "x": {}},
            "a": "text", "n": null, "t": true, "f": 1.5, "i": -3, "yes": [[2, 3]],
        });
        assert_eq!(
            yaml(&data).unwrap(),
            "a: text\nb:\n  x: {}\n  y:\n  - 1\n  - two\n  - a: []\n    k: v\nf: 1.5\ni: -3\nn: null\nt: true\n'yes':\n- - 2\n  - 3\n"
        );
        assert_eq!(
            json(&json!({"b": [1, {"k": "é\n"}], "a": {}, "c": []})).unwrap(),
            "{\n  \"a\": {},\n  \"b\": [\n    1,\n    {\n      \"k\": \"é\\n\"\n    }\n  ],\n  \"c\": []\n}\n"
        );
    }

    #[test]
    fn texts_have_pyyamls_quotes() {
        for plain in [
            "plain text",
            "a#b",
            "-x",
            ":x",
            "a,b",
            "a[b]",
            "a'b",
            "1e3",
            "http://x/y?z=1&a",
            "a%",
            "?a",
            "a\\b",
            "1.2.3",
            ".",
            "a{b",
            "a|b",
            "a>b",
            "a&b",
        ] {
            assert_eq!(text(plain).unwrap(), plain);
        }
        for quoted in [
            "yes",
            "0644",
            "1:30",
            "a: b",
            "a #b",
            "- x",
            "x:",
            "",
            "*a",
            "[a]",
            "\"q\"",
            " lead",
            "trail ",
            "2026-01-02",
            "=",
            "<<",
            "~",
            "null",
            "1_000",
            "0x1F",
            "%a",
            "@a",
            "`a",
            "!a",
            "? a",
            "---",
            "--- a",
            "...",
            ".5",
            "1.",
            "on",
            "NO",
            "{a}",
            "|",
            ">",
            "#a",
            "&a",
        ] {
            assert_eq!(text(quoted).unwrap(), format!("'{quoted}'"));
        }
        for refused in ["a\nb", "é", "a\tb", &"word ".repeat(20)] {
            assert_eq!(text(refused), Err(SerializeError::Text));
        }
    }
}
