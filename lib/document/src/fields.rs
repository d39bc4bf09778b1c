//! Values in a JSON document, named by dotted paths without quotes.

use serde_json::{Map, Value};

/// The value at a path.
#[must_use]
pub fn at<'a>(document: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.')
        .try_fold(document, |value, key| value.get(key))
}

/// Sets the value at a path, and makes the mappings above it. Anything else than a mapping above it
/// is replaced by one.
pub fn put(document: &mut Value, path: &str, value: Value) {
    let mut place = document;
    for key in path.split('.') {
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        place = &mut place[key];
    }
    *place = value;
}

/// Removes the value at a path, and the mappings above it that become empty.
pub fn remove(document: &mut Value, path: &str) {
    let Some(mapping) = document.as_object_mut() else {
        return;
    };
    let Some((key, rest)) = path.split_once('.') else {
        mapping.shift_remove(path);
        return;
    };
    if let Some(below) = mapping.get_mut(key) {
        remove(below, rest);
        if below.as_object().is_some_and(Map::is_empty) {
            mapping.shift_remove(key);
        }
    }
}

/// Returns whether the value at a path is given and is neither `null`, `false` nor empty.
#[must_use]
pub fn is_set(document: &Value, path: &str) -> bool {
    match at(document, path) {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(items)) => !items.is_empty(),
        Some(Value::Object(map)) => !map.is_empty(),
        Some(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_set_and_removed_with_their_mappings() {
        let mut document = json!({"a": {"x": 1}});
        put(&mut document, "a.b.c", json!([1]));
        put(&mut document, "d", json!(false));
        assert_eq!(
            document,
            json!({"a": {"x": 1, "b": {"c": [1]}}, "d": false})
        );
        assert!(is_set(&document, "a.b.c") && is_set(&document, "a.x"));
        assert!(!is_set(&document, "d") && !is_set(&document, "a.y.z"));
        remove(&mut document, "a.b.c");
        remove(&mut document, "e.f");
        assert_eq!(document, json!({"a": {"x": 1}, "d": false}));
    }
}
