//! API objects, as a picture of their meaning.

use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};

use super::certificate::Authorities;
use super::difference::Picture;
use super::files::without_server_fields;
use super::kubeconfig;

/// Entries of ConfigMaps that are YAML themselves.
const YAML_ENTRIES: [&str; 4] = [
    "ClusterConfiguration",
    "kubelet",
    "config.conf",
    "kubeconfig.conf",
];

/// The entry of `cluster-info` that is a kubeconfig with an embedded authority.
const KUBECONFIG_ENTRY: &str = "kubeconfig";

/// Annotations that controllers write.
const OF_CONTROLLERS: [&str; 2] = [
    "deployment.kubernetes.io/revision",
    "deprecated.daemonset.template.generation",
];

/// The place of an object: `object/KIND/NAMESPACE/NAME`, without the namespace if there is none.
pub(super) fn place(object: &Value) -> Result<String> {
    let kind = object["kind"].as_str().context("an object has no kind")?;
    let name = object["metadata"]["name"]
        .as_str()
        .with_context(|| format!("a {kind} has no name"))?;
    Ok(match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("object/{kind}/{namespace}/{name}"),
        None => format!("object/{kind}/{name}"),
    })
}

/// Adds objects to a picture, without the fields that server and controllers set.
pub(super) fn add(
    picture: &mut Picture,
    objects: &[Value],
    authorities: &Authorities,
) -> Result<()> {
    for object in objects {
        let place = place(object)?;
        let object = meaning(object.clone(), authorities).with_context(|| place.clone())?;
        picture.insert(place, object);
    }
    Ok(())
}

fn meaning(mut object: Value, authorities: &Authorities) -> Result<Value> {
    without_server_fields(&mut object);
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
        && let Some(annotations) = metadata
            .get_mut("annotations")
            .and_then(Value::as_object_mut)
    {
        annotations.retain(|name, _| !OF_CONTROLLERS.contains(&name.as_str()));
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    for subject in object
        .get_mut("subjects")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        // The server's default.
        if matches!(subject["kind"].as_str(), Some("User" | "Group"))
            && subject.get("apiGroup").is_none()
        {
            subject["apiGroup"] = json!("rbac.authorization.k8s.io");
        }
    }
    if object["kind"] == "ConfigMap"
        && let Some(data) = object.get_mut("data").and_then(Value::as_object_mut)
    {
        unfold(data, authorities)?;
    }
    Ok(object)
}

/// Replaces texts that are YAML by their parsed content.
fn unfold(data: &mut Map<String, Value>, authorities: &Authorities) -> Result<()> {
    for (name, value) in data.iter_mut() {
        let Some(text) = value.as_str() else { continue };
        if name == KUBECONFIG_ENTRY {
            *value = kubeconfig::describe(text, authorities).with_context(|| name.clone())?;
        } else if YAML_ENTRIES.contains(&name.as_str()) {
            *value = serde_saphyr::from_str(text).with_context(|| name.clone())?;
        }
    }
    Ok(())
}

/// Adds the labels and taints that kubeadm or Halite set on a node, as a separate place: labels
/// without those of the kubelet, taints without those of Kubernetes' controllers.
pub(super) fn add_node(picture: &mut Picture, name: &str, labels: &Value, taints: &Value) {
    let labels: Map<String, Value> = labels
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, _)| {
            !key.starts_with("kubernetes.io/") && !key.starts_with("beta.kubernetes.io/")
        })
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    picture.insert(
        format!("node/{name}"),
        json!({"labels": labels, "taints": own_taints(taints)}),
    );
}

/// Taints without those of Kubernetes' controllers.
pub(super) fn own_taints(taints: &Value) -> Vec<Value> {
    let taints = taints.as_array().into_iter().flatten();
    let of_controllers = |taint: &Value| {
        taint["key"]
            .as_str()
            .is_some_and(|key| key.starts_with("node.kubernetes.io/"))
    };
    taints
        .filter(|taint| !of_controllers(taint))
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_named_and_unfolded() {
        let object = json!({
            "kind": "ConfigMap",
            "metadata": {"name": "kubeadm-config", "namespace": "kube-system", "uid": "1", "resourceVersion": "2"},
            "data": {"ClusterConfiguration": "a:\n  b: 1\n", "Corefile": "a: b\n"},
        });
        let mut picture = Picture::new();
        add(&mut picture, &[object], &Authorities::default()).unwrap();
        assert_eq!(
            picture["object/ConfigMap/kube-system/kubeadm-config"],
            json!({
                "kind": "ConfigMap",
                "metadata": {"name": "kubeadm-config", "namespace": "kube-system"},
                "data": {"ClusterConfiguration": {"a": {"b": 1}}, "Corefile": "a: b\n"},
            })
        );
    }

    #[test]
    fn fields_of_the_server_do_not_count() {
        let ours = json!({
            "kind": "Deployment", "status": {"replicas": 1},
            "metadata": {"name": "d", "generation": 3, "annotations": {"deployment.kubernetes.io/revision": "1"}},
        });
        assert_eq!(
            meaning(ours, &Authorities::default()).unwrap(),
            json!({"kind": "Deployment", "metadata": {"name": "d"}})
        );
        let binding = json!({"kind": "RoleBinding", "subjects": [{"kind": "User", "name": "u"}]});
        let binding = meaning(binding, &Authorities::default()).unwrap();
        assert_eq!(
            binding["subjects"][0]["apiGroup"],
            "rbac.authorization.k8s.io"
        );
    }

    #[test]
    fn a_node_is_what_an_administrator_set() {
        let mut picture = Picture::new();
        let labels =
            json!({"kubernetes.io/os": "linux", "node-role.kubernetes.io/control-plane": ""});
        let taints = json!([{"key": "node.kubernetes.io/not-ready"}, {"key": "x"}]);
        add_node(&mut picture, "a", &labels, &taints);
        assert_eq!(
            picture["node/a"],
            json!({"labels": {"node-role.kubernetes.io/control-plane": ""}, "taints": [{"key": "x"}]})
        );
    }
}
