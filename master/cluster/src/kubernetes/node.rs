//! Nodes: the labels and taints that Halite sets, and a readable report of their readiness.

use std::collections::BTreeMap;

use halite_api::KubernetesNode;
use serde_json::{Map, Value};

use super::{Api, ApiError, ObjectRef};

/// The content of a `kubernetes.node` state. Everything that it does not name stays: taints such as
/// `node.kubernetes.io/not-ready` belong to the controllers, so it does not use server-side apply,
/// for which the list of taints is one value.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeSettings {
    /// The node.
    pub name: String,
    /// The labels; `null` removes one.
    pub labels: Map<String, Value>,
    /// The annotations; `null` removes one.
    pub annotations: Map<String, Value>,
    /// All taints `{key, value, effect}`, except those that Kubernetes' controllers set and remove;
    /// `None` leaves taints alone.
    pub taints: Option<Vec<Value>>,
    /// The annotation that records the keys of these labels, so that a label that is no longer
    /// wanted is recognised as the state's own and removed.
    pub record: Option<String>,
}

/// Taints with these prefixes are set and removed by Kubernetes' controllers.
const CONTROLLERS_TAINTS: [&str; 2] = ["node.kubernetes.io/", "node.cloudprovider.kubernetes.io/"];

impl NodeSettings {
    /// The desired node.
    #[must_use]
    pub fn laid_over(&self, live: &Value) -> Value {
        let mut node = live.clone();
        self.forget_labels(&mut node);
        for (field, wanted) in [("labels", &self.labels), ("annotations", &self.annotations)] {
            if wanted.is_empty() {
                continue;
            }
            let Some(entries) = object_at(&mut node, "metadata", field) else {
                continue;
            };
            for (key, value) in wanted {
                match value {
                    Value::Null => {
                        entries.remove(key);
                    }
                    Value::String(text) => {
                        entries.insert(key.clone(), Value::from(text.clone()));
                    }
                    // `true` and `1` in YAML: labels are texts.
                    other => {
                        entries.insert(key.clone(), Value::from(other.to_string()));
                    }
                }
            }
        }
        let before: Vec<Value> = node
            .pointer("/spec/taints")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        let taints = self
            .taints
            .as_ref()
            .map(|wanted| merged_taints(&before, wanted))
            .unwrap_or_else(|| before.clone());
        if taints != before
            && let Some(spec) = node.as_object_mut().and_then(|n| {
                n.entry("spec")
                    .or_insert_with(|| Value::Object(Map::new()))
                    .as_object_mut()
            })
        {
            if taints.is_empty() {
                spec.remove("taints");
            } else {
                spec.insert("taints".into(), Value::from(taints));
            }
        }
        node
    }
}

impl NodeSettings {
    /// Removes the labels that the state set before and that are no longer wanted, and records the
    /// current ones.
    fn forget_labels(&self, node: &mut Value) {
        let Some(record) = &self.record else { return };
        let recorded: Vec<String> = node
            .pointer("/metadata/annotations")
            .and_then(|annotations| annotations.get(record)?.as_str())
            .map(|keys| keys.split(',').map(str::to_owned).collect())
            .unwrap_or_default();
        if let Some(labels) = object_at(node, "metadata", "labels") {
            labels.retain(|key, _| !recorded.contains(key) || self.labels.contains_key(key));
        }
        let set = self.labels.iter().filter(|(_, value)| !value.is_null());
        let mut keys: Vec<&str> = set.map(|(key, _)| key.as_str()).collect();
        keys.sort_unstable();
        if let Some(annotations) = object_at(node, "metadata", "annotations") {
            if keys.is_empty() {
                annotations.remove(record);
            } else {
                annotations.insert(record.clone(), Value::from(keys.join(",")));
            }
        }
    }
}

/// The controllers' taints unchanged, then the wanted ones; an existing wanted taint stays as it
/// is.
fn merged_taints(before: &[Value], wanted: &[Value]) -> Vec<Value> {
    let wanted: Vec<Value> = wanted.iter().map(normal_taint).collect();
    let key = |taint: &Value| {
        taint
            .get("key")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let mut taints: Vec<Value> = before
        .iter()
        .filter(|taint| {
            CONTROLLERS_TAINTS
                .iter()
                .any(|prefix| key(taint).starts_with(prefix))
                || wanted.contains(&normal_taint(taint))
        })
        .cloned()
        .collect();
    for taint in wanted {
        if !taints.iter().any(|there| normal_taint(there) == taint) {
            taints.push(taint);
        }
    }
    taints
}

fn object_at<'a>(
    node: &'a mut Value,
    outer: &str,
    inner: &str,
) -> Option<&'a mut Map<String, Value>> {
    node.as_object_mut()?
        .entry(outer)
        .or_insert_with(|| Value::Object(Map::new()))
        .as_object_mut()?
        .entry(inner)
        .or_insert_with(|| Value::Object(Map::new()))
        .as_object_mut()
}

/// Key, value (if not empty) and effect, without the time at which a controller added it.
fn normal_taint(taint: &Value) -> Value {
    let mut fields = Map::new();
    for key in ["key", "value", "effect"] {
        if let Some(value) = taint
            .get(key)
            .filter(|v| v.as_str() != Some("") && !v.is_null())
        {
            let text = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            fields.insert(key.into(), Value::from(text));
        }
    }
    Value::Object(fields)
}

/// A node's name in the API.
#[must_use]
pub fn reference(name: &str) -> ObjectRef {
    ObjectRef {
        api_version: "v1".into(),
        kind: "Node".into(),
        namespace: String::new(),
        name: name.into(),
    }
}

/// Creates the error of a node that never registered.
#[must_use]
pub fn missing(name: &str) -> ApiError {
    ApiError::Malformed(format!(
        "node {name} is not registered in the Kubernetes API: does its kubelet run? (`systemctl status kubelet` there)"
    ))
}

/// The known readiness of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    /// The condition `Ready` is true, and nothing prevents new pods.
    Ready,
    /// `Ready` is true, but the kubelet lacks a resource and accepts no new pods; the sentences
    /// name the resource.
    UnderPressure(Vec<String>),
    /// `Ready` is not true; the sentences contain the reasons that the API knows.
    NotReady(Vec<String>),
    /// There is no such node.
    Missing,
}

/// Conditions under which a kubelet that is `Ready` evicts pods and admits none, or only some
/// (kubelet's eviction manager).
const PRESSURES: [&str; 3] = ["DiskPressure", "MemoryPressure", "PIDPressure"];

/// Reads the condition `Ready` of a node, and the other conditions that explain it or that restrict
/// a ready node.
#[must_use]
pub fn readiness(node: Option<&Value>) -> Readiness {
    let Some(node) = node else {
        return Readiness::Missing;
    };
    let conditions = node
        .pointer("/status/conditions")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let text = |condition: &Value, field: &str| {
        condition
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let is_true = |c: &Value| text(c, "status") == "True";
    let sentence = |c: &Value| {
        format!(
            "{}={} ({}: {})",
            text(c, "type"),
            text(c, "status"),
            text(c, "reason"),
            text(c, "message")
        )
    };
    if conditions
        .iter()
        .any(|c| text(c, "type") == "Ready" && is_true(c))
    {
        let pressed = |c: &&Value| PRESSURES.contains(&text(c, "type").as_str()) && is_true(c);
        let pressures: Vec<String> = conditions.iter().filter(pressed).map(sentence).collect();
        return if pressures.is_empty() {
            Readiness::Ready
        } else {
            Readiness::UnderPressure(pressures)
        };
    }
    let mut reasons: Vec<String> = conditions
        .iter()
        .filter(|c| {
            let wanted = if text(c, "type") == "Ready" {
                "True"
            } else {
                "False"
            };
            text(c, "status") != wanted
        })
        .map(sentence)
        .collect();
    if reasons.is_empty() {
        reasons.push("its kubelet has reported no condition yet".into());
    }
    Readiness::NotReady(reasons)
}

/// The newest events of a node, one line each, for the report of a failed wait.
///
/// # Errors
/// The API failed.
pub async fn last_events(api: &dyn Api, name: &str, count: usize) -> Result<Vec<String>, ApiError> {
    let fields = format!("involvedObject.kind=Node,involvedObject.name={name}");
    let mut events = api.list("v1", "Event", "", &fields).await?;
    let when = |event: &Value| {
        ["lastTimestamp", "eventTime", "firstTimestamp"]
            .iter()
            .find_map(|field| event.get(*field).and_then(Value::as_str).map(str::to_owned))
            .unwrap_or_default()
    };
    events.sort_by_key(when);
    let text = |event: &Value, field: &str| {
        event
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let newest = events.iter().rev().take(count);
    Ok(newest
        .map(|event| format!("{}: {}", text(event, "reason"), text(event, "message")))
        .collect())
}

/// Readiness and kubelet version of every node, for `ctl status`.
///
/// # Errors
/// The API failed.
pub async fn overview(api: &dyn Api) -> Result<BTreeMap<String, KubernetesNode>, ApiError> {
    let nodes = api.list("v1", "Node", "", "").await?;
    Ok(nodes.iter().filter_map(overview_of).collect())
}

/// The name of a node with its readiness and kubelet version.
#[must_use]
pub fn overview_of(node: &Value) -> Option<(String, KubernetesNode)> {
    let name = node.pointer("/metadata/name").and_then(Value::as_str)?;
    let (ready, reasons) = match readiness(Some(node)) {
        Readiness::Ready => (true, Vec::new()),
        Readiness::UnderPressure(reasons) => (true, reasons),
        Readiness::NotReady(reasons) => (false, reasons),
        Readiness::Missing => return None,
    };
    let kubelet = node.pointer("/status/nodeInfo/kubeletVersion");
    let state = KubernetesNode {
        ready,
        reasons,
        kubelet: kubelet.and_then(Value::as_str).map(str::to_owned),
    };
    Some((name.to_owned(), state))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn live() -> Value {
        json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "n1", "labels": {"kubernetes.io/hostname": "n1", "old": "x"}},
            "spec": {"taints": [
                {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"},
                {"key": "gone", "effect": "NoExecute"}]}})
    }

    #[test]
    fn foreign_labels_and_the_controllers_taints_stay() {
        let wanted = NodeSettings {
            name: "n1".into(),
            labels: json!({"node-role.kubernetes.io/control-plane": "", "old": null})
                .as_object()
                .unwrap()
                .clone(),
            taints: Some(vec![
                json!({"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}),
            ]),
            ..NodeSettings::default()
        };
        let after = wanted.laid_over(&live());
        assert_eq!(
            after["metadata"]["labels"],
            json!({"kubernetes.io/hostname": "n1", "node-role.kubernetes.io/control-plane": ""})
        );
        let keys: Vec<_> = after["spec"]["taints"]
            .as_array()
            .unwrap()
            .iter()
            .map(|t| t["key"].as_str().unwrap())
            .collect();
        assert_eq!(
            keys,
            [
                "node.kubernetes.io/not-ready",
                "node-role.kubernetes.io/control-plane"
            ]
        );
        assert_eq!(
            wanted.laid_over(&after),
            after,
            "laying it over twice changes nothing"
        );
    }

    #[test]
    fn a_taint_that_is_there_is_left_alone_and_one_with_another_value_is_set() {
        let node = json!({"metadata": {"name": "n1"}, "spec": {"taints": [
            {"key": "a", "effect": "NoSchedule", "timeAdded": "t"}, {"key": "b", "value": "1", "effect": "NoSchedule"}]}});
        let wanted = NodeSettings {
            taints: Some(vec![
                json!({"key": "a", "value": "", "effect": "NoSchedule"}),
                json!({"key": "b", "value": "2", "effect": "NoSchedule"}),
            ]),
            ..NodeSettings::default()
        };
        let after = wanted.laid_over(&node);
        assert_eq!(after["spec"]["taints"][0]["timeAdded"], "t");
        assert_eq!(after["spec"]["taints"][1]["value"], "2");
    }

    #[test]
    fn a_node_that_takes_no_pods_is_not_simply_ready() {
        let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": "R", "message": "m"});
        for pressure in ["DiskPressure", "MemoryPressure", "PIDPressure"] {
            let node = |status| json!({"status": {"conditions": [condition(pressure, status), condition("Ready", "True")]}});
            assert_eq!(readiness(Some(&node("False"))), Readiness::Ready);
            let wanted = Readiness::UnderPressure(vec![format!("{pressure}=True (R: m)")]);
            assert_eq!(readiness(Some(&node("True"))), wanted);
        }
    }

    #[test]
    fn readiness_names_the_reasons() {
        assert_eq!(readiness(None), Readiness::Missing);
        let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        assert_eq!(readiness(Some(&ready)), Readiness::Ready);
        let not = json!({"status": {"conditions": [
            {"type": "MemoryPressure", "status": "False"},
            {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "cni plugin not initialized"}]}});
        assert_eq!(
            readiness(Some(&not)),
            Readiness::NotReady(vec![
                "Ready=False (KubeletNotReady: cni plugin not initialized)".into()
            ])
        );
    }
}
