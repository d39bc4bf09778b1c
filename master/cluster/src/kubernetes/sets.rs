//! Sets of objects that come and go together: an addon, a chart.
//!
//! Each object of a set has the set's name in a label, by which it is found again in any kind, whatever
//! made it; and its own name in an annotation, because controllers copy labels (a Service's are on
//! its Endpoints) and people copy objects (docs/decisions/0012-sets-of-objects.md).

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{ApiError, FIELD_MANAGER, ObjectRef, Served};

/// The label with the name of an object's set.
pub const SET: &str = "halite/set";
/// The annotation with the object's own name, as [`ObjectRef`] is shown; a custom resource's kind
/// with its group, because it may be called like one of Kubernetes' own and be copied to that
/// (`Service` of Knative).
pub const OBJECT: &str = "halite/object";
/// Helm's annotation; `keep` says that an object stays when its chart goes.
const POLICY: &str = "helm.sh/resource-policy";

/// An object of a set, as it is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub reference: ObjectRef,
    /// Its set.
    pub set: String,
    /// It stays when its set goes.
    pub stays: bool,
    /// It is on its way out.
    pub ends: bool,
}

impl Member {
    /// Reads it from an object's metadata; `None` for what is of no set.
    #[must_use]
    pub fn of(object: &Value) -> Option<Self> {
        let reference = ObjectRef::of(object).ok()?;
        let set = set_of(object)?.to_owned();
        let annotation = |name| object.pointer("/metadata/annotations")?.get(name)?.as_str();
        let named = annotation(OBJECT).is_some_and(|text| names(text, &reference));
        let stays = annotation(POLICY) == Some("keep");
        named.then(|| Self {
            reference,
            set,
            stays,
            ends: ends(object),
        })
    }
}

/// Everything of any set, as it was found.
#[derive(Debug, Default)]
pub(super) struct Members {
    pub found: Vec<Member>,
    pub kinds: Vec<Served>,
    /// Kinds that could not be listed, with the reason.
    pub unseen: Vec<String>,
}

/// Whether an object is on its way out.
#[must_use]
pub fn ends(object: &Value) -> bool {
    object
        .pointer("/metadata/deletionTimestamp")
        .is_some_and(|time| !time.is_null())
}

/// An object with the marks of a set.
///
/// # Errors
/// It has no name.
pub fn marked(object: &Value, set: &str) -> Result<Value, ApiError> {
    let name = own_name(&ObjectRef::of(object)?);
    let mut object = object.clone();
    for (field, key, value) in [("labels", SET, set), ("annotations", OBJECT, name.as_str())] {
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
    Ok(object)
}

/// Which sets are declared, and of which that can be said at all.
#[derive(Debug, Clone, Default)]
pub struct Declared {
    /// The names of those that stay.
    pub sets: BTreeSet<String>,
    /// Names of those that are judged; a `*` at the end stands for anything. All others
    /// belong to others.
    pub among: Vec<String>,
}

impl Declared {
    /// Whether a set stays: it is declared, or not ours to judge.
    #[must_use]
    pub fn stays(&self, set: &str) -> bool {
        let fits = |pattern: &String| match pattern.strip_suffix('*') {
            Some(start) => set.starts_with(start),
            None => set == pattern,
        };
        self.sets.contains(set) || !self.among.iter().any(fits)
    }
}

/// Whether an object that is there becomes one of a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ownership {
    /// It is one, or becomes one.
    Ours,
    /// It is a namespace of others, in which the set lives as a guest: it stays as it is.
    Theirs,
    /// Another owner made it, and it would go when the set goes; the reason.
    Refused(String),
}

/// Judges an object that is there. `kept` says whether another set is still declared.
#[must_use]
pub fn ownership(live: &Value, set: &str, kept: impl Fn(&str) -> bool) -> Ownership {
    let is_namespace = ObjectRef::of(live).is_ok_and(|reference| reference.is_namespace());
    let why = match set_of(live) {
        Some(own) if own == set || !kept(own) => return Ownership::Ours,
        Some(own) => {
            format!(
                "it belongs to the set `{own}` already, and `{set}` names it too: leave one of them out"
            )
        }
        // Who removes the label does not take the object over.
        None if is_ours(live) => return Ownership::Ours,
        None => format!(
            "it is there already, made by something else, and would be removed together with `{set}`: remove it, or hand it over with the label {SET}={set}"
        ),
    };
    if is_namespace {
        Ownership::Theirs
    } else {
        Ownership::Refused(why)
    }
}

/// Whether we have applied it before.
fn is_ours(live: &Value) -> bool {
    let fields = live
        .pointer("/metadata/managedFields")
        .and_then(Value::as_array);
    fields
        .into_iter()
        .flatten()
        .any(|entry| entry.get("manager").and_then(Value::as_str) == Some(FIELD_MANAGER))
}

fn set_of(object: &Value) -> Option<&str> {
    object.pointer("/metadata/labels")?.get(SET)?.as_str()
}

/// Whether the objects that two references name are one: `wanted` as an author wrote it, `live` as
/// the server has it.
#[must_use]
pub fn same(wanted: &ObjectRef, live: &ObjectRef) -> bool {
    wanted.group() == live.group()
        && wanted.kind == live.kind
        && wanted.name == live.name
        && lives_in(&wanted.namespace, &live.namespace)
}

fn own_name(reference: &ObjectRef) -> String {
    // Kubernetes' own groups are one word, or end so.
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

/// The server puts what names no namespace into `default`, and takes the namespace off what lives
/// in none.
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
            Member::of(&live("Service", "n", "Service n/a"))
                .unwrap()
                .set,
            "s"
        );
        assert_eq!(Member::of(&live("Endpoints", "n", "Service n/a")), None);
        assert_eq!(Member::of(&live("Service", "copied", "Service n/a")), None);
        assert!(Member::of(&live("Service", "default", "Service a")).is_some());
        assert!(Member::of(&live("ClusterRole", "", "ClusterRole n/a")).is_some());
        let mut bare = live("Service", "n", "Service n/a");
        bare["metadata"]
            .as_object_mut()
            .unwrap()
            .remove("annotations");
        assert_eq!(Member::of(&bare), None);
        let mut ends = live("Service", "n", "Service n/a");
        ends["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert!(Member::of(&ends).unwrap().ends);
    }

    /// Knative makes a Service of each of its own Services, with its labels and annotations.
    #[test]
    fn what_is_called_alike_and_of_another_group_is_another() {
        let of = |version: &str| json!({"apiVersion": version, "kind": "Service", "metadata": {"name": "a", "namespace": "n"}});
        let theirs = marked(&of("serving.knative.dev/v1"), "s").unwrap();
        assert!(Member::of(&theirs).is_some());
        let ours = marked(&of("v1"), "s").unwrap();
        for (from, to) in [(&theirs, "v1"), (&ours, "serving.knative.dev/v1")] {
            let copied = json!({"apiVersion": to, "kind": "Service", "metadata": from["metadata"]});
            assert_eq!(Member::of(&copied), None, "{copied}");
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
        assert!(Member::of(&marked).is_some());
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
        assert_eq!(
            judged("Service", managed(&["kubectl", "halite"])),
            Ownership::Ours
        );
        for kind in ["Service", "Namespace"] {
            assert_eq!(judged(kind, of("s")), Ownership::Ours);
            assert_eq!(judged(kind, of("gone")), Ownership::Ours);
        }
        // Several live in one namespace.
        assert_eq!(
            judged("Namespace", managed(&["kubectl"])),
            Ownership::Theirs
        );
        assert_eq!(judged("Namespace", of("kept")), Ownership::Theirs);
    }
}
