//! Inputs for both sides: a cluster document for Halite, and an equivalent configuration for
//! kubeadm.

use anyhow::{Context as _, Result};
use halite_lab::cluster::BOOTSTRAP;
use halite_pillar::cluster::Cluster;
use halite_pillar::declaration::Declaration;
use halite_pillar::flags::Flags;
use halite_pillar::view::components;
use serde_json::{Value, json};

pub use crate::shipped_tree::parse;

/// The bootstrap node of the inputs without a running cluster.
const BOOTSTRAP_NODE: &str = "apiVersion: halite/v1
kind: Node
metadata:
  name: bootstrap-1
roles: [bootstrap, registry, etcd, control-plane]
address: 192.168.50.11
";

/// A second node of these inputs.
const WORKER_NODE: &str = "apiVersion: halite/v1
kind: Node
metadata:
  name: worker-1
roles: [worker]
address: 192.168.50.12
";

/// The runtime's socket, at the path that kubeadm uses.
pub(super) const CRI_SOCKET: &str = "unix:///var/run/containerd/containerd.sock";

/// Reads a cluster document with two nodes.
pub(super) fn declaration(cluster: &str) -> Result<Declaration> {
    parse(cluster, &[BOOTSTRAP_NODE, WORKER_NODE])
}

/// The configuration that an operator of kubeadm would write for the same cluster, for Kubernetes
/// `version`. JSON is valid YAML.
pub fn kubeadm(declaration: &Declaration, version: &str) -> Result<String> {
    Ok(text(&configuration(declaration, version)?))
}

/// Joins documents into one text.
pub(super) fn text(documents: &[Value]) -> String {
    documents
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("\n---\n")
}

/// kubeadm's configuration: the `InitConfiguration`, then the others.
pub(super) fn configuration(declaration: &Declaration, version: &str) -> Result<Vec<Value>> {
    let cluster = &declaration.cluster.value;
    let node = declaration
        .nodes
        .get(BOOTSTRAP)
        .with_context(|| format!("{BOOTSTRAP} is not declared"))?;
    let address = node
        .control_plane()
        .with_context(|| format!("{BOOTSTRAP} has no address"))?;
    let mut init = json!({
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "InitConfiguration",
        "localAPIEndpoint": {"advertiseAddress": address, "bindPort": 6443},
        "nodeRegistration": {"name": BOOTSTRAP, "criSocket": CRI_SOCKET},
    });
    if let Some(taints) = &node.taints {
        init["nodeRegistration"]["taints"] = json!(taints);
    }
    if !cluster.kubelet.extra_args.is_empty() {
        let flags = arguments(json!(cluster.kubelet.extra_args));
        init["nodeRegistration"]["kubeletExtraArgs"] = flags;
    }
    let mut documents = vec![init, cluster_configuration(cluster, version)];
    // kubeadm records whether its defaults were changed, so write these documents only if they have
    // content.
    if !cluster.kubelet.config.is_empty() {
        let base =
            json!({"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"});
        documents.push(with(base, &json!(cluster.kubelet.config)));
    }
    let proxy = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": cluster.kube_proxy.mode,
    });
    documents.push(with(proxy, &json!(cluster.kube_proxy.config)));
    Ok(documents)
}

fn cluster_configuration(cluster: &Cluster, version: &str) -> Value {
    let components = components(cluster);
    let component = |name: &str| {
        let own = &components[name];
        let mut given = json!({"extraArgs": arguments(own["extraArgs"].clone())});
        if own["extraVolumes"]
            .as_array()
            .is_some_and(|all| !all.is_empty())
        {
            given["extraVolumes"] = own["extraVolumes"].clone();
        }
        given
    };
    let mut api_server = component("apiServer");
    api_server["certSANs"] = json!(cluster.api_server.cert_sans);
    json!({
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "ClusterConfiguration",
        "clusterName": cluster.metadata.name,
        "kubernetesVersion": version,
        // Not kubeadm's default, but one of its options, chosen in
        // docs/decisions/0003-key-algorithm.md.
        "encryptionAlgorithm": "ECDSA-P256",
        "controlPlaneEndpoint": format!("{}:6443", cluster.endpoint()),
        "networking": {
            "dnsDomain": cluster.dns_domain,
            "podSubnet": cluster.networks.pods,
            "serviceSubnet": cluster.networks.services,
        },
        "apiServer": api_server,
        "controllerManager": component("controllerManager"),
        "scheduler": component("scheduler"),
        "etcd": {"local": {"extraArgs": arguments(json!(cluster.etcd.extra_args))}},
    })
}

/// Flags as a list of names and values, in which a flag with several values occurs several times.
fn arguments(extra: Value) -> Value {
    let flags: Flags = serde_json::from_value(extra).unwrap_or_default();
    let each = flags.iter().flat_map(|(name, value)| {
        let values = value.all().iter();
        values.map(move |value| json!({"name": name, "value": value}))
    });
    each.collect()
}

/// Merges a second mapping into the first; for fields in both, the second's value is used.
fn with(mut base: Value, over: &Value) -> Value {
    for (key, value) in over.as_object().into_iter().flatten() {
        base[key] = value.clone();
    }
    base
}

#[cfg(test)]
mod tests {
    use halite_lab::cluster::CLUSTER;

    use super::*;
    use crate::kubeadm::documents::{INPUTS, OTHER_FLAGS};

    #[test]
    fn every_input_is_valid() {
        parse(
            CLUSTER,
            &[&BOOTSTRAP_NODE.replace("192.168.50.", "10.10.0.")],
        )
        .unwrap();
        for input in INPUTS {
            declaration(input.document).unwrap();
        }
    }

    #[test]
    fn kubeadm_gets_the_settings_of_the_document() {
        let text = kubeadm(&declaration(OTHER_FLAGS).unwrap(), "v1.36.3").unwrap();
        let documents: Vec<Value> = text
            .split("\n---\n")
            .map(|d| serde_json::from_str(d).unwrap())
            .collect();
        let kinds: Vec<&str> = documents
            .iter()
            .map(|d| d["kind"].as_str().unwrap())
            .collect();
        assert_eq!(
            kinds,
            [
                "InitConfiguration",
                "ClusterConfiguration",
                "KubeletConfiguration",
                "KubeProxyConfiguration"
            ]
        );
        assert_eq!(
            documents[1]["apiServer"]["extraArgs"][0],
            json!({"name": "audit-log-maxage", "value": "30"})
        );
        assert_eq!(
            documents[0]["nodeRegistration"]["kubeletExtraArgs"][0],
            json!({"name": "image-credential-provider-bin-dir", "value": "/opt/providers"})
        );
        assert_eq!(documents[3]["mode"], "nftables");
        assert_eq!(documents[2]["maxPods"], 200);
    }

    #[test]
    fn defaults_of_the_kubelet_are_left_to_kubeadm() {
        let text = kubeadm(&declaration(INPUTS[0].document).unwrap(), "v1.36.3").unwrap();
        assert!(!text.contains("KubeletConfiguration"), "{text}");
    }
}
