//! Sets of objects that come and go together: an addon, a chart.
//!
//! Each object of a set bears its name in a label, by which it is found again in any kind, whatever made it; and its own
//! name in an annotation, because controllers copy labels (a Service's are on its Endpoints) and people copy objects
//! (docs/decisions/0012-sets-of-objects.md).

use serde_json::{Map, Value, json};

use super::{ApiError, FIELD_MANAGER, Reference};

/// The label with the name of an object's set.
pub const SET: &str = "halite/set";
/// The annotation with the object's own name, as [`Reference`] is shown.
pub const OBJECT: &str = "halite/object";
/// Helm's annotation; `keep` says that an object stays when its chart goes.
const POLICY: &str = "helm.sh/resource-policy";

/// An object of a set, as it is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub reference: Reference,
    /// Its set.
    pub set: String,
    /// It stays when its set goes.
    pub stays: bool,
}

impl Member {
    /// Reads it from an object's metadata; `None` for what is of no set, and for what is on its way out.
    #[must_use]
    pub fn of(object: &Value) -> Option<Self> {
        let reference = Reference::of(object).ok()?;
        let set = set_of(object)?.to_owned();
        let annotation = |name| object.pointer("/metadata/annotations")?.get(name)?.as_str();
        let named = annotation(OBJECT).is_some_and(|text| names(text, &reference));
        let ends = object.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null());
        let stays = annotation(POLICY) == Some("keep");
        (named && !ends).then_some(Self { reference, set, stays })
    }
}

/// An object with the marks of a set.
///
/// # Errors
/// It has no name.
pub fn marked(object: &Value, set: &str) -> Result<Value, ApiError> {
    let name = Reference::of(object)?.to_string();
    let mut object = object.clone();
    for (field, key, value) in [("labels", SET, set), ("annotations", OBJECT, name.as_str())] {
        let map = object.get_mut("metadata").and_then(Value::as_object_mut);
        let map = map.map(|metadata| metadata.entry(field).or_insert_with(|| Value::Object(Map::new())));
        if let Some(map) = map {
            if map.is_null() {
                *map = Value::Object(Map::new());
            }
            if let Some(map) = map.as_object_mut() {
                map.insert(key.to_owned(), json!(value));
            }
        }
    }
    Ok(object)
}

/// Why an object that is there may not be taken into a set: it is somebody else's, and would go when the set goes.
#[must_use]
pub fn foreign(live: &Value, set: &str) -> Option<String> {
    match set_of(live) {
        Some(own) if own == set => None,
        Some(own) => Some(format!(
            "it belongs to the set `{own}` already, and `{set}` names it too: leave one of them out"
        )),
        // Who removes the label does not take the object over.
        None if is_ours(live) => None,
        None => Some(format!(
            "it is there already, made by somebody else, and would be removed together with `{set}`: remove it, or hand it over with the label {SET}={set}"
        )),
    }
}

/// Whether we have applied it before.
fn is_ours(live: &Value) -> bool {
    let fields = live.pointer("/metadata/managedFields").and_then(Value::as_array);
    fields
        .into_iter()
        .flatten()
        .any(|entry| entry.get("manager").and_then(Value::as_str) == Some(FIELD_MANAGER))
}

fn set_of(object: &Value) -> Option<&str> {
    object.pointer("/metadata/labels")?.get(SET)?.as_str()
}

/// Whether the objects that two references name are one: `wanted` as somebody wrote it, `live` as the server has it.
#[must_use]
pub fn same(wanted: &Reference, live: &Reference) -> bool {
    group(&wanted.api_version) == group(&live.api_version)
        && wanted.kind == live.kind
        && wanted.name == live.name
        && lives_in(&wanted.namespace, &live.namespace)
}

fn names(text: &str, live: &Reference) -> bool {
    let Some((kind, rest)) = text.split_once(' ') else { return false };
    let (namespace, name) = rest.split_once('/').unwrap_or(("", rest));
    kind == live.kind && name == live.name && lives_in(namespace, &live.namespace)
}

/// The server puts what names no namespace into `default`, and takes the namespace off what lives in none.
fn lives_in(wanted: &str, live: &str) -> bool {
    wanted == live || live.is_empty() || (wanted.is_empty() && live == "default")
}

fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(kind: &str, namespace: &str, object: &str) -> Value {
        json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "a", "namespace": namespace,
            "labels": {SET: "s"}, "annotations": {OBJECT: object}}})
    }

    #[test]
    fn a_copied_label_makes_no_member() {
        assert_eq!(Member::of(&live("Service", "n", "Service n/a")).unwrap().set, "s");
        assert_eq!(Member::of(&live("Endpoints", "n", "Service n/a")), None);
        assert_eq!(Member::of(&live("Service", "copied", "Service n/a")), None);
        assert!(Member::of(&live("Service", "default", "Service a")).is_some());
        assert!(Member::of(&live("ClusterRole", "", "ClusterRole n/a")).is_some());
        let mut bare = live("Service", "n", "Service n/a");
        bare["metadata"].as_object_mut().unwrap().remove("annotations");
        assert_eq!(Member::of(&bare), None);
        let mut ends = live("Service", "n", "Service n/a");
        ends["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(Member::of(&ends), None);
    }

    #[test]
    fn marks_are_laid_beside_what_is_there() {
        let object = json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "a", "namespace": "n", "labels": {"x": "y"}, "annotations": null}});
        let marked = marked(&object, "s").unwrap();
        assert_eq!(marked["metadata"]["labels"], json!({"x": "y", SET: "s"}));
        assert_eq!(marked["metadata"]["annotations"], json!({OBJECT: "Service n/a"}));
        assert!(Member::of(&marked).is_some());
    }

    #[test]
    fn what_others_made_is_not_taken_over() {
        let object = |metadata: Value| json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata});
        let theirs = object(json!({"name": "a", "managedFields": [{"manager": "kubectl"}]}));
        assert!(foreign(&theirs, "s").unwrap().contains("halite/set=s"));
        let unlabelled =
            object(json!({"name": "a", "managedFields": [{"manager": "kubectl"}, {"manager": "halite"}]}));
        assert_eq!(foreign(&unlabelled, "s"), None);
        assert_eq!(foreign(&object(json!({"name": "a", "labels": {SET: "s"}})), "s"), None);
        assert!(foreign(&object(json!({"name": "a", "labels": {SET: "t"}})), "s").unwrap().contains("`t`"));
    }
}
