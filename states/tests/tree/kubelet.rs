//! The kubelet's flags.

use serde_json::{Value, json};

use crate::support::{contents, fixture, highstate};

/// The flags of the worker whose node document has these labels.
fn flags(labels: &Value) -> String {
    let (mut pillar, grains) = fixture("worker");
    pillar["halite"]["node"]["labels"] = labels.clone();
    let compiled = highstate(&pillar, &grains);
    contents(&compiled, "/var/lib/kubelet/kubeadm-flags.env").to_owned()
}

/// With any other label of Kubernetes a kubelet does not start, and the API server refuses its node.
#[test]
fn a_node_registers_with_the_labels_that_a_kubelet_may_set() {
    assert!(!flags(&json!({})).contains("node-labels"));
    let text = flags(&json!({
        "disk": "ssd",
        "example.com/empty": "",
        "topology.kubernetes.io/zone": "a",
        "node.kubernetes.io/instance-type": "big",
        "site.node.kubernetes.io/rack": "7",
        "kubelet.kubernetes.io/x": "y",
        "kubernetes.io/role": "no",
        "node-restriction.kubernetes.io/tier": "no",
        "example.k8s.io/x": "no",
    }));
    let wanted = "--node-labels=disk=ssd,example.com/empty=,kubelet.kubernetes.io/x=y,\
                  node.kubernetes.io/instance-type=big,site.node.kubernetes.io/rack=7,\
                  topology.kubernetes.io/zone=a\"";
    assert!(text.trim_end().ends_with(wanted), "{text}");
}

#[test]
fn declared_flags_of_the_kubelet_follow_its_own() {
    let (mut pillar, grains) = fixture("worker");
    pillar["halite"]["kubelet"]["extraArgs"] = json!({
        "image-credential-provider-config": "/etc/providers.yaml",
        "allowed-unsafe-sysctls": ["net.core.somaxconn", "kernel.shm*"],
    });
    let compiled = highstate(&pillar, &grains);
    let text = contents(&compiled, "/var/lib/kubelet/kubeadm-flags.env");
    let wanted = " --allowed-unsafe-sysctls=net.core.somaxconn --allowed-unsafe-sysctls=kernel.shm* \
                  --image-credential-provider-config=/etc/providers.yaml\"";
    assert!(
        text.contains("--node-ip=") && text.trim_end().ends_with(wanted),
        "{text}"
    );
}
