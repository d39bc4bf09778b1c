//! A worker: the result of `kubeadm join` on a bare host, compared with the worker that Halite made
//! for the same cluster.

use anyhow::{Context as _, Result};
use halite_lab::cluster::{BOOTSTRAP, Cluster, WORKER};
use halite_pillar::bundle_facts::BundleFacts;
use halite_pillar::view::Pki;
use serde_json::{Map, Value, json};

use super::certificate::Authorities;
use super::difference::{Difference, Picture};
use super::files::File;
use super::join::NAME;
use super::{differ, files, inputs, join, kubeconfig, objects, rendered};

/// Prefix of every place of a worker.
const PREFIX: &str = "worker/";

/// Annotations that controllers write some time after the registration of a node.
const OF_CONTROLLERS: [&str; 1] = ["node.alpha.kubernetes.io/ttl"];

/// Joins a host by kubeadm and compares it with the lab's running worker, and with the state tree's
/// declaration of one with taints.
pub(super) fn compare(
    cluster: &Cluster,
    bundle: &BundleFacts,
) -> Result<Vec<(&'static str, Vec<Difference>)>> {
    let taints = json!([
        {"key": "example.com/gpu", "value": "a100", "effect": "NoSchedule"},
        {"key": "example.com/slow", "effect": "PreferNoSchedule"},
    ]);
    let joined = join::join(cluster, &taints)?;
    let mut theirs = picture(&joined.files, &joined.node)?;
    let worker = &cluster.worker;
    let ours = [worker.control_plane_address(), worker.workload_address()];
    let names = [
        (NAME, WORKER),
        (&joined.addresses[0], &ours[0]),
        (&joined.addresses[1], &ours[1]),
    ];
    theirs
        .values_mut()
        .for_each(|value| *value = renamed(value, &names));
    let node = cluster.kubectl(&["get", "node", WORKER, "-o", "json"])?;
    let ours = picture(&join::of_worker(worker)?, &serde_json::from_str(&node)?)?;
    let with_taints = (
        kubelet(files::picture(&joined.tainted, &Authorities::default())),
        tainted(cluster, bundle, &taints)?,
    );
    Ok(vec![
        ("the running worker", differ::compare(&theirs, &ours)),
        (
            "a worker with taints",
            differ::compare(&with_taints.0, &with_taints.1),
        ),
    ])
}

/// The state tree's declaration of the joined host, if it were Halite's and had taints.
fn tainted(cluster: &Cluster, bundle: &BundleFacts, taints: &Value) -> Result<Picture> {
    let read = |file: &str| {
        cluster
            .bootstrap
            .run(&["cat", &format!("/etc/halite/{file}")])
    };
    let node = json!({
        "apiVersion": "halite/v1",
        "kind": "Node",
        "metadata": {"name": NAME},
        "roles": ["worker"],
        "address": cluster.worker.control_plane_address(),
        "taints": taints,
    });
    let first = read(&format!("nodes/{BOOTSTRAP}.yaml"))?;
    let declaration = inputs::parse(&read("cluster.yaml")?, &[&first, &node.to_string()])?;
    let authorities = Authorities::default();
    Ok(kubelet(rendered::host(
        &declaration,
        bundle,
        &Pki::default(),
        &authorities,
        NAME,
    )?))
}

/// The kubelet's files of a picture.
fn kubelet(picture: Picture) -> Picture {
    let of_kubelet = picture
        .into_iter()
        .filter(|(place, _)| place.starts_with("kubelet/"));
    of_kubelet
        .map(|(place, value)| (format!("{PREFIX}{place}"), value))
        .collect()
}

/// The meaning of a worker's files and its node.
fn picture(files: &[File], node: &Value) -> Result<Picture> {
    let authorities = files::authorities(files);
    let mut picture = files::picture(files, &authorities);
    let config = picture
        .get_mut("kubeconfig/kubelet.conf")
        .context("there is no kubelet.conf")?;
    *config = kubeconfig::in_use(config)?;
    picture.insert("node".to_owned(), describe(node));
    Ok(picture
        .into_iter()
        .map(|(place, value)| (format!("{PREFIX}{place}"), value))
        .collect())
}

/// A node without the fields that change while it runs.
fn describe(node: &Value) -> Value {
    let (metadata, status) = (&node["metadata"], &node["status"]);
    let mut annotations = metadata["annotations"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    annotations.retain(|name, _| !OF_CONTROLLERS.contains(&name.as_str()));
    let addresses: Map<String, Value> = status["addresses"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|entry| {
            (
                entry["type"].as_str().unwrap_or_default().to_owned(),
                entry["address"].clone(),
            )
        })
        .collect();
    json!({
        "labels": metadata["labels"],
        "annotations": annotations,
        "taints": objects::own_taints(&node["spec"]["taints"]),
        "addresses": addresses,
        "kubelet": status["nodeInfo"]["kubeletVersion"],
        "runtime": status["nodeInfo"]["containerRuntimeVersion"],
    })
}

/// Replaces the names of one host by another's in all texts and keys of a value.
fn renamed(value: &Value, names: &[(&str, &str)]) -> Value {
    let text = |text: &str| {
        names
            .iter()
            .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
    };
    match value {
        Value::String(old) => json!(text(old)),
        Value::Array(items) => items.iter().map(|item| renamed(item, names)).collect(),
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .map(|(key, value)| (text(key), renamed(value, names)))
                .collect(),
        ),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_host_stands_for_another() {
        let value = json!({"system:node:a-1": ["x", {"ip": "10.0.0.1:6443"}, 1]});
        assert_eq!(
            renamed(&value, &[("a-1", "b-1"), ("10.0.0.1", "10.0.0.2")]),
            json!({"system:node:b-1": ["x", {"ip": "10.0.0.2:6443"}, 1]})
        );
    }

    #[test]
    fn a_node_is_described_without_its_changing_fields() {
        let node = json!({
            "metadata": {
                "name": "a", "resourceVersion": "1",
                "labels": {"kubernetes.io/hostname": "a"},
                "annotations": {"node.alpha.kubernetes.io/ttl": "0", "x": "y"},
            },
            "spec": {"podCIDR": "10.0.0.0/24", "taints": [{"key": "node.kubernetes.io/not-ready"}, {"key": "x"}]},
            "status": {
                "addresses": [{"type": "Hostname", "address": "a"}],
                "nodeInfo": {"kubeletVersion": "v1", "containerRuntimeVersion": "c", "bootID": "b"},
            },
        });
        assert_eq!(
            describe(&node),
            json!({
                "labels": {"kubernetes.io/hostname": "a"},
                "annotations": {"x": "y"},
                "taints": [{"key": "x"}],
                "addresses": {"Hostname": "a"},
                "kubelet": "v1",
                "runtime": "c",
            })
        );
    }
}
