//! Compares two pictures of a cluster by meaning, and reports every difference by place and path.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::difference::{Difference, Picture};
use super::duration::nanoseconds;

/// Returns all differences, sorted by place.
///
/// Mappings are compared by key, and lists of mappings by the field that identifies their items
/// (`name`, `key`, `mountPath`), so that their order does not count. In a list of texts a flag
/// (`--name=value`) is compared with the flag of the same name at any position, and all other items
/// must have the same order.
pub(super) fn compare(reference: &Picture, ours: &Picture) -> Vec<Difference> {
    let mut found = Vec::new();
    for place in reference.keys().chain(ours.keys()).collect::<BTreeSet<_>>() {
        let mut walk = Walk {
            place,
            found: &mut found,
        };
        walk.maybe(String::new(), reference.get(place), ours.get(place));
    }
    found
}

struct Walk<'a> {
    place: &'a str,
    found: &'a mut Vec<Difference>,
}

impl Walk<'_> {
    fn differs(&mut self, path: String, reference: Option<&Value>, ours: Option<&Value>) {
        self.found.push(Difference {
            place: self.place.to_owned(),
            path,
            reference: reference.cloned(),
            ours: ours.cloned(),
        });
    }

    fn maybe(&mut self, path: String, reference: Option<&Value>, ours: Option<&Value>) {
        match (reference, ours) {
            (Some(reference), Some(ours)) => self.both(path, reference, ours),
            (None, None) => {}
            _ => self.differs(path, reference, ours),
        }
    }

    fn both(&mut self, path: String, reference: &Value, ours: &Value) {
        match (reference, ours) {
            (Value::Object(reference), Value::Object(ours)) => {
                self.mappings(&path, reference, ours)
            }
            (Value::Array(reference), Value::Array(ours)) => self.lists(path, reference, ours),
            _ if same(reference, ours) => {}
            _ => self.differs(path, Some(reference), Some(ours)),
        }
    }

    fn mappings(&mut self, path: &str, reference: &Map<String, Value>, ours: &Map<String, Value>) {
        for key in reference.keys().chain(ours.keys()).collect::<BTreeSet<_>>() {
            self.maybe(below(path, key), reference.get(key), ours.get(key));
        }
    }

    fn lists(&mut self, path: String, reference: &[Value], ours: &[Value]) {
        if let Some(field) = identity(reference, ours) {
            let named = |items: &[Value]| -> BTreeMap<String, Value> {
                items
                    .iter()
                    .map(|item| (label(&item[field]), item.clone()))
                    .collect()
            };
            let (reference, ours) = (named(reference), named(ours));
            for name in reference.keys().chain(ours.keys()).collect::<BTreeSet<_>>() {
                self.maybe(
                    format!("{path}[{name}]"),
                    reference.get(name),
                    ours.get(name),
                );
            }
        } else if reference
            .iter()
            .chain(ours)
            .all(|item| !item.is_object() && !item.is_array())
        {
            self.scalars(path, reference, ours);
        } else {
            for index in 0..reference.len().max(ours.len()) {
                self.maybe(
                    format!("{path}[{index}]"),
                    reference.get(index),
                    ours.get(index),
                );
            }
        }
    }

    fn scalars(&mut self, path: String, reference: &[Value], ours: &[Value]) {
        let before = self.found.len();
        let keys: BTreeSet<String> = reference.iter().chain(ours).map(flag).collect();
        for key in keys {
            let of = |items: &[Value]| -> Vec<Value> {
                items
                    .iter()
                    .filter(|item| flag(item) == key)
                    .cloned()
                    .collect()
            };
            let (reference, ours) = (of(reference), of(ours));
            for index in 0..reference.len().max(ours.len()) {
                self.maybe(
                    format!("{path}[{key}]"),
                    reference.get(index),
                    ours.get(index),
                );
            }
        }
        let plain = |items: &[Value]| -> Vec<Value> {
            items
                .iter()
                .filter(|item| !is_flag(item))
                .cloned()
                .collect()
        };
        let (reference, ours) = (plain(reference), plain(ours));
        if self.found.len() == before && reference != ours {
            self.differs(
                format!("{path}(order)"),
                Some(&Value::Array(reference)),
                Some(&Value::Array(ours)),
            );
        }
    }
}

/// Returns whether two values are equal, or are texts for the same duration.
fn same(reference: &Value, ours: &Value) -> bool {
    let duration = |value: &Value| value.as_str().and_then(nanoseconds);
    reference == ours || (duration(reference).is_some() && duration(reference) == duration(ours))
}

/// The path of a key below a path; a key that is not a plain word is put in brackets.
fn below(path: &str, key: &str) -> String {
    let plain = !key.is_empty()
        && key
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    match (path.is_empty(), plain) {
        (true, true) => key.to_owned(),
        (false, true) => format!("{path}.{key}"),
        _ => format!("{path}[{key}]"),
    }
}

/// The field that identifies each item of both lists, if there is one with unique values.
fn identity(reference: &[Value], ours: &[Value]) -> Option<&'static str> {
    if reference.is_empty() && ours.is_empty() {
        return None;
    }
    let names = |items: &[Value], field: &str| {
        let found: BTreeSet<String> = items
            .iter()
            .filter(|item| item[field].is_string())
            .map(|item| label(&item[field]))
            .collect();
        found.len() == items.len()
    };
    ["name", "key", "mountPath"]
        .into_iter()
        .find(|field| names(reference, field) && names(ours, field))
}

fn label(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

fn is_flag(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.starts_with("--"))
}

/// The identity of an item in a list of scalars: a flag's name, otherwise the item itself.
fn flag(value: &Value) -> String {
    let text = label(value);
    match text.split_once('=') {
        Some((name, _)) if is_flag(value) => name.to_owned(),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(reference: Value, ours: Value) -> Vec<String> {
        let picture = |value| Picture::from([("p".to_owned(), value)]);
        compare(&picture(reference), &picture(ours))
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn equal_values_have_no_difference_whatever_their_order() {
        let reference = json!({"a": 1, "c": [{"name": "x", "v": 1}, {"name": "y"}], "f": ["cmd", "--a=1", "--b"]});
        let ours = json!({"f": ["cmd", "--b", "--a=1"], "c": [{"name": "y"}, {"v": 1, "name": "x"}], "a": 1});
        assert_eq!(shown(reference, ours), Vec::<String>::new());
    }

    #[test]
    fn flags_are_compared_by_name() {
        let reference =
            json!({"spec": {"command": ["api", "--port=1", "--old=x", "--v=1", "--v=2"]}});
        let ours = json!({"spec": {"command": ["api", "--port=2", "--new=y", "--v=1", "--v=3"]}});
        assert_eq!(
            shown(reference, ours),
            [
                r#"p: spec.command[--new] +"--new=y""#,
                r#"p: spec.command[--old] -"--old=x""#,
                r#"p: spec.command[--port] -"--port=1" +"--port=2""#,
                r#"p: spec.command[--v] -"--v=2" +"--v=3""#,
            ]
        );
    }

    #[test]
    fn order_counts_among_plain_texts() {
        assert_eq!(
            shown(json!(["-c", "/f"]), json!(["/f", "-c"])),
            [r#"p: (order) -["-c","/f"] +["/f","-c"]"#]
        );
        assert_eq!(shown(json!(["a", "b"]), json!(["b"])), [r#"p: [a] -"a""#]);
    }

    #[test]
    fn missing_parts_are_named_at_their_top() {
        let reference = json!({"m": {"l": {"node/x": ""}}, "v": [{"mountPath": "/a", "name": "n"}], "t": [{"k": 1}]});
        let ours = json!({"m": {}, "v": [{"mountPath": "/b", "name": "n"}, {"mountPath": "/c", "name": "n"}], "t": []});
        assert_eq!(
            shown(reference, ours),
            [
                r#"p: m.l -{"node/x":""}"#,
                r#"p: t[0] -{"k":1}"#,
                r#"p: v[/a] -{"mountPath":"/a","name":"n"}"#,
                r#"p: v[/b] +{"mountPath":"/b","name":"n"}"#,
                r#"p: v[/c] +{"mountPath":"/c","name":"n"}"#,
            ]
        );
    }

    #[test]
    fn keys_that_are_not_words_are_in_brackets() {
        assert_eq!(
            shown(
                json!({"a": {"k8s.io/x": ""}}),
                json!({"a": {"k8s.io/x": "y"}})
            ),
            [r#"p: a[k8s.io/x] -"" +"y""#]
        );
        assert_eq!(
            shown(json!({"a": null, "b": "60s"}), json!({"b": "1m0s"})),
            ["p: a -null"]
        );
    }

    #[test]
    fn a_whole_place_can_be_missing_or_extra() {
        let found = compare(
            &Picture::from([("a".into(), json!(1))]),
            &Picture::from([("b".into(), json!(2))]),
        );
        let shown: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["a: (whole) -1", "b: (whole) +2"]);
    }
}
