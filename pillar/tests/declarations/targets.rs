//! Settings and secrets that differ between the target `master` and the hosts.

use std::collections::BTreeSet;

use halite_pillar::bundle_facts::BundleFacts;
use halite_pillar::declaration::Declaration;
use halite_pillar::load::{Text, Texts, load};
use halite_pillar::validate::Context;
use halite_pillar::view::{Pki, allowed_secrets, own_secret, view};
use halite_secrets::reference;
use serde_json::{Value, json};

const CLUSTER: &str = "apiVersion: halite/v1
kind: Cluster
metadata: {name: prod}
networks: {controlPlane: {cidrs: [10.0.0.0/24]}}
kubernetes: {version: \"1.36\"}
kubelet:
  config: {maxPods: 64, systemReserved: {cpu: \"1\", memory: 1Gi}}
  extraArgs: {v: \"2\", a: b}
secrets:
  for-both: {value: canary-master, roles: [control-plane], nodes: [master]}
  for-hosts: {value: canary-hosts, roles: [control-plane]}
";
const FIRST: &str = "apiVersion: halite/v1
kind: Node
metadata: {name: bootstrap-1}
roles: [bootstrap, registry, etcd, control-plane]
address: 10.0.0.11
";
const WORKER: &str = "apiVersion: halite/v1
kind: Node
metadata: {name: worker-1}
roles: [worker]
address: 10.0.0.12
kubelet:
  config: {maxPods: 200, systemReserved: {memory: 4Gi}}
  extraArgs: {v: [\"4\"]}
";

fn declaration() -> Declaration {
    let text = |file: &str, text: &str| Text {
        file: file.to_owned(),
        text: text.to_owned(),
    };
    let texts = Texts {
        cluster: text("cluster.yaml", CLUSTER),
        nodes: vec![
            text("nodes/bootstrap-1.yaml", FIRST),
            text("nodes/worker-1.yaml", WORKER),
        ],
        ..Texts::default()
    };
    load(&texts, &Context::default()).unwrap()
}

fn seen(name: &str) -> Value {
    view(
        &declaration(),
        &BundleFacts::new("0.1.0".parse().unwrap(), "v1.36.3"),
        &Pki::default(),
        name,
    )
    .unwrap()
}

/// The ConfigMap `kubelet-config` and new hosts have the cluster's settings.
#[test]
fn the_kubelet_of_a_host_has_its_own_settings_over_those_of_the_cluster() {
    let kubelet = |name: &str| {
        let kubelet = &seen(name)["halite"]["kubelet"];
        (kubelet["config"].clone(), kubelet["extraArgs"].clone())
    };
    let cluster = (
        json!({"maxPods": 64, "systemReserved": {"cpu": "1", "memory": "1Gi"}}),
        json!({"v": "2", "a": "b"}),
    );
    assert_eq!(kubelet("master"), cluster);
    assert_eq!(kubelet("bootstrap-1"), cluster);
    let own = (
        json!({"maxPods": 200, "systemReserved": {"cpu": "1", "memory": "4Gi"}}),
        json!({"v": ["4"], "a": "b"}),
    );
    assert_eq!(kubelet("worker-1"), own);
}

/// The operator's Kubernetes manifests are templates of the target `master`.
#[test]
fn the_target_master_sees_only_the_secrets_that_name_it() {
    let declaration = declaration();
    let path = "secrets.for-both";
    assert_eq!(
        allowed_secrets(&declaration, "master"),
        BTreeSet::from([path.to_owned()])
    );
    let shown = seen("master");
    assert_eq!(
        shown["halite"]["secrets"],
        json!({"for-both": reference::for_path(path)})
    );
    assert!(!shown.to_string().contains("canary"));
    let real = own_secret(&declaration, "master", path);
    assert_eq!(real.as_deref(), Some("canary-master"));
    assert_eq!(
        own_secret(&declaration, "master", "secrets.for-hosts"),
        None
    );
    assert_eq!(
        allowed_secrets(&declaration, "no-such-host"),
        BTreeSet::new()
    );
}
