//! Damages of Kubernetes objects, each read back from the API.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};
use halite_lab::cluster::Cluster;
use serde_json::{Map, Value, json};

use super::low::{Low, LowStateEntry, MASTER, Tag};

/// Kubeconfig of an administrator whose rights do not depend on bindings, which may be damaged.
const KUBECONFIG: &str = "--kubeconfig=/etc/kubernetes/super-admin.conf";

/// Name of a foreign label and annotation: they stay on every object.
const FOREIGN: &str = "operator.example/theirs";

/// One object that a state of the target `master` declares.
struct Object {
    tag: Tag,
    wanted: Value,
    /// Set if Halite owns the whole object: a repair removes additions of others.
    whole: bool,
}

/// The damage to an object.
enum Change {
    Replaced(Value),
    Deleted,
}

/// All objects of the low state that can be damaged.
pub struct Objects(Vec<Object>);

impl Objects {
    /// Collects the objects of the target `master`.
    pub fn of(low: &Low) -> Self {
        Self(low.of(MASTER).flat_map(objects).collect())
    }

    /// The states whose objects are damaged.
    pub fn tags(&self) -> BTreeSet<Tag> {
        self.0.iter().map(|object| object.tag.clone()).collect()
    }

    fn file(&self) -> String {
        json!({"apiVersion": "v1", "kind": "List", "items": self.0.iter().map(|o| &o.wanted).collect::<Vec<_>>()}).to_string()
    }

    /// The current objects, by name, without the fields that the server maintains.
    fn live(&self, cluster: &Cluster) -> Result<BTreeMap<String, Value>> {
        std::fs::write(
            cluster
                .bootstrap
                .root()
                .join("root/halite-test-objects.json"),
            self.file(),
        )?;
        let get = [
            "get",
            "-f",
            "/root/halite-test-objects.json",
            "--ignore-not-found",
            "-o",
            "json",
        ];
        let text = kubectl(cluster, &get)?;
        let list: Value = serde_json::from_str(&text).context("kubectl did not print JSON")?;
        let items = list["items"]
            .as_array()
            .context("kubectl did not print a list")?;
        Ok(items.iter().map(|item| (key(item), bare(item))).collect())
    }

    /// The objects for a comparison: as from [`Self::live`], but without foreign labels and
    /// annotations, and of nodes only labels and taints.
    pub fn read(&self, cluster: &Cluster) -> Result<BTreeMap<String, String>> {
        let live = self.live(cluster)?;
        let one = |object: &Object| {
            let key = key(&object.wanted);
            let text = live.get(&key).map_or_else(
                || "not there".to_owned(),
                |found| compared(found).to_string(),
            );
            (key, text)
        };
        Ok(self.0.iter().map(one).collect())
    }

    /// Damages every object and adds foreign labels to those that stay; returns the names of these.
    pub fn damage(&self, cluster: &Cluster) -> Result<BTreeSet<String>> {
        let live = self.live(cluster)?;
        let (mut replaced, mut deleted) = (Vec::new(), Vec::new());
        let mut stay = BTreeSet::new();
        for (number, object) in self.0.iter().enumerate() {
            let key = key(&object.wanted);
            let found = live
                .get(&key)
                .with_context(|| format!("{key} does not exist"))?;
            match damaged(object, found, number)? {
                Change::Replaced(value) => {
                    stay.insert(key);
                    replaced.push(value);
                }
                Change::Deleted => deleted.push(found.clone()),
            }
        }
        send(cluster, "replace", &replaced)?;
        send(cluster, "delete", &deleted)?;
        Ok(stay)
    }

    /// Removes the foreign labels and annotations; an error if one is already gone.
    pub fn without_foreign(&self, cluster: &Cluster, stay: &BTreeSet<String>) -> Result<()> {
        let mut items = Vec::new();
        for (name, mut object) in self
            .live(cluster)?
            .into_iter()
            .filter(|(name, _)| stay.contains(name))
        {
            for field in ["labels", "annotations"] {
                let map = object["metadata"]
                    .get_mut(field)
                    .and_then(Value::as_object_mut);
                let kept = map.is_some_and(|map| map.shift_remove(FOREIGN).is_some());
                ensure!(kept, "{name} lost a foreign entry of its {field}");
            }
            items.push(object);
        }
        send(cluster, "replace", &items)
    }
}

fn send(cluster: &Cluster, verb: &str, items: &[Value]) -> Result<()> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    std::fs::write(
        cluster
            .bootstrap
            .root()
            .join("root/halite-test-damage.json"),
        list.to_string(),
    )?;
    kubectl(cluster, &[verb, "-f", "/root/halite-test-damage.json"]).map(drop)
}

/// Runs kubectl with the API server's address: its name may be damaged.
fn kubectl(cluster: &Cluster, args: &[&str]) -> Result<String> {
    let server = format!(
        "--server=https://{}:6443",
        cluster.bootstrap.control_plane_address()
    );
    let mut all = vec![KUBECONFIG, server.as_str()];
    all.extend(args);
    cluster.kubectl(&all)
}

fn objects(state: &LowStateEntry) -> Vec<Object> {
    let object = |wanted: Value| Object {
        tag: state.tag.clone(),
        wanted,
        whole: state.flag("whole"),
    };
    match state.function.as_str() {
        "kubernetes.manifest" => {
            let documents = state
                .args
                .get("documents")
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default();
            // A service account has no content but its name, and a recreated one is another
            // account: the tokens of the pods that run under it would be invalid.
            documents
                .into_iter()
                .filter(|d| d["kind"] != "ServiceAccount")
                .map(object)
                .collect()
        }
        "kubernetes.node" => {
            let name = state.text("object").unwrap_or(&state.name);
            let metadata = json!({"name": name, "labels": state.args.get("labels")});
            vec![object(
                json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata}),
            )]
        }
        _ => Vec::new(),
    }
}

fn key(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    format!(
        "{} {} {}",
        text(&object["kind"]),
        text(&metadata["namespace"]),
        text(&metadata["name"])
    )
}

/// Removes the fields that the server maintains.
fn bare(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.shift_remove("status");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in [
            "managedFields",
            "resourceVersion",
            "uid",
            "generation",
            "creationTimestamp",
        ] {
            metadata.shift_remove(field);
        }
    }
    object
}

fn compared(object: &Value) -> Value {
    let mut object = object.clone();
    for field in ["labels", "annotations"] {
        if let Some(map) = object["metadata"]
            .get_mut(field)
            .and_then(Value::as_object_mut)
        {
            map.shift_remove(FOREIGN);
            if map.is_empty() {
                object["metadata"]
                    .as_object_mut()
                    .and_then(|metadata| metadata.shift_remove(field));
            }
        }
    }
    if object["kind"] == "Node" {
        return json!({"labels": sorted(&object["metadata"]["labels"]), "taints": object["spec"]["taints"]});
    }
    sorted(&object)
}

/// Sorts the fields: their order has no meaning.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let ordered: BTreeMap<&String, Value> = fields
                .iter()
                .map(|(key, value)| (key, sorted(value)))
                .collect();
            ordered
                .into_iter()
                .map(|(key, value)| (key.clone(), value))
                .collect::<Map<_, _>>()
                .into()
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        other => other.clone(),
    }
}

/// Damages an object in a way of its kind; objects of the same kind get its ways in turn.
fn damaged(object: &Object, live: &Value, number: usize) -> Result<Change> {
    let mut after = live.clone();
    let done = match live["kind"].as_str().unwrap_or_default() {
        "ConfigMap" => config_map(object, &mut after),
        "Role" | "ClusterRole" => {
            after["rules"][0]["verbs"] = json!(["list"]);
            true
        }
        "RoleBinding" | "ClusterRoleBinding" if number.is_multiple_of(2) => {
            return Ok(Change::Deleted);
        }
        "RoleBinding" | "ClusterRoleBinding" => {
            let stranger = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "stranger"});
            after["subjects"] = json!([stranger]);
            true
        }
        "Deployment" => {
            after["spec"]["replicas"] = json!(1);
            true
        }
        "Node" => {
            if let Some(spec) = after["spec"].as_object_mut() {
                spec.shift_remove("taints");
            }
            first_label(object, &mut after, None)
        }
        // The API server validates the values of its labels.
        "Namespace" => first_label(object, &mut after, None),
        _ => first_label(object, &mut after, Some("damaged")),
    };
    if !done {
        bail!("cannot damage {}", key(live));
    }
    for field in ["labels", "annotations"] {
        after["metadata"][field][FOREIGN] = json!("yes");
    }
    Ok(Change::Replaced(after))
}

/// Adds a line to the first value, and a foreign value if Halite owns the whole object. kube-proxy
/// exits when a file of its configuration changes, so its ConfigMap only gets a changed label.
fn config_map(object: &Object, after: &mut Value) -> bool {
    if after["metadata"]["name"] == "kube-proxy" {
        return first_label(object, after, Some("damaged"));
    }
    let first = object.wanted["data"]
        .as_object()
        .and_then(|data| data.keys().next())
        .cloned();
    let Some(first) = first else { return false };
    let text = after["data"][&first]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    after["data"][&first] = json!(format!("{text}\n# damaged\n"));
    if object.whole {
        after["data"]["foreign"] = json!("without an owner");
    }
    true
}

/// Changes, or removes, the first label that Halite set.
fn first_label(object: &Object, after: &mut Value, value: Option<&str>) -> bool {
    let ours = object.wanted["metadata"]["labels"]
        .as_object()
        .and_then(|labels| labels.keys().next());
    let (Some(label), Some(labels)) = (ours, after["metadata"]["labels"].as_object_mut()) else {
        return false;
    };
    match value {
        Some(value) => {
            labels.insert(label.clone(), json!(value));
        }
        None => {
            labels.shift_remove(label);
        }
    }
    true
}
