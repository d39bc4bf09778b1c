//! Strategic merge patches of pods, as `kubectl patch` and kubeadm's patches apply them.

use serde_json::{Map, Value};

/// The keys by which Kubernetes merges the lists of a pod (`patchMergeKey` in
/// k8s.io/api/core/v1/types.go). All other lists are replaced. pillar/src/validate/hardening.rs has
/// the same names (`KEYED_LISTS`).
const MERGE_KEYS: [(&str, &str); 10] = [
    ("containers", "name"),
    ("env", "name"),
    ("hostAliases", "ip"),
    ("imagePullSecrets", "name"),
    ("initContainers", "name"),
    ("ports", "containerPort"),
    ("topologySpreadConstraints", "topologyKey"),
    ("volumeDevices", "devicePath"),
    ("volumeMounts", "mountPath"),
    ("volumes", "name"),
];
/// The key with which an element asks for its removal.
const DIRECTIVE: &str = "$patch";

/// Applies a patch: mappings are merged, `null` removes a field, and lists with a merge key are
/// merged by it, where `$patch: delete` removes an element.
pub(super) fn strategic_merge(base: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (name, change) in patch {
        match (base.get_mut(name), change) {
            (_, Value::Null) => {
                base.remove(name);
            }
            (Some(Value::Object(base)), Value::Object(patch)) => strategic_merge(base, patch),
            (Some(Value::Array(base)), Value::Array(patch)) if merge_key(name).is_some() => {
                merge_list(base, patch, merge_key(name).unwrap_or_default());
            }
            (None, Value::Array(patch)) if merge_key(name).is_some() => {
                let kept = patch.iter().filter(|change| !deletes(change));
                base.insert(name.clone(), kept.cloned().collect());
            }
            _ => {
                base.insert(name.clone(), change.clone());
            }
        }
    }
}

fn deletes(change: &Value) -> bool {
    change.get(DIRECTIVE).and_then(Value::as_str) == Some("delete")
}

fn merge_key(list: &str) -> Option<&'static str> {
    let mut known = MERGE_KEYS.iter();
    known
        .find(|(name, _)| *name == list)
        .map(|(_, merge_key)| *merge_key)
}

fn merge_list(base: &mut Vec<Value>, patch: &[Value], key: &str) {
    for change in patch {
        let same =
            |element: &Value| element.get(key).is_some() && element.get(key) == change.get(key);
        if deletes(change) {
            base.retain(|element| !same(element));
            continue;
        }
        match (base.iter_mut().find(|element| same(element)), change) {
            (Some(Value::Object(element)), Value::Object(change)) => {
                strategic_merge(element, change)
            }
            _ => base.push(change.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(base: Value, patch: Value) -> Value {
        let (mut base, patch) = (base.as_object().unwrap().clone(), patch);
        strategic_merge(&mut base, patch.as_object().unwrap());
        Value::Object(base)
    }

    #[test]
    fn mappings_are_merged_and_null_removes_a_field() {
        assert_eq!(
            patched(
                json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "status": {}}),
                json!({"metadata": {"labels": {"b": null, "c": "3"}}, "status": null})
            ),
            json!({"metadata": {"labels": {"a": "1", "c": "3"}}})
        );
    }

    #[test]
    fn containers_are_merged_by_name_and_commands_are_replaced() {
        let base = json!({"spec": {"containers": [
            {"name": "a", "command": ["a", "--x"], "resources": {"requests": {"cpu": "250m"}},
             "volumeMounts": [{"mountPath": "/a", "name": "a"}, {"mountPath": "/b", "name": "b"}]},
        ]}});
        let patch = json!({"spec": {"containers": [
            {"name": "a", "command": ["b"], "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}},
             "volumeMounts": [{"mountPath": "/b", "$patch": "delete"}, {"mountPath": "/c", "name": "c"}]},
            {"name": "beside", "image": "x"},
        ], "volumes": [{"name": "a", "$patch": "delete"}]}});
        assert_eq!(
            patched(base, patch),
            json!({"spec": {"containers": [
                {"name": "a", "command": ["b"], "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}},
                 "volumeMounts": [{"mountPath": "/a", "name": "a"}, {"mountPath": "/c", "name": "c"}]},
                {"name": "beside", "image": "x"},
            ], "volumes": []}})
        );
    }
}
