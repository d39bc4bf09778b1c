//! The differences between a live object and the desired one, as pure functions over JSON.
//!
//! The server itself computes the desired object (a dry run), so defaults and conversions never
//! look like drift; fields that belong to the server are excluded from the comparison.

use halite_diff::{CONTEXT, Side, unified};
use serde_json::{Map, Value};

/// Replacement of a value that must not be displayed.
pub const REDACTED: &str = "<redacted>";

/// Replacement of such a value if it would change.
pub const REDACTED_CHANGED: &str = "<redacted, changes>";

/// Metadata that belongs to the server.
const SERVER_METADATA: [&str; 7] = [
    "managedFields",
    "resourceVersion",
    "generation",
    "uid",
    "creationTimestamp",
    "selfLink",
    "deletionTimestamp",
];

/// The comparable form of an object: without status and the server's own metadata, with sorted
/// keys, and without empty metadata maps.
#[must_use]
pub fn normalised(object: &Value) -> Value {
    let mut object = sorted(object);
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
        if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
            for key in SERVER_METADATA {
                metadata.remove(key);
            }
            metadata.retain(|_, value| {
                !value.as_object().is_some_and(Map::is_empty) && !value.is_null()
            });
        }
    }
    object
}

/// Sorts the keys of all mappings, so that the order in a file does not count as a difference.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut keys: Vec<&String> = fields.keys().collect();
            keys.sort();
            Value::Object(
                keys.into_iter()
                    .map(|key| (key.clone(), sorted(&fields[key])))
                    .collect(),
            )
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        other => other.clone(),
    }
}

/// Returns whether two objects are equal except for the server's own fields.
#[must_use]
pub fn same(live: &Value, wanted: &Value) -> bool {
    normalised(live) == normalised(wanted)
}

/// A unified diff of two objects as YAML, with three lines of context; `None` means a missing
/// object. Data of Secrets is redacted, but changes of it are still shown as such.
#[must_use]
pub fn diff(live: Option<&Value>, wanted: Option<&Value>) -> String {
    let mut before = live.map(normalised);
    let mut after = wanted.map(normalised);
    redact(before.as_mut(), after.as_mut());
    let before = before.map(|object| yaml(&object)).unwrap_or_default();
    let after = after.map(|object| yaml(&object)).unwrap_or_default();
    let side = |name, text| Side { name, text };
    unified(side("live", &before), side("wanted", &after), CONTEXT)
}

/// Formats a value as YAML for people.
#[must_use]
pub fn yaml(value: &Value) -> String {
    serde_saphyr::to_string(value).unwrap_or_else(|_| format!("{value:#}\n"))
}

/// Redacts the data of Secrets, including `stringData`.
fn redact(mut before: Option<&mut Value>, mut after: Option<&mut Value>) {
    let is_secret = |object: &Option<&mut Value>| {
        object
            .as_ref()
            .is_some_and(|o| o.get("kind").and_then(Value::as_str) == Some("Secret"))
    };
    if !is_secret(&before) && !is_secret(&after) {
        return;
    }
    for field in ["data", "stringData"] {
        let old = before
            .as_mut()
            .and_then(|o| o.get_mut(field))
            .and_then(Value::as_object_mut);
        let new = after
            .as_mut()
            .and_then(|o| o.get_mut(field))
            .and_then(Value::as_object_mut);
        let was = old.as_deref().cloned().unwrap_or_default();
        for (key, value) in new.into_iter().flatten() {
            let changes = was.get(key).is_some_and(|w| w != value);
            *value = Value::from(if changes { REDACTED_CHANGED } else { REDACTED });
        }
        for (_, value) in old.into_iter().flatten() {
            *value = Value::from(REDACTED);
        }
    }
    // kubectl stores the whole Secret in this annotation.
    for object in [before, after].into_iter().flatten() {
        let annotations = object
            .pointer_mut("/metadata/annotations")
            .and_then(Value::as_object_mut);
        if let Some(value) =
            annotations.and_then(|a| a.get_mut("kubectl.kubernetes.io/last-applied-configuration"))
        {
            *value = Value::from(REDACTED);
        }
    }
}

/// The live object with the whole content of `wanted`: every field except metadata and status is
/// exactly as declared, whichever manager set it; labels and annotations are merged into the
/// existing ones. kubeadm's ConfigMaps and RBAC objects are managed in this way (`whole: true`),
/// because kubeadm reads and rewrites them as a whole.
#[must_use]
pub fn replaced(live: &Value, wanted: &Value) -> Value {
    let (Some(live_fields), Some(wanted_fields)) = (live.as_object(), wanted.as_object()) else {
        return wanted.clone();
    };
    let mut result: Map<String, Value> = live_fields
        .iter()
        .filter(|(key, _)| matches!(key.as_str(), "metadata" | "status"))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    for (key, value) in wanted_fields {
        match key.as_str() {
            "metadata" => {
                let metadata = result
                    .entry("metadata")
                    .or_insert_with(|| Value::Object(Map::new()));
                merge(metadata, value);
                if let Some(metadata) = metadata.as_object_mut() {
                    metadata.remove("managedFields");
                }
            }
            "status" => {}
            _ => {
                result.insert(key.clone(), value.clone());
            }
        }
    }
    Value::Object(result)
}

/// Merges `over` into `under`: mappings are merged, everything else is replaced. A substitute for
/// server-side apply where no server can be queried.
pub fn merge(under: &mut Value, over: &Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over {
                merge(under.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (under, over) => *under = over.clone(),
    }
}

/// Returns whether two bindings have different roles: `roleRef` is immutable, so the object must be
/// recreated.
#[must_use]
pub fn role_reference_differs(live: &Value, wanted: &Value) -> bool {
    let role = |object: &Value| {
        let field = |name: &str| {
            object
                .pointer(&format!("/roleRef/{name}"))
                .cloned()
                .unwrap_or_default()
        };
        (field("kind"), field("name"))
    };
    live.get("roleRef").is_some() && wanted.get("roleRef").is_some() && role(live) != role(wanted)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_that_the_server_maintains_are_not_a_difference() {
        let live = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "uid": "1", "resourceVersion": "5", "generation": 2,
                         "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": [{}], "labels": {}},
            "data": {"b": "1", "a": "2"}, "status": {"x": 1}});
        let wanted = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"a": "2", "b": "1"}});
        assert!(same(&live, &wanted));
        assert_eq!(diff(Some(&live), Some(&wanted)), "");
    }

    #[test]
    fn a_small_unified_diff() {
        let live =
            json!({"kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "one\ntwo\n"}});
        let wanted =
            json!({"kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "one\nthree\n"}});
        let text = diff(Some(&live), Some(&wanted));
        assert!(text.contains("--- live\n+++ wanted\n"), "{text}");
        assert!(text.contains("-    two\n+    three\n"), "{text}");
    }

    #[test]
    fn the_content_of_secrets_is_never_shown() {
        let live = json!({"kind": "Secret", "metadata": {"name": "s", "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": "Y2FuYXJ5"}},
            "data": {"same": "Y2FuYXJ5", "old": "Y2FuYXJ5", "gone": "Y2FuYXJ5"}});
        let wanted = json!({"kind": "Secret", "metadata": {"name": "s"},
            "data": {"same": "Y2FuYXJ5", "old": "Y2FuYXJ5Mg=="}, "stringData": {"plain": "Y2FuYXJ5"}});
        for text in [
            diff(Some(&live), Some(&wanted)),
            diff(None, Some(&wanted)),
            diff(Some(&live), None),
        ] {
            assert!(!text.contains("Y2FuYXJ5"), "{text}");
        }
        assert!(diff(Some(&live), Some(&wanted)).contains(REDACTED_CHANGED));
    }

    #[test]
    fn whole_objects_lose_foreign_content_but_keep_identity() {
        let live = json!({"kind": "ConfigMap", "metadata": {"name": "a", "uid": "1", "resourceVersion": "7",
            "labels": {"theirs": "x"}}, "data": {"ours": "1", "foreign": "2"}});
        let wanted = json!({"kind": "ConfigMap", "metadata": {"name": "a", "labels": {"ours": "y"}}, "data": {"ours": "1"}});
        let result = replaced(&live, &wanted);
        assert_eq!(result["data"], json!({"ours": "1"}));
        assert_eq!(
            result["metadata"]["labels"],
            json!({"theirs": "x", "ours": "y"})
        );
        assert_eq!(result["metadata"]["resourceVersion"], "7");
    }

    #[test]
    fn a_role_reference_cannot_be_changed() {
        let role = |name: &str| json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}});
        assert!(role_reference_differs(&role("a"), &role("b")));
        assert!(!role_reference_differs(&role("a"), &role("a")));
        assert!(!role_reference_differs(&json!({}), &role("a")));
    }
}
