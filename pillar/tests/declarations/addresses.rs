//! The choice of a node's addresses among the ones that its host reports.

use halite_pillar::declaration::Declaration;
use halite_pillar::host_facts::HostFacts;
use halite_pillar::load::{Text, Texts, load};
use halite_pillar::node::{Node, ResolvedMember};
use halite_pillar::resolve;
use halite_pillar::resolve::Evidence;
use halite_pillar::role::{BOOTSTRAP_ROLES, Role};
use halite_pillar::validate::Context;
use serde_json::{Value, json};

const CLUSTER: &str = "apiVersion: halite/v1
kind: Cluster
metadata: {name: prod}
networks:
  controlPlane: {cidrs: [10.0.0.0/24]}
  workloadPlane: {cidrs: [10.2.0.0/24]}
kubernetes: {version: \"1.36\"}
";

fn declaration() -> Declaration {
    let first = Node::new(
        "bootstrap-1",
        Some("10.0.0.11".parse().unwrap()),
        &BOOTSTRAP_ROLES,
    );
    let worker = Node::new("worker-1", None, &[Role::Worker]);
    let text = |file: String, text: String| Text { file, text };
    let texts = Texts {
        cluster: text("cluster.yaml".to_owned(), CLUSTER.to_owned()),
        nodes: [&first, &worker]
            .map(|node| text(format!("nodes/{}.yaml", node.metadata.name), node.to_text()))
            .to_vec(),
        ..Texts::default()
    };
    load(&texts, &Context::default()).unwrap()
}

#[test]
fn a_declared_workload_address_is_used() {
    let mut declaration = declaration();
    let node = declaration.nodes.get_mut("worker-1").unwrap();
    node.value.workload_address = Some("10.2.0.13".parse().unwrap());
    let grains =
        json!({"ip4_interfaces": {"br-data": ["10.2.0.12", "10.2.0.13"], "eth0": ["10.0.0.12"]}});
    let host = HostFacts::from_grains("worker-1", &grains);
    let peer = Evidence::Connection(Some("10.0.0.12".parse().unwrap()));
    let resolved = resolve::node(&mut declaration, "worker-1", &host, peer).unwrap();
    assert_eq!(resolved.addresses.workload_plane.to_string(), "10.2.0.13");
}

#[test]
fn an_address_of_the_control_plane_needs_evidence_and_must_be_free() {
    let peer = |text: &str| Evidence::Connection(Some(text.parse().unwrap()));
    let host = |addresses: Value| {
        HostFacts::from_grains("worker-1", &json!({"ip4_interfaces": addresses}))
    };
    // Two planes: the connection comes from the control plane, the workload address is another.
    let both = json!({"b": ["10.2.0.12"], "c": ["10.0.0.12", "10.0.0.13"]});
    let resolved = resolve::node(
        &mut declaration(),
        "worker-1",
        &host(both.clone()),
        peer("10.0.0.13"),
    )
    .unwrap();
    assert_eq!(resolved.addresses.control_plane.to_string(), "10.0.0.13");
    assert_eq!(resolved.addresses.workload_plane.to_string(), "10.2.0.12");
    // The bootstrap host has 10.0.0.11; a bridge of a container engine has the same address
    // everywhere.
    let cases = [
        (
            json!({"c": ["10.0.0.11"], "b": ["10.2.0.12"]}),
            peer("10.0.0.11"),
            "belongs to the node `bootstrap-1`",
        ),
        (
            both.clone(),
            peer("192.168.0.7"),
            "its connection to the master comes from 192.168.0.7",
        ),
        (both, Evidence::Connection(None), "is not open"),
        (
            json!({"docker0": ["10.0.0.12"], "b": ["10.2.0.12"]}),
            peer("10.0.0.12"),
            "no address in a control-plane network",
        ),
        (
            json!({"c": ["10.0.0.12"], "virbr0": ["10.2.0.12"]}),
            peer("10.0.0.12"),
            "no address in a workload-plane network",
        ),
    ];
    for (addresses, evidence, wanted) in cases {
        let mut declaration = declaration();
        let first = HostFacts::from_grains(
            "bootstrap-1",
            &json!({"ip4_interfaces": {"c": ["10.0.0.11"], "b": ["10.2.0.11"]}}),
        );
        resolve::node(&mut declaration, "bootstrap-1", &first, Evidence::OnTheHost).unwrap();
        let refused = resolve::node(&mut declaration, "worker-1", &host(addresses), evidence);
        let refused = refused.err().unwrap();
        assert!(refused.message.contains(wanted), "{wanted}: {refused}");
        assert_eq!(declaration.nodes["worker-1"].resolved, None);
    }
    // The master's host itself connects to its own address.
    let resolved = resolve::node(
        &mut declaration(),
        "worker-1",
        &host(json!({"b": ["10.2.0.12"], "c": ["10.0.0.12"]})),
        peer("127.0.0.1"),
    );
    assert_eq!(
        resolved.unwrap().addresses.control_plane.to_string(),
        "10.0.0.12"
    );
}

#[test]
fn the_member_of_a_host_is_recorded_once() {
    let member = |cluster: &str| ResolvedMember {
        member: "worker-1".to_owned(),
        initial_cluster: cluster.to_owned(),
        cluster_id: None,
        member_id: None,
    };
    let first = member("a=https://10.0.0.11:2380,worker-1=https://10.0.0.12:2380");
    let mut before = declaration();
    let problem = resolve::member(&before, "worker-1", &first).unwrap_err();
    assert!(problem.to_string().contains("not chosen yet"), "{problem}");
    assert!(resolve::member(&before, "worker-9", &first).is_err());

    let host = HostFacts::from_grains(
        "worker-1",
        &json!({"ip4_interfaces": {"b": ["10.2.0.12"], "c": ["10.0.0.12"]}}),
    );
    let addresses = resolve::node(&mut before, "worker-1", &host, Evidence::OnTheHost).unwrap();
    let with_addresses = again(&before, &addresses.node_text.unwrap());
    let text = resolve::member(&with_addresses, "worker-1", &first).unwrap();
    let recorded = again(&before, &text.unwrap());
    let resolved = recorded.nodes["worker-1"].resolved.clone().unwrap();
    assert_eq!(resolved.etcd.as_ref(), Some(&first));
    assert_eq!(resolved.control_plane.to_string(), "10.0.0.12");
    assert_eq!(
        resolve::member(&recorded, "worker-1", &first).unwrap(),
        None
    );
    let text = resolve::member(&recorded, "worker-1", &member("b=c")).unwrap();
    let replaced = again(&before, &text.unwrap());
    let resolved = replaced.nodes["worker-1"].resolved.clone().unwrap();
    assert_eq!(resolved.etcd, Some(member("b=c")));
}

/// The declaration with another text of `worker-1`.
fn again(declaration: &Declaration, worker: &str) -> Declaration {
    let node = |name: &str, text: &str| Text {
        file: format!("nodes/{name}.yaml"),
        text: text.to_owned(),
    };
    let first = declaration.nodes["bootstrap-1"].source.text();
    let texts = Texts {
        cluster: Text {
            file: "cluster.yaml".to_owned(),
            text: CLUSTER.to_owned(),
        },
        nodes: vec![node("bootstrap-1", first), node("worker-1", worker)],
        ..Texts::default()
    };
    load(&texts, &Context::default()).unwrap()
}
