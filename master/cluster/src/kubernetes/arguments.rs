//! Reads a chunk's arguments, and runs the trivial states.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use halite_states::args::Args;
use halite_states::engine::{Checked, Failure};
use halite_states::low::Chunk;
use serde_json::{Map, Value};

use super::operation::Operation;

/// Replaces each `kind: List` with its members.
pub(super) fn flattened(documents: Vec<Value>) -> Vec<Value> {
    let mut flat = Vec::with_capacity(documents.len());
    for document in documents {
        let is_list = document
            .get("kind")
            .and_then(Value::as_str)
            .is_some_and(|kind| kind.ends_with("List"));
        match document.get("items").and_then(Value::as_array) {
            Some(items) if is_list => flat.extend(items.iter().cloned()),
            _ if document.is_null() => {}
            _ => flat.push(document),
        }
    }
    flat
}

/// The same object with the texts of a Secret's `stringData` in `data`, as the API server stores
/// them. A server-side apply of `stringData` would record its keys only there, and would leave a
/// key in `data` after its declaration has been removed.
pub(super) fn with_stored_data(mut object: Value) -> Value {
    let text = |field: &str| object.get(field).and_then(Value::as_str);
    if (text("apiVersion"), text("kind")) != (Some("v1"), Some("Secret")) {
        return object;
    }
    let Some(Value::Object(texts)) = object.get("stringData").cloned() else {
        return object;
    };
    // The server's own message is better for anything else.
    if !texts.values().all(Value::is_string) {
        return object;
    }
    if let Some(fields) = object.as_object_mut() {
        fields.remove("stringData");
        let data = fields.entry("data").or_insert(Value::Null);
        if data.is_null() {
            *data = Value::Object(Map::new());
        }
        if let Some(data) = data.as_object_mut() {
            let encoded = |text: &Value| STANDARD.encode(text.as_str().unwrap_or_default());
            data.extend(
                texts
                    .iter()
                    .map(|(key, text)| (key.clone(), Value::from(encoded(text)))),
            );
        }
    }
    object
}

pub(super) fn check_test(chunk: &Chunk, fun: &str) -> Result<Checked<Vec<Operation>>, Failure> {
    let comment = Args::new(chunk)
        .text("comment")?
        .unwrap_or_else(|| "Success!".into());
    match fun {
        "nop" | "succeed_without_changes" | "show_notification" => Ok(Checked {
            comment: Args::new(chunk).text("text")?.unwrap_or(comment),
            ..Checked::default()
        }),
        "succeed_with_changes" => Ok(Checked {
            changes: Map::from_iter([(
                "testing".to_owned(),
                serde_json::json!({"old": "Unchanged", "new": "Something pretended to change"}),
            )]),
            comment,
            diff: Vec::new(),
        }),
        "fail_without_changes" => Err(Failure::new(
            Args::new(chunk)
                .text("comment")?
                .unwrap_or_else(|| "Failure!".into()),
        )),
        _ => Err(Failure::new(format!(
            "{} is not available on the target `master`",
            chunk.function()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_secret_is_applied_as_it_is_stored() {
        let secret = |more: Value| {
            let mut object =
                json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
            let fields = more.as_object().unwrap().clone();
            object.as_object_mut().unwrap().extend(fields);
            object
        };
        for (written, stored) in [
            (
                json!({"stringData": {"a": "x"}}),
                json!({"data": {"a": "eA=="}}),
            ),
            (
                json!({"data": {"a": "eQ==", "b": "eg=="}, "stringData": {"a": "x"}}),
                json!({"data": {"a": "eA==", "b": "eg=="}}),
            ),
            (json!({"data": null, "stringData": {}}), json!({"data": {}})),
            (
                json!({"stringData": {"a": 1}}),
                json!({"stringData": {"a": 1}}),
            ),
        ] {
            assert_eq!(with_stored_data(secret(written)), secret(stored));
        }
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "stringData": {"a": "x"}});
        assert_eq!(with_stored_data(map.clone()), map);
    }
}
