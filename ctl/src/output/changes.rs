//! The changes of a state, as text for people: diffs as diffs, pairs as `old → new`.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Paint, table};

/// Formats a `changes` mapping as lines without indentation.
pub fn lines(changes: &Map<String, Value>, paint: Paint) -> Vec<String> {
    let mut out = Vec::new();
    for (key, value) in changes {
        entry(&table::line(key), value, paint, &mut out);
    }
    out
}

fn entry(key: &str, value: &Value, paint: Paint, out: &mut Vec<String>) {
    match value {
        Value::String(text) if text.contains('\n') => {
            if key != "diff" {
                out.push(format!("{key}:"));
            }
            out.extend(
                text.trim_end_matches('\n')
                    .lines()
                    .map(|line| painted(line, paint)),
            );
        }
        Value::Object(map) if !map.is_empty() => match Pair::deserialize(value) {
            Ok(pair) => pair_lines(key, &pair, paint, out),
            Err(_) => {
                out.push(format!("{key}:"));
                for line in lines(map, paint) {
                    out.push(format!("  {line}"));
                }
            }
        },
        other => out.push(format!("{key}: {}", short(other))),
    }
}

/// A change of one value.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pair {
    old: Option<Value>,
    new: Option<Value>,
}

fn pair_lines(key: &str, pair: &Pair, paint: Paint, out: &mut Vec<String>) {
    let side = |value: &Option<Value>| value.as_ref().map_or_else(|| "-".to_owned(), short);
    let (old, new) = (side(&pair.old), side(&pair.new));
    if old.contains('\n') || new.contains('\n') {
        out.push(format!("{key}:"));
        out.extend(old.lines().map(|line| painted(&format!("-{line}"), paint)));
        out.extend(new.lines().map(|line| painted(&format!("+{line}"), paint)));
    } else {
        out.push(format!("{key}: {old} → {new}"));
    }
}

fn short(value: &Value) -> String {
    match value {
        Value::String(text) if !text.is_empty() => text.clone(),
        other => table::cell(other),
    }
}

fn painted(line: &str, paint: Paint) -> String {
    if line.starts_with('+') {
        paint.good(line)
    } else if line.starts_with('-') {
        paint.bad(line)
    } else {
        line.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_kind_of_change_has_its_form() {
        let changes = json!({
            "diff": "--- \n+++ \n@@ -1 +1 @@\n-a\n+b\n",
            "mode": {"old": "0644", "new": "0600"},
            "installed": {"kubelet": {"old": "", "new": "1.36.3-1"}},
            "owner": {"new": "root"},
            "old": {"old": "a", "other": "b"},
            "refreshed": true,
        });
        let Value::Object(changes) = changes else {
            panic!()
        };
        assert_eq!(
            lines(&changes, Paint { colour: false }),
            [
                "--- ",
                "+++ ",
                "@@ -1 +1 @@",
                "-a",
                "+b",
                "mode: 0644 → 0600",
                "installed:",
                "  kubelet: - → 1.36.3-1",
                "owner: - → root",
                "old:",
                "  old: a",
                "  other: b",
                "refreshed: yes",
            ]
        );
    }
}
