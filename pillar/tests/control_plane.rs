//! The declared time in which control planes have their taint.

#![allow(clippy::unwrap_used, reason = "a test")]

use halite_pillar::bundle_facts::BundleFacts;
use halite_pillar::load::{Text, Texts, load};
use halite_pillar::validate::Context;
use halite_pillar::view::{Pki, view};
use serde_json::json;

const CLUSTER: &str = "apiVersion: halite/v1
kind: Cluster
metadata: {name: prod}
networks:
  controlPlane: {cidrs: [10.0.0.0/24]}
kubernetes: {version: \"1.36\"}
";

/// A node document with these roles and further lines.
fn node(name: &str, host: u8, roles: &str, further: &str) -> Text {
    Text {
        file: format!("nodes/{name}.yaml"),
        text: format!(
            "apiVersion: halite/v1\nkind: Node\nmetadata: {{name: {name}}}\nroles: [{roles}]\naddress: 10.0.0.{host}\n{further}"
        ),
    }
}

/// The taint with which a node registers is always that of its roles; the state tree takes it off.
#[test]
fn the_taint_of_a_control_plane_follows_the_workers_where_that_is_declared_and_no_document_has_taints()
 {
    for (written, follows) in [
        ("", false),
        ("controlPlane: {}\n", false),
        ("controlPlane: {taint: always}\n", false),
        ("controlPlane: {taint: auto}\n", true),
    ] {
        let texts = Texts {
            cluster: Text {
                file: "cluster.yaml".to_owned(),
                text: format!("{CLUSTER}{written}"),
            },
            nodes: vec![
                node("cp-1", 11, "bootstrap, registry, etcd, control-plane", ""),
                node("cp-2", 12, "etcd, control-plane, worker", ""),
                node("cp-3", 13, "etcd, control-plane", "taints: []\n"),
                node("worker-1", 21, "worker", ""),
            ],
            ..Texts::default()
        };
        let declaration = load(&texts, &Context::default()).unwrap();
        let view = view(
            &declaration,
            &BundleFacts::default(),
            &Pki::default(),
            "cp-1",
        )
        .unwrap();
        let nodes = &view["halite"]["nodes"];
        let found = ["cp-1", "cp-2", "cp-3", "worker-1"]
            .map(|name| nodes[name]["taintFollowsWorkers"].clone());
        assert_eq!(
            json!(found),
            json!([follows, false, false, false]),
            "{written}"
        );
        let taint =
            json!([{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]);
        assert_eq!(view["halite"]["node"]["taints"], taint, "{written}");
        assert_eq!(nodes["cp-1"]["taints"], taint, "{written}");
    }
}
