//! kubeadm's differences between the minor versions of Kubernetes.

use halite_states::compile;
use serde_json::{Value, json};

use crate::support::{chunk, contents, fixture, highstate, with};

/// By the checksum kubeadm sees whether its defaults were changed; this one is from kubeadm
/// v1.36.3 for the same cluster domain and DNS address.
#[test]
fn without_settings_of_the_operator_the_kubelets_configuration_is_kubeadms_own_text() {
    let (mut pillar, grains) = fixture("master");
    let hash = |pillar: &Value| {
        let compiled = highstate(pillar, &grains);
        let documents =
            &chunk(&compiled, "kubernetes.manifest", "kubeadm-configuration").args["documents"];
        documents[1]["metadata"]["annotations"]["kubeadm.kubernetes.io/component-config.hash"]
            .clone()
    };
    assert_eq!(
        hash(&pillar),
        "sha256:26488e9fc7c5cb5fdda9996cda2e6651a9af5febce07ea02de11bd3ef3f49e9c"
    );
    pillar["halite"]["kubelet"]["config"] = json!({"maxPods": 60});
    assert_eq!(hash(&pillar), Value::Null);
}

/// kubeadm's differences between the minor versions of Kubernetes that the tree knows; the lab's
/// suite `versions: …` compares them with the real ones.
#[test]
fn each_release_matches_its_kubeadm() {
    let (bootstrap, grains) = fixture("bootstrap");
    let (master, of_master) = fixture("master");
    for (version, older) in [("v1.35.4", true), ("1.35", true), ("v1.36.3", false)] {
        let (mut bootstrap, mut master) = (bootstrap.clone(), master.clone());
        for pillar in [&mut bootstrap, &mut master] {
            pillar["halite"]["kubernetes"]["version"] = json!(version);
        }
        let host = highstate(&bootstrap, &grains);
        let client = chunk(
            &host,
            "x509.certificate",
            "/etc/kubernetes/pki/apiserver-kubelet-client.crt",
        )
        .args
        .clone();
        let groups = if older {
            json!(["kubeadm:cluster-admins"])
        } else {
            Value::Null
        };
        assert_eq!(
            client.get("organization").unwrap_or(&Value::Null),
            &groups,
            "{version}"
        );
        let controllers = contents(
            &host,
            "/etc/kubernetes/manifests/kube-controller-manager.yaml",
        );
        assert_eq!(
            controllers.matches("flexvolume-dir").count(),
            if older { 2 } else { 0 },
            "{version}"
        );
        let objects = highstate(&master, &of_master);
        let rights = &chunk(&objects, "kubernetes.manifest", "kubeadm-rbac").args["documents"];
        let names: Vec<&str> = rights
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|object| object["metadata"]["name"].as_str())
            .collect();
        assert_eq!(names.len(), 12, "{version}: {names:?}");
        let mut chunks = objects.low.chunks.iter();
        let client = chunks.find(|chunk| chunk.id == "kubeadm-kubelet-client");
        assert_eq!(client.is_none(), older, "{version}");
        if let Some(client) = client {
            let binding = &client.args["documents"][0];
            assert_eq!(
                binding["metadata"]["name"],
                "kubeadm:apiserver-kubelet-client"
            );
        }
    }
}

#[test]
fn a_kubernetes_that_the_tree_does_not_know_is_refused() {
    for name in ["bootstrap", "worker", "master"] {
        let (mut pillar, grains) = fixture(name);
        pillar["halite"]["kubernetes"]["version"] = json!("v1.34.4");
        let problems = with(&pillar, &grains, compile::highstate).unwrap_err();
        let told = problems
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("\n");
        assert!(
            told.contains("the state tree knows Kubernetes 1.35, 1.36, not v1.34.4"),
            "{name}: {told}"
        );
    }
}
