//! A cluster whose etcd is external: the hosts that get the key, and the control planes that have
//! joined.

use halite_pillar::bundle_facts::BundleFacts;
use halite_pillar::declaration::Declaration;
use halite_pillar::load::{Text, Texts, load};
use halite_pillar::node::{Node, ResolvedNode};
use halite_pillar::resolve;
use halite_pillar::role::Role;
use halite_pillar::validate::Context;
use halite_pillar::view::{Pki, allowed_secrets, own_secret, view};
use halite_secrets::reference;
use halite_secrets::reference::paths_in;
use serde_json::json;

const CLUSTER: &str = "apiVersion: halite/v1
kind: Cluster
metadata: {name: prod}
networks:
  controlPlane: {cidrs: [10.0.0.0/24]}
  workloadPlane: {cidrs: [10.2.0.0/24]}
kubernetes: {version: \"1.36\"}
secrets:
";

fn text(file: &str, text: impl Into<String>) -> Text {
    Text {
        file: file.to_owned(),
        text: text.into(),
    }
}

fn bundle() -> BundleFacts {
    BundleFacts {
        path: "/media/halite".into(),
        ..BundleFacts::new("0.1.0".parse().unwrap(), "v1.36.3")
    }
}

/// A cluster whose etcd is external, with a second control plane that has joined and a worker.
fn with_external_etcd(key: &str) -> Declaration {
    let certificate = include_str!("../../src/example-ca.pem");
    let indented =
        |text: &str| -> String { text.lines().map(|line| format!("      {line}\n")).collect() };
    let cluster = format!(
        "{}  etcd-client:\n    value: |\n{}{}etcd:\n  placement: external\n  external:\n    endpoints: [\"https://10.0.0.21:2379\"]\n    \
         clientSecret: etcd-client\n    ca: |\n{}",
        CLUSTER,
        indented(certificate),
        indented(key),
        indented(certificate),
    );
    let mut other = Node::new(
        "cp-2",
        Some("10.0.0.12".parse().unwrap()),
        &[Role::ControlPlane],
    );
    other.resolved = Some(ResolvedNode {
        control_plane: [10, 0, 0, 12].into(),
        workload_plane: [10, 2, 0, 12].into(),
        joined: true,
        vrrp_priority: None,
        etcd: None,
        bundle: None,
        kubernetes: None,
    });
    let first = [Role::Bootstrap, Role::Registry, Role::ControlPlane];
    let nodes = [
        Node::new("bootstrap-1", Some("10.0.0.11".parse().unwrap()), &first),
        other,
        Node::new(
            "cp-3",
            Some("10.0.0.13".parse().unwrap()),
            &[Role::ControlPlane],
        ),
        Node::new("worker-1", None, &[Role::Worker]),
    ];
    let texts = Texts {
        cluster: text("cluster.yaml", cluster),
        nodes: nodes
            .iter()
            .map(|node| {
                text(
                    &format!("nodes/{}.yaml", node.metadata.name),
                    node.to_text(),
                )
            })
            .collect(),
        ..Texts::default()
    };
    load(&texts, &Context::default()).unwrap()
}

#[test]
fn the_key_for_an_external_etcd_is_for_control_planes_only() {
    let key = "-----BEGIN PRIVATE KEY-----\nY2FuYXJ5\n-----END PRIVATE KEY-----\n";
    let declaration = with_external_etcd(key);
    let path = "etcd.external.key";
    for (name, may) in [
        ("bootstrap-1", true),
        ("cp-2", true),
        ("worker-1", false),
        ("master", false),
    ] {
        let shown = view(&declaration, &bundle(), &Pki::default(), name).unwrap();
        let external = &shown["halite"]["etcd"]["external"];
        assert_eq!(external["endpoints"], json!(["https://10.0.0.21:2379"]));
        assert_eq!(external["certificate"].is_string(), may, "{name}");
        assert_eq!(external["key"] == reference::for_path(path), may, "{name}");
        assert_eq!(paths_in(&shown).contains(path), may, "{name}");
        assert_eq!(
            allowed_secrets(&declaration, name).contains(path),
            may,
            "{name}"
        );
        assert_eq!(
            own_secret(&declaration, name, path).as_deref(),
            may.then_some(key),
            "{name}"
        );
        assert!(!shown.to_string().contains("Y2FuYXJ5"), "{name}");
    }
    // No host gets the operator's secret itself.
    assert_eq!(
        own_secret(&declaration, "bootstrap-1", "secrets.etcd-client"),
        None
    );
}

#[test]
fn without_members_a_control_plane_has_joined_when_that_is_recorded() {
    let mut declaration =
        with_external_etcd("-----BEGIN PRIVATE KEY-----\nbm9uZQ==\n-----END PRIVATE KEY-----\n");
    let servers = |declaration: &Declaration| {
        let shown = view(declaration, &bundle(), &Pki::default(), "worker-1").unwrap();
        shown["halite"]["apiServer"]["servers"].clone()
    };
    assert_eq!(
        servers(&declaration),
        json!({"bootstrap-1": "10.0.0.11", "cp-2": "10.0.0.12"})
    );
    let refused = resolve::joined(&declaration, "cp-3").unwrap_err();
    assert!(refused.to_string().contains("not chosen yet"), "{refused}");
    assert_eq!(resolve::joined(&declaration, "cp-2").unwrap(), None);
    let node = declaration.nodes.get_mut("cp-2").unwrap();
    node.value.resolved.as_mut().unwrap().joined = false;
    assert_eq!(servers(&declaration), json!({"bootstrap-1": "10.0.0.11"}));
    let text = resolve::joined(&declaration, "cp-2").unwrap().unwrap();
    assert_eq!(text.matches("  joined: true\n").count(), 1, "{text}");
}
