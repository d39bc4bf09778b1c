//! The declared time in which control planes have their taint.

use halite_pillar::bundle_facts::BundleFacts;
use halite_pillar::load::{Text, Texts, load};
use halite_pillar::node::Node;
use halite_pillar::role::{BOOTSTRAP_ROLES, Role};
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

/// A node document with these roles, and with an empty list of taints or none.
fn node(name: &str, roles: &[Role], untainted: bool) -> Text {
    let mut node = Node::new(name, None, roles);
    node.taints = untainted.then(Vec::new);
    Text {
        file: format!("nodes/{name}.yaml"),
        text: node.to_text(),
    }
}

/// The taint with which a node registers always follows its roles; the state tree removes it.
#[test]
fn the_taint_of_a_control_plane_follows_the_workers_where_that_is_declared_and_no_document_has_taints()
 {
    for (written, follows) in [
        ("", false),
        ("controlPlane: {}\n", false),
        ("controlPlane: {taint: always}\n", false),
        ("controlPlane: {taint: auto}\n", true),
    ] {
        let first = Node::new("cp-1", Some([10, 0, 0, 11].into()), &BOOTSTRAP_ROLES);
        let texts = Texts {
            cluster: Text {
                file: "cluster.yaml".to_owned(),
                text: format!("{CLUSTER}{written}"),
            },
            nodes: vec![
                Text {
                    file: "nodes/cp-1.yaml".to_owned(),
                    text: first.to_text(),
                },
                node(
                    "cp-2",
                    &[Role::Etcd, Role::ControlPlane, Role::Worker],
                    false,
                ),
                node("cp-3", &[Role::Etcd, Role::ControlPlane], true),
                node("worker-1", &[Role::Worker], false),
            ],
            ..Texts::default()
        };
        let declaration = load(&texts, &Context::default()).unwrap();
        let view = view(
            &declaration,
            &BundleFacts::new("0.1.0".parse().unwrap(), "v1.36.3"),
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
