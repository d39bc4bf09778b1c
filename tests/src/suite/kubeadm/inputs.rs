//! The same inputs for both: a cluster document for Halite, and for kubeadm the configuration that says the same.

use anyhow::{Context as _, Result};
use halite_pillar::{
    cluster::Cluster,
    load::{Declaration, Text, Texts, load},
    validate::Context,
};
use serde_json::{Value, json};

use crate::cluster::BOOTSTRAP;

/// Other networks, another domain, another endpoint, kube-proxy with iptables, the kubelet's defaults.
pub(super) const OTHER_NETWORKS: &str = r#"apiVersion: halite/v1
kind: Cluster
metadata:
  name: other
dnsDomain: cluster.site.example
networks:
  controlPlane:
    cidrs: [192.168.50.0/24]
  pods: 172.30.0.0/16
  services: 10.120.0.0/20
apiServer:
  endpoint: k8s.site.example
  vip: 192.168.50.100
  extraArgs:
    authorization-mode: Node,RBAC,Webhook
etcd:
  extraArgs:
    listen-metrics-urls: https://0.0.0.0
kubernetes:
  version: "1.36"
kubeProxy:
  mode: iptables
"#;

/// No virtual address, further names of the API, and extra flags and settings for everything that takes them.
pub(super) const OTHER_FLAGS: &str = r#"apiVersion: halite/v1
kind: Cluster
metadata:
  name: flags
networks:
  controlPlane:
    cidrs: [192.168.50.0/24]
apiServer:
  certSANs: [k8s.example.com, 203.0.113.7, api.flags.internal]
  extraArgs:
    audit-log-maxage: "30"
    authorization-config: /etc/kubernetes/authorization.yaml
    profiling: "false"
controllerManager:
  extraArgs:
    bind-address: 0.0.0.0
    terminated-pod-gc-threshold: "50"
scheduler:
  extraArgs:
    bind-address: 192.168.50.11
    profiling: "false"
etcd:
  extraArgs:
    listen-metrics-urls: http://192.168.50.11:2385,http://127.0.0.1:2381
    quota-backend-bytes: "8589934592"
    snapshot-count: "5000"
kubernetes:
  version: "1.36"
kubelet:
  config:
    maxPods: 200
    shutdownGracePeriod: 60s
    logging:
      verbosity: 2
    evictionHard: {memory.available: 200Mi}
kubeProxy:
  config:
    conntrack:
      min: 65536
    metricsBindAddress: 127.0.0.1:10249
"#;

/// The bootstrap node of the inputs above.
const BOOTSTRAP_NODE: &str = "apiVersion: halite/v1
kind: Node
metadata:
  name: bootstrap-1
roles: [bootstrap, registry, etcd, control-plane]
address: 192.168.50.11
";

/// A second node of them.
const WORKER_NODE: &str = "apiVersion: halite/v1
kind: Node
metadata:
  name: worker-1
roles: [worker]
address: 192.168.50.12
";

/// Reads a cluster document with two nodes.
pub(super) fn declaration(cluster: &str) -> Result<Declaration> {
    parse(cluster, &[BOOTSTRAP_NODE, WORKER_NODE])
}

/// Reads a cluster document and the documents of its nodes.
pub(crate) fn parse(cluster: &str, nodes: &[&str]) -> Result<Declaration> {
    let text = |file: String, text: &str| Text { file, text: text.to_owned() };
    let nodes = nodes.iter().enumerate().map(|(n, node)| text(format!("node {n}"), node)).collect();
    let texts = Texts { cluster: text("cluster.yaml".to_owned(), cluster), nodes, custom: None };
    load(&texts, &Context::default()).map_err(|problems| {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        anyhow::anyhow!("{}", problems.join("\n"))
    })
}

/// What an operator of kubeadm would write for the same cluster, for Kubernetes `version`. JSON is YAML.
pub(crate) fn kubeadm(declaration: &Declaration, version: &str) -> Result<String> {
    let cluster = &declaration.cluster.value;
    let node = declaration.nodes.get(BOOTSTRAP).with_context(|| format!("{BOOTSTRAP} is not declared"))?;
    let address = node.control_plane().with_context(|| format!("{BOOTSTRAP} has no address"))?;
    let mut init = json!({
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "InitConfiguration",
        "localAPIEndpoint": {"advertiseAddress": address, "bindPort": 6443},
        "nodeRegistration": {"name": BOOTSTRAP, "criSocket": "unix:///var/run/containerd/containerd.sock"},
    });
    if let Some(taints) = &node.taints {
        init["nodeRegistration"]["taints"] = json!(taints);
    }
    let mut documents = vec![init, cluster_configuration(cluster, version)];
    // kubeadm notes whether its defaults were changed, so these are written only where there is something to say.
    if !cluster.kubelet.config.is_empty() {
        let base = json!({"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"});
        documents.push(with(base, &json!(cluster.kubelet.config)));
    }
    let proxy = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": cluster.kube_proxy.mode,
    });
    documents.push(with(proxy, &json!(cluster.kube_proxy.config)));
    Ok(documents.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n---\n"))
}

fn cluster_configuration(cluster: &Cluster, version: &str) -> Value {
    let arguments = |extra: &std::collections::BTreeMap<String, String>| -> Value {
        extra.iter().map(|(name, value)| json!({"name": name, "value": value})).collect()
    };
    json!({
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "ClusterConfiguration",
        "clusterName": cluster.metadata.name,
        "kubernetesVersion": version,
        // Not kubeadm's default, but the choice of docs/decisions/0003-key-algorithm.md, which kubeadm also offers.
        "encryptionAlgorithm": "ECDSA-P256",
        "controlPlaneEndpoint": format!("{}:6443", cluster.endpoint()),
        "networking": {
            "dnsDomain": cluster.dns_domain,
            "podSubnet": cluster.networks.pods,
            "serviceSubnet": cluster.networks.services,
        },
        "apiServer": {
            "certSANs": cluster.api_server.cert_sans,
            "extraArgs": arguments(&cluster.api_server.extra_args),
        },
        "controllerManager": {"extraArgs": arguments(&cluster.controller_manager.extra_args)},
        "scheduler": {"extraArgs": arguments(&cluster.scheduler.extra_args)},
        "etcd": {"local": {"extraArgs": arguments(&cluster.etcd.extra_args)}},
    })
}

/// The fields of a second mapping beside those of the first; on both sides, the second's.
fn with(mut base: Value, over: &Value) -> Value {
    for (key, value) in over.as_object().into_iter().flatten() {
        base[key] = value.clone();
    }
    base
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::CLUSTER;

    #[test]
    fn every_input_is_valid() {
        parse(CLUSTER, &[&BOOTSTRAP_NODE.replace("192.168.50.", "10.10.0.")]).unwrap();
        for document in [OTHER_NETWORKS, OTHER_FLAGS] {
            declaration(document).unwrap();
        }
    }

    #[test]
    fn kubeadm_is_told_what_the_document_says() {
        let text = kubeadm(&declaration(OTHER_FLAGS).unwrap(), "v1.36.3").unwrap();
        let documents: Vec<Value> = text.split("\n---\n").map(|d| serde_json::from_str(d).unwrap()).collect();
        let kinds: Vec<&str> = documents.iter().map(|d| d["kind"].as_str().unwrap()).collect();
        assert_eq!(
            kinds,
            ["InitConfiguration", "ClusterConfiguration", "KubeletConfiguration", "KubeProxyConfiguration"]
        );
        assert_eq!(
            documents[1]["apiServer"]["extraArgs"][0],
            json!({"name": "audit-log-maxage", "value": "30"})
        );
        assert_eq!(documents[3]["mode"], "nftables");
        assert_eq!(documents[2]["maxPods"], 200);
    }

    #[test]
    fn defaults_of_the_kubelet_are_left_to_kubeadm() {
        let text = kubeadm(&declaration(OTHER_NETWORKS).unwrap(), "v1.36.3").unwrap();
        assert!(!text.contains("KubeletConfiguration"), "{text}");
    }
}
