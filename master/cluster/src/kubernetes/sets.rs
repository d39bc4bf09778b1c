//! Sets of objects that are created and removed together: an addon, a chart.
//!
//! Each object of a set has the set's name in a label, by which it is found in any kind, whatever
//! created it; and its own name in an annotation, because controllers copy labels (a Service's
//! labels are on its Endpoints) and people copy objects (docs/decisions/0012-sets-of-objects.md).

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{ApiError, FIELD_MANAGER, ObjectRef, Served};

/// The label with the name of an object's set.
pub const SET: &str = "halite/set";
/// The annotation with the object's own name, in [`ObjectRef`]'s display form; for a custom
/// resource with the group of its kind, because it may have the name of one of Kubernetes' own
/// kinds and be copied to that (`Service` of Knative).
pub const OBJECT: &str = "halite/object";
/// The annotation of an object whose state contains a secret. The next declaration of the object
/// may have none, and its diff would display the live one.
const HOLDS_SECRET: &str = "halite/holds-secret";
/// Helm's annotation; `keep` means that an object stays when its chart is removed.
const POLICY: &str = "helm.sh/resource-policy";

/// An object of a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetObject {
    /// Its name.
    pub reference: ObjectRef,
    /// Its set.
    pub set: String,
    /// `true` if it stays when its set is removed.
    pub stays: bool,
    /// `true` if it is already being deleted.
    pub ends: bool,
}

impl SetObject {
    /// Reads the member from an object's metadata; `None` if it belongs to no set.
    #[must_use]
    pub fn of(object: &Value) -> Option<Self> {
        let reference = ObjectRef::of(object).ok()?;
        let set = set_of(object)?.to_owned();
        let stays = annotation(object, POLICY) == Some("keep");
        has_own_name(object).then(|| Self {
            reference,
            set,
            stays,
            ends: ends(object),
        })
    }
}

/// All objects of all sets.
#[derive(Debug, Default)]
pub(super) struct Members {
    pub found: Vec<SetObject>,
    pub kinds: Vec<Served>,
    /// Kinds that could not be listed, with the reason.
    pub unseen: Vec<String>,
}

/// Returns whether an object is already being deleted.
#[must_use]
pub fn ends(object: &Value) -> bool {
    object
        .pointer("/metadata/deletionTimestamp")
        .is_some_and(|time| !time.is_null())
}

/// Adds the marks of a set to an object.
///
/// # Errors
/// The object has no name.
pub fn marked(object: &Value, set: &str) -> Result<Value, ApiError> {
    let name = own_name(&ObjectRef::of(object)?);
    let mut object = object.clone();
    add_mark(&mut object, "labels", SET, set);
    add_mark(&mut object, "annotations", OBJECT, &name);
    Ok(object)
}

fn add_mark(object: &mut Value, field: &str, key: &str, value: &str) {
    let map = object.get_mut("metadata").and_then(Value::as_object_mut);
    let map = map.map(|metadata| {
        metadata
            .entry(field)
            .or_insert_with(|| Value::Object(Map::new()))
    });
    if let Some(map) = map {
        if map.is_null() {
            *map = Value::Object(Map::new());
        }
        if let Some(map) = map.as_object_mut() {
            map.insert(key.to_owned(), json!(value));
        }
    }
}

/// Marks an object of a state that contains a secret.
pub fn mark_secret(object: &mut Value) {
    add_mark(object, "annotations", HOLDS_SECRET, "true");
}

/// Returns whether an object was last applied by a state that contained a secret.
#[must_use]
pub fn holds_secret(object: &Value) -> bool {
    annotation(object, HOLDS_SECRET).is_some()
}

/// An object that this run would apply, as the server would return it.
#[must_use]
pub fn applied(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        let managers = json!([{"manager": FIELD_MANAGER}]);
        metadata.insert("managedFields".to_owned(), managers);
    }
    object
}

/// The declared sets, and the names for which the declaration decides.
#[derive(Debug, Clone, Default)]
pub struct Declared {
    /// The names of the sets that stay.
    pub sets: BTreeSet<String>,
    /// The names for which the declaration decides; a `*` at the end stands for anything. All other
    /// sets belong to others.
    pub among: Vec<String>,
}

impl Declared {
    /// Returns whether a set stays: it is declared, or the declaration does not decide for it.
    #[must_use]
    pub fn stays(&self, set: &str) -> bool {
        let fits = |pattern: &String| match pattern.strip_suffix('*') {
            Some(start) => set.starts_with(start),
            None => set == pattern,
        };
        self.sets.contains(set) || !self.among.iter().any(fits)
    }
}

/// The relation of an existing object to a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ownership {
    /// The object belongs to the set, or will.
    Ours,
    /// A namespace of others, in which the set is a guest: it stays unchanged.
    Theirs,
    /// Another owner created it, and it would be removed with the set; with the reason.
    Refused(String),
}

/// Decides about an existing object. `kept` returns whether another set is still declared.
#[must_use]
pub fn ownership(live: &Value, set: &str, kept: impl Fn(&str) -> bool) -> Ownership {
    let is_namespace = ObjectRef::of(live).is_ok_and(|reference| reference.is_namespace());
    let why = match set_of(live) {
        Some(own) if own == set || !kept(own) => return Ownership::Ours,
        Some(own) => {
            format!(
                "it already belongs to the set `{own}`, and `{set}` names it too: remove it from one of them"
            )
        }
        // Removing the label does not take the object over.
        None if is_ours(live) && has_own_name(live) => return Ownership::Ours,
        None if is_ours(live) => format!(
            "Halite itself applies it, and it would be removed together with `{set}`: give the object another name, or, if it comes from an earlier manifest of yours, hand it over with the label {SET}={set}"
        ),
        None => format!(
            "it already exists, created by something else, and would be removed together with `{set}`: remove it, or hand it over with the label {SET}={set}"
        ),
    };
    if is_namespace {
        Ownership::Theirs
    } else {
        Ownership::Refused(why)
    }
}

/// Returns whether Halite has applied it before.
fn is_ours(live: &Value) -> bool {
    let fields = live
        .pointer("/metadata/managedFields")
        .and_then(Value::as_array);
    fields
        .into_iter()
        .flatten()
        .any(|entry| entry.get("manager").and_then(Value::as_str) == Some(FIELD_MANAGER))
}

fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.pointer("/metadata/annotations")?.get(name)?.as_str()
}

/// Returns whether an object has the annotation of a set, with its own name.
fn has_own_name(object: &Value) -> bool {
    let reference = ObjectRef::of(object);
    let text = annotation(object, OBJECT);
    reference.is_ok_and(|reference| text.is_some_and(|text| names(text, &reference)))
}

/// Returns whether an object that stays as it is lacks something of the declared one: `wanted` has
/// the marks of its set, which do not count.
#[must_use]
pub fn lacks(live: &Value, wanted: &Value) -> bool {
    let lacks_in = |pointer: &str, marks: &[&str]| {
        let wanted = wanted.pointer(pointer).and_then(Value::as_object);
        let live = |key: &str| live.pointer(pointer).and_then(|map| map.get(key));
        let wanted = wanted.into_iter().flatten();
        let mut wanted = wanted.filter(|(key, _)| !marks.contains(&key.as_str()));
        wanted.any(|(key, value)| live(key) != Some(value))
    };
    lacks_in("/metadata/labels", &[SET])
        || lacks_in("/metadata/annotations", &[OBJECT, HOLDS_SECRET])
}

fn set_of(object: &Value) -> Option<&str> {
    object.pointer("/metadata/labels")?.get(SET)?.as_str()
}

/// Returns whether two references name the same object: `wanted` as its author wrote it, `live` as
/// the server returns it.
#[must_use]
pub fn same(wanted: &ObjectRef, live: &ObjectRef) -> bool {
    wanted.group() == live.group()
        && wanted.kind == live.kind
        && wanted.name == live.name
        && lives_in(&wanted.namespace, &live.namespace)
}

fn own_name(reference: &ObjectRef) -> String {
    // Kubernetes' own groups are a single word, or end in this way.
    let group = reference.group();
    if !group.contains('.') || group.ends_with(".k8s.io") {
        return reference.to_string();
    }
    ObjectRef {
        kind: format!("{}.{group}", reference.kind),
        ..reference.clone()
    }
    .to_string()
}

fn names(text: &str, live: &ObjectRef) -> bool {
    let own = own_name(live);
    let (Some((kind, rest)), Some((own_kind, _))) = (text.split_once(' '), own.split_once(' '))
    else {
        return false;
    };
    let (namespace, name) = rest.split_once('/').unwrap_or(("", rest));
    kind == own_kind && name == live.name && lives_in(namespace, &live.namespace)
}

/// The server puts namespaced objects without a namespace into `default`, and removes the namespace
/// from cluster-scoped ones.
fn lives_in(wanted: &str, live: &str) -> bool {
    wanted == live || live.is_empty() || (wanted.is_empty() && live == "default")
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
        assert_eq!(
            SetObject::of(&live("Service", "n", "Service n/a"))
                .unwrap()
                .set,
            "s"
        );
        assert_eq!(SetObject::of(&live("Endpoints", "n", "Service n/a")), None);
        assert_eq!(
            SetObject::of(&live("Service", "copied", "Service n/a")),
            None
        );
        assert!(SetObject::of(&live("Service", "default", "Service a")).is_some());
        assert!(SetObject::of(&live("ClusterRole", "", "ClusterRole n/a")).is_some());
        let mut bare = live("Service", "n", "Service n/a");
        bare["metadata"]
            .as_object_mut()
            .unwrap()
            .remove("annotations");
        assert_eq!(SetObject::of(&bare), None);
        let mut ends = live("Service", "n", "Service n/a");
        ends["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert!(SetObject::of(&ends).unwrap().ends);
    }

    /// Knative makes a Service of each of its own Services, with its labels and annotations.
    #[test]
    fn what_is_called_alike_and_of_another_group_is_another() {
        let of = |version: &str| json!({"apiVersion": version, "kind": "Service", "metadata": {"name": "a", "namespace": "n"}});
        let theirs = marked(&of("serving.knative.dev/v1"), "s").unwrap();
        assert!(SetObject::of(&theirs).is_some());
        let ours = marked(&of("v1"), "s").unwrap();
        for (from, to) in [(&theirs, "v1"), (&ours, "serving.knative.dev/v1")] {
            let copied = json!({"apiVersion": to, "kind": "Service", "metadata": from["metadata"]});
            assert_eq!(SetObject::of(&copied), None, "{copied}");
        }
        let namespace =
            json!({"apiVersion": "x.io/v1", "kind": "Namespace", "metadata": {"name": "a"}});
        assert!(
            matches!(ownership(&namespace, "s", |_| false), Ownership::Refused(_)),
            "no object is in it"
        );
    }

    #[test]
    fn marks_are_laid_beside_what_is_there() {
        let object = json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "a", "namespace": "n", "labels": {"x": "y"}, "annotations": null}});
        let marked = marked(&object, "s").unwrap();
        assert_eq!(marked["metadata"]["labels"], json!({"x": "y", SET: "s"}));
        assert_eq!(
            marked["metadata"]["annotations"],
            json!({OBJECT: "Service n/a"})
        );
        assert!(SetObject::of(&marked).is_some());
    }

    #[test]
    fn what_others_made_is_not_taken_over() {
        let object = |kind: &str, metadata: Value| json!({"apiVersion": "v1", "kind": kind, "metadata": metadata});
        let managed = |by: &[&str]| {
            let entries: Vec<Value> = by
                .iter()
                .map(|manager| json!({"manager": manager}))
                .collect();
            json!({"name": "a", "managedFields": entries})
        };
        let of = |set: &str| json!({"name": "a", "labels": {SET: set}});
        let judged = |kind: &str, metadata: Value| {
            ownership(&object(kind, metadata), "s", |set| set == "kept")
        };
        let refused = |claim: Ownership, part: &str| matches!(claim, Ownership::Refused(why) if why.contains(part));
        assert!(refused(
            judged("Service", managed(&["kubectl"])),
            "halite/set=s"
        ));
        assert!(refused(judged("Service", of("kept")), "`kept`"));
        // An object of Halite's own states belongs to no set; one that has lost its label does.
        let mut unlabelled = managed(&["kubectl", "halite"]);
        assert!(refused(
            judged("Service", unlabelled.clone()),
            "Halite itself applies it"
        ));
        unlabelled["annotations"] = json!({OBJECT: "Service a"});
        assert_eq!(judged("Service", unlabelled), Ownership::Ours);
        for kind in ["Service", "Namespace"] {
            assert_eq!(judged(kind, of("s")), Ownership::Ours);
            assert_eq!(judged(kind, of("gone")), Ownership::Ours);
        }
        // Several sets are in one namespace.
        assert_eq!(
            judged("Namespace", managed(&["kubectl"])),
            Ownership::Theirs
        );
        assert_eq!(judged("Namespace", of("kept")), Ownership::Theirs);
    }
}
