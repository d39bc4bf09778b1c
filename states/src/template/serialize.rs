//! The filters `json`, `tojson` and `yaml`.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Environment, Error, Value};
use serde_json::{Map, Value as Json};

use super::dump;
use super::values::{Dict, key_text, to_json};

/// Adds the filters.
pub(super) fn add(env: &mut Environment<'static>) {
    env.add_filter(
        "json",
        |value: &Value, sort: Option<bool>, indent: Option<usize>, kwargs: Kwargs| {
            let sort = sort.or(kwargs.get("sort_keys")?).unwrap_or(true);
            let indent = indent.or(kwargs.get("indent")?);
            kwargs.assert_all_used()?;
            let json = to_json(value)?;
            Ok::<_, Error>(text(&if sort { sorted(json) } else { json }, indent))
        },
    );
    env.add_filter(
        "tojson",
        |value: &Value, indent: Option<usize>, kwargs: Kwargs| {
            let indent = indent.or(kwargs.get("indent")?);
            let sort = kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
            let ascii = kwargs.get::<Option<bool>>("ensure_ascii")?.unwrap_or(true);
            kwargs.assert_all_used()?;
            let json = to_json(value)?;
            let text = text(&if sort { sorted(json) } else { json }, indent);
            Ok::<_, Error>(escaped(&text, ascii))
        },
    );
    env.add_filter(
        "yaml",
        |value: &Value, flow: Option<bool>, kwargs: Kwargs| -> Result<String, Error> {
            let flow = flow.or(kwargs.get("flow_style")?).unwrap_or(true);
            kwargs.assert_all_used()?;
            let json = in_order(value)?;
            Ok(if flow {
                dump::flow(&json)
            } else {
                dump::block(&json)
            })
        },
    );
}

fn text(json: &Json, indent: Option<usize>) -> String {
    match indent {
        Some(indent) => dump::pretty(json, indent.min(16)),
        None => dump::flow(json),
    }
}

/// The characters that HTML reads, and with `ascii` all that are not ASCII, as `\\uXXXX`.
fn escaped(json: &str, ascii: bool) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if matches!(c, '<' | '>' | '&' | '\'') || ascii && !c.is_ascii() {
            for unit in c.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// JSON with the keys of all dictionaries in their order.
fn sorted(json: Json) -> Json {
    match json {
        Json::Array(items) => items.into_iter().map(sorted).collect(),
        Json::Object(map) => {
            let mut entries: Vec<(String, Json)> = map.into_iter().collect();
            entries.sort_by(|(one, _), (other, _)| one.cmp(other));
            let entries = entries.into_iter().map(|(key, item)| (key, sorted(item)));
            Json::Object(entries.collect())
        }
        other => other,
    }
}

/// Sorts keys as Python does: only keys of one kind have an order.
fn sort(keys: &mut [Value]) {
    let is_number = |key: &Value| matches!(key.kind(), ValueKind::Number | ValueKind::Bool);
    if keys.iter().all(|key| key.as_str().is_some()) {
        keys.sort_by_key(ToString::to_string);
    } else if keys.iter().all(is_number) {
        let number = |key: &Value| match key.kind() {
            ValueKind::Bool => f64::from(u8::from(key.is_true())),
            _ => f64::try_from(key.clone()).unwrap_or_default(),
        };
        keys.sort_by(|one, other| number(one).total_cmp(&number(other)));
    }
}

/// A value as PyYAML writes it: keys sorted, except those of the pillar and the grains, which keep
/// their declared order.
fn in_order(value: &Value) -> Result<Json, Error> {
    let is_data = |value: &Value| {
        value
            .downcast_object_ref::<Dict>()
            .is_some_and(Dict::is_data)
    };
    match value.kind() {
        ValueKind::Map => {
            let mut keys: Vec<Value> = value.try_iter()?.collect();
            if !is_data(value) {
                sort(&mut keys);
            }
            let mut map = Map::new();
            for key in keys {
                let text = key_text(&key);
                let is_text = key.as_str().is_some();
                let text = if is_text { text } else { dump::unquoted(&text) };
                map.insert(text, in_order(&value.get_item(&key)?)?);
            }
            Ok(Json::Object(map))
        }
        ValueKind::Seq | ValueKind::Iterable => {
            value.try_iter()?.map(|item| in_order(&item)).collect()
        }
        _ => to_json(value),
    }
}
