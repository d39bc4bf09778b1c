//! Documents as text for people: a list of mappings becomes a table, a mapping becomes lines.

use halite_document::text::escape;
use serde_json::{Map, Value};

/// Formats any document.
pub fn document(value: &Value) -> String {
    match value {
        Value::Object(map) => object(map),
        Value::Array(items) => list(items),
        other => cell(other) + "\n",
    }
}

/// Formats a table without frames, which is easy to process with `cut` and `awk`.
pub fn rows(heading: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let head: Vec<String> = heading.iter().map(|name| name.to_uppercase()).collect();
    let rows = rows
        .into_iter()
        .map(|row| row.iter().map(|cell| line(cell)).collect());
    let all: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    if all.len() == 1 {
        return "none\n".to_owned();
    }
    let width = |column: usize| {
        all.iter()
            .filter_map(|row| Some(row.get(column)?.chars().count()))
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heading.len()).map(width).collect();
    let mut text = String::new();
    for row in &all {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}", width = *width))
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Formats lines of a name and a value; those with the value `-` are left out.
pub fn fields(fields: &[(&str, String)]) -> String {
    let shown = fields.iter().filter(|(_, value)| value != "-");
    let width = shown.clone().map(|(name, _)| name.len()).max();
    let width = width.unwrap_or_default();
    let lines = shown.map(|(name, value)| format!("{name:width$}  {}\n", line(value)));
    lines.collect()
}

/// The maximum length in bytes of a value in a table of changes: an image reference with the start
/// of its digest fits.
const LONGEST: usize = 80;

/// A table of changes: name, old and new value, each cut to 80 bytes.
pub fn changes<'a>(
    heading: &str,
    changes: impl IntoIterator<Item = (&'a str, Option<&'a str>, Option<&'a str>)>,
) -> String {
    let short = |text: Option<&str>| {
        text.map_or("-", |text| text.get(..LONGEST).unwrap_or(text))
            .to_owned()
    };
    let row = |(name, old, new): (&str, _, _)| vec![name.to_owned(), short(old), short(new)];
    rows(&[heading, "old", "new"], changes.into_iter().map(row))
}

fn object(map: &Map<String, Value>) -> String {
    let mut text = String::new();
    let mut sections = String::new();
    let width = map
        .iter()
        .filter(|(_, v)| is_plain(v))
        .map(|(k, _)| line(k).chars().count())
        .max()
        .unwrap_or(0);
    for (key, value) in map {
        if is_plain(value) {
            text.push_str(&format!("{:width$}  {}\n", line(key), cell(value)));
        } else {
            let below = document(value);
            sections.push_str(&format!("\n{}\n", line(key)));
            below
                .lines()
                .for_each(|line| sections.push_str(&format!("  {line}\n")));
        }
    }
    let text = text + &sections;
    // A single section needs no title.
    match (map.len(), map.values().next()) {
        (1, Some(only)) if only.is_array() || !is_plain(only) => document(only),
        (0, _) => "none\n".to_owned(),
        _ => text.trim_start_matches('\n').to_owned(),
    }
}

fn list(items: &[Value]) -> String {
    if items.is_empty() {
        return "none\n".to_owned();
    }
    let mut columns: Vec<&str> = Vec::new();
    for item in items {
        let Value::Object(map) = item else {
            return items.iter().map(|item| cell(item) + "\n").collect();
        };
        for key in map.keys() {
            if !columns.contains(&key.as_str()) {
                columns.push(key);
            }
        }
    }
    // A column without values is left out.
    columns.retain(|column| {
        items.iter().any(|item| {
            !matches!(item.get(*column), None | Some(Value::Null)) && item[*column] != ""
        })
    });
    rows(
        &columns,
        items
            .iter()
            .map(|item| columns.iter().map(|column| cell(&item[*column])).collect()),
    )
}

fn is_plain(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items
            .iter()
            .all(|item| !item.is_object() && !item.is_array()),
        _ => true,
    }
}

/// Formats one value on one line.
pub fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => line(text),
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
        Value::Array(items) if items.is_empty() => "-".to_owned(),
        Value::Array(items) => items.iter().map(cell).collect::<Vec<_>>().join(","),
        Value::Object(map) if map.is_empty() => "-".to_owned(),
        other => line(&other.to_string()),
    }
}

/// Formats a text on one line, without characters that a terminal interprets.
pub fn line(text: &str) -> String {
    escape(text).replace(['\n', '\t'], " ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_list_of_mappings_is_a_table() {
        let value = json!({"keys": [
            {"id": "worker-1", "state": "accepted", "roles": ["worker", "infra"], "serial": null},
            {"id": "b", "state": "pending", "roles": [], "connected": true},
        ]});
        assert_eq!(
            document(&value),
            "ID        STATE     ROLES         CONNECTED\n\
             worker-1  accepted  worker,infra  -\n\
             b         pending   -             yes\n"
        );
    }

    #[test]
    fn no_value_writes_outside_of_its_cell() {
        let hostile = "w7\x1b[s\x1b[60G5a:5a\x1b[8m\r\u{9b}31m\u{202e}\nx\ty";
        let value = json!({"keys": [{"id": "worker-7", "host": hostile, "fingerprint": "00"}], "x\x1b": hostile});
        let cells = rows(&["host"], [vec![hostile.to_owned()]]);
        for text in [cell(&json!(hostile)), document(&value), cells.clone()] {
            assert!(
                !text.contains(halite_document::text::is_deceptive),
                "{text:?}"
            );
        }
        assert_eq!(cells.lines().count(), 2, "{cells}");
        assert_eq!(
            document(&value)
                .lines()
                .filter(|line| line.contains("worker-7"))
                .count(),
            1
        );
    }

    #[test]
    fn a_mapping_is_lines_and_sections() {
        let value = json!({"cluster": "prod", "minions": [{"id": "a"}], "ok": true});
        assert_eq!(
            document(&value),
            "cluster  prod\nok       yes\n\nminions\n  ID\n  a\n"
        );
        assert_eq!(document(&json!({"keys": []})), "none\n");
    }
}
