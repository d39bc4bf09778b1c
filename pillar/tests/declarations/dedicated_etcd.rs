//! A cluster with etcd members on hosts of their own: votes and secrets.

use halite_pillar::bundle_facts::BundleFacts;
use halite_pillar::declaration::Declaration;
use halite_pillar::load::{Text, Texts, load};
use halite_pillar::node::{Node, ResolvedMember, ResolvedNode};
use halite_pillar::resolve;
use halite_pillar::role::{BOOTSTRAP_ROLES, Role};
use halite_pillar::validate::Context;
use halite_pillar::view::{Pki, allowed_secrets, view};
use serde_json::{Value, json};

const CLUSTER: &str = "apiVersion: halite/v1
kind: Cluster
metadata: {name: prod}
networks:
  controlPlane: {cidrs: [10.0.0.0/24]}
kubernetes: {version: \"1.36\"}
";
const DEDICATED: &str = "etcd: {placement: dedicated, mode: host-service}\n";

/// A host with the last number of its address, which has joined, or is only declared.
fn host(name: &str, last: u8, roles: &[Role], is_learner: bool) -> Node {
    let address = [10, 0, 0, last].into();
    let mut node = Node::new(name, Some(address), roles);
    node.resolved = Some(ResolvedNode {
        control_plane: address,
        workload_plane: address,
        joined: false,
        vrrp_priority: None,
        etcd: is_learner.then(|| ResolvedMember {
            member: name.to_owned(),
            initial_cluster: format!("{name}=https://{address}:2380"),
            cluster_id: None,
            member_id: None,
        }),
        bundle: None,
        kubernetes: None,
    });
    node
}

fn declaration(section: &str) -> Declaration {
    let text = |file: String, text: String| Text { file, text };
    let nodes = [
        host("cp-1", 11, &BOOTSTRAP_ROLES, false),
        host("cp-2", 12, &[Role::ControlPlane], false),
        host("etcd-1", 21, &[Role::Etcd], true),
        host("etcd-2", 22, &[Role::Etcd, Role::Worker], false),
    ];
    let nodes = nodes.iter().map(|node| {
        let file = format!("nodes/{}.yaml", node.metadata.name);
        text(file, node.to_text())
    });
    let texts = Texts {
        cluster: text("cluster.yaml".to_owned(), format!("{CLUSTER}{section}")),
        nodes: nodes.collect(),
        ..Texts::default()
    };
    load(&texts, &Context::default()).unwrap()
}

fn seen(declaration: &Declaration, name: &str) -> Value {
    let bundle = BundleFacts {
        path: "/media/halite".into(),
        ..BundleFacts::new("0.1.0".parse().unwrap(), "v1.36.3")
    };
    view(declaration, &bundle, &Pki::default(), name).unwrap()["halite"].take()
}

#[test]
fn api_servers_use_the_members_that_have_a_vote() {
    let mut declaration = declaration(DEDICATED);
    let servers = |declaration: &Declaration| seen(declaration, "cp-2")["etcd"]["servers"].clone();
    // A learner answers no request.
    assert_eq!(servers(&declaration), json!(["https://10.0.0.11:2379"]));
    let text = resolve::joined(&declaration, "etcd-1").unwrap().unwrap();
    assert_eq!(text.matches("  joined: true\n").count(), 1, "{text}");
    let learner = declaration.nodes.get_mut("etcd-1").unwrap();
    learner.value.resolved.as_mut().unwrap().joined = true;
    assert_eq!(
        servers(&declaration),
        json!(["https://10.0.0.11:2379", "https://10.0.0.21:2379"])
    );
    // The first host has given up its member.
    let first = declaration.nodes.get_mut("cp-1").unwrap();
    first.value.roles.retain(|role| *role != Role::Etcd);
    assert_eq!(servers(&declaration), json!(["https://10.0.0.21:2379"]));
    assert!(!declaration.nodes["cp-1"].is_member());
    assert!(declaration.nodes["cp-1"].serves_api());
}

#[test]
fn a_dedicated_etcd_host_is_not_a_node_and_has_no_ca_key() {
    let declaration = declaration(DEDICATED);
    for (name, is_node) in [
        ("cp-1", true),
        ("cp-2", true),
        ("etcd-1", false),
        ("etcd-2", true),
    ] {
        assert_eq!(declaration.nodes[name].runs_containers(), is_node, "{name}");
        let secrets = allowed_secrets(&declaration, name);
        // Only kubeadm has a use for it, and only next to a member.
        let may = secrets.contains("pki.etcd.key");
        assert_eq!(may, name == "cp-1", "{name}");
        if name.starts_with("etcd") {
            assert!(secrets.is_empty(), "{name}: {secrets:?}");
        }
    }
}

/// After a restore the first host founds etcd again, and the others rejoin it.
#[test]
fn a_restored_cluster_begins_with_a_member_of_the_first_host() {
    let mut declaration = declaration(DEDICATED);
    for name in ["cp-1", "cp-2", "etcd-1"] {
        let text = resolve::joined(&declaration, name).unwrap().unwrap();
        reread(&mut declaration, name, &text);
    }
    let first = declaration.nodes["cp-1"].source.text();
    let first = first.replace("etcd, ", "");
    reread(&mut declaration, "cp-1", &first);
    assert!(!declaration.nodes["cp-1"].is_member() && declaration.nodes["etcd-1"].has_vote());
    for name in ["cp-1", "cp-2", "etcd-1", "etcd-2"] {
        let text = resolve::without_member(&declaration, &declaration.nodes[name]).unwrap();
        let changes = ["cp-1", "etcd-1"].contains(&name);
        assert_eq!(text.is_some(), changes, "{name}: {text:?}");
        if let Some(text) = text {
            reread(&mut declaration, name, &text);
            let again = resolve::without_member(&declaration, &declaration.nodes[name]).unwrap();
            assert_eq!(again, None, "{name}");
        }
    }
    assert!(declaration.nodes["cp-1"].founds_etcd());
    assert!(declaration.nodes["cp-2"].serves_api());
    assert!(!declaration.nodes["etcd-1"].is_member());
}

/// For a control plane the record means that it runs, and for a member without one that it has its
/// vote.
#[test]
fn a_host_that_has_joined_keeps_that_record_while_it_means_the_same() {
    use Role::{ControlPlane, Etcd, Worker};
    let mut declaration = declaration(DEDICATED);
    for name in ["cp-2", "etcd-1"] {
        let text = resolve::joined(&declaration, name).unwrap().unwrap();
        reread(&mut declaration, name, &text);
    }
    for (name, roles, keeps) in [
        ("cp-2", &[ControlPlane, Worker][..], true),
        ("cp-2", &[ControlPlane, Etcd], true),
        ("cp-2", &[Etcd, Worker], false),
        ("cp-2", &[Worker], false),
        ("etcd-1", &[Etcd, Worker], true),
        ("etcd-1", &[ControlPlane, Etcd], false),
        ("etcd-1", &[ControlPlane], false),
        ("etcd-1", &[Worker], false),
    ] {
        let text = resolve::with_other_roles(&declaration, name, roles).unwrap();
        assert_eq!(text.contains("joined: true"), keeps, "{roles:?}: {text}");
    }
}

/// Replaces a node by the declaration in another text.
fn reread(declaration: &mut Declaration, name: &str, text: &str) {
    let mut texts = Texts {
        cluster: Text {
            file: "cluster.yaml".to_owned(),
            text: declaration.cluster.source.text().to_owned(),
        },
        nodes: Vec::new(),
        ..Texts::default()
    };
    for (other, node) in &declaration.nodes {
        let text = match other.as_str() == name {
            true => text,
            false => node.source.text(),
        };
        texts.nodes.push(Text {
            file: node.source.file.clone(),
            text: text.to_owned(),
        });
    }
    *declaration = load(&texts, &Context::default()).unwrap();
}
