//! The master's host and its standbys: their choice, and the hosts' view of them.

use halite_pillar::bundle_facts::BundleFacts;
use halite_pillar::declaration::Declaration;
use halite_pillar::load::{Text, Texts, load};
use halite_pillar::masters::MasterPart;
use halite_pillar::node::Node;
use halite_pillar::resolve::{cluster_block, record, without_record};
use halite_pillar::role::{BOOTSTRAP_ROLES, Role};
use halite_pillar::standbys::{Auto, Standbys};
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
/// The record that `ctl bootstrap` writes.
const RESOLVED: &str = "resolved: {kubernetes: v1.36.3, bundle: '0.1.0'}\n";

/// Four control planes and a worker.
fn declaration(further: &str) -> Declaration {
    with_members(further, &[])
}

/// Like [`declaration`], after these additional hosts have joined.
fn with_members(further: &str, members: &[&str]) -> Declaration {
    let plane = [Role::ControlPlane, Role::Etcd];
    let hosts = [
        ("cp-1", 11, &BOOTSTRAP_ROLES[..]),
        ("cp-2", 12, &plane),
        ("cp-3", 13, &plane),
        ("cp-4", 14, &plane),
        ("worker-1", 21, &[Role::Worker]),
    ];
    let nodes = hosts.map(|(name, last, roles)| {
        let text = Node::new(name, Some([10, 0, 0, last].into()), roles).to_text();
        let member = format!(
            "resolved:\n  controlPlane: 10.0.0.{last}\n  workloadPlane: 10.0.0.{last}\n  etcd:\n    member: {name}\n    \
             initialCluster: \"{name}=https://10.0.0.{last}:2380\"\n"
        );
        let record = if members.contains(&name) { &*member } else { "" };
        Text {
            file: format!("nodes/{name}.yaml"),
            text: format!("{text}{record}"),
        }
    });
    let texts = Texts {
        cluster: Text {
            file: "cluster.yaml".to_owned(),
            text: format!("{CLUSTER}{further}"),
        },
        nodes: nodes.into(),
        ..Texts::default()
    };
    load(&texts, &Context::default()).unwrap()
}

fn standbys(declaration: &Declaration) -> Vec<&str> {
    let all = declaration.standbys().into_iter();
    all.map(|node| node.metadata.name.as_str()).collect()
}

#[test]
fn two_further_control_planes_are_standbys_unless_others_are_named() {
    let usual = declaration("");
    assert_eq!(
        usual.cluster.master.standbys,
        Standbys::Chosen(Auto::Auto),
        "the default"
    );
    assert_eq!(standbys(&usual), ["cp-2", "cp-3"]);
    let written = declaration("master: {standbys: auto}\n");
    assert_eq!(written.cluster.master, usual.cluster.master);
    let named = declaration("master: {standbys: [cp-4, cp-1]}\n");
    assert_eq!(standbys(&named), ["cp-4"], "the master's host is none");
    assert!(standbys(&declaration("master: {standbys: []}\n")).is_empty());
}

/// A declared host that is never switched on makes no backup and can take no master's place.
#[test]
fn control_planes_that_have_joined_are_standbys_before_those_that_are_only_declared() {
    for (members, wanted) in [
        (&["cp-3", "cp-4"][..], ["cp-3", "cp-4"]),
        (&["cp-4"], ["cp-2", "cp-4"]),
        (&["cp-2", "cp-3", "cp-4"], ["cp-2", "cp-3"]),
        // At the first bootstrap all are only declared.
        (&[], ["cp-2", "cp-3"]),
    ] {
        let joined = with_members(RESOLVED, members);
        assert_eq!(standbys(&joined), wanted, "{members:?}");
        let holders = joined.backup_hosts().into_iter();
        let holders: Vec<&str> = holders.map(|node| node.metadata.name.as_str()).collect();
        assert_eq!(holders, [&["cp-1"][..], &wanted].concat(), "{members:?}");
    }
    // The hosts that an operator has named count.
    let named = with_members("master: {standbys: [cp-2, cp-3]}\n", &["cp-4"]);
    assert_eq!(standbys(&named), ["cp-2", "cp-3"]);
}

#[test]
fn a_recorded_host_has_the_master_and_the_first_one_becomes_a_standby() {
    let before = declaration(RESOLVED);
    let mut resolved = before.cluster.resolved.clone().unwrap();
    resolved.master = Some("cp-3".to_owned());
    let text = record(
        "cluster.yaml",
        before.cluster.source.text(),
        &cluster_block(&resolved),
    )
    .unwrap();
    let after = declaration(text.strip_prefix(CLUSTER).unwrap());
    assert_eq!(after.cluster.resolved, Some(resolved));
    assert_eq!(standbys(&after), ["cp-1", "cp-2"]);
    for (name, part) in [
        ("cp-3", Some(MasterPart::Master)),
        ("cp-1", Some(MasterPart::Standby)),
        ("cp-4", None),
        ("worker-1", None),
        ("absent", None),
    ] {
        assert_eq!(after.part(name), part, "{name}");
    }
}

#[test]
fn each_host_sees_its_part_and_the_masters_address_first() {
    let bundle = BundleFacts {
        path: "/b".into(),
        ..BundleFacts::new("0.1.0".parse().unwrap(), "v1.36.3")
    };
    let declaration =
        declaration("resolved: {kubernetes: v1.36.3, bundle: '0.1.0', master: cp-3}\n");
    for (name, master, standby) in [
        ("cp-3", true, false),
        ("cp-1", false, true),
        ("cp-4", false, false),
        ("worker-1", false, false),
        ("master", false, false),
    ] {
        let view = view(&declaration, &bundle, &Pki::default(), name).unwrap();
        let runs = &view["halite"]["node"]["runs"];
        assert_eq!(
            (&runs["master"], &runs["standby"]),
            (&json!(master), &json!(standby)),
            "{name}"
        );
        let wanted = json!({
            "node": "cp-3", "standbys": ["cp-1", "cp-2"], "address": "10.0.0.13", "port": 4550,
            "masters": ["10.0.0.13:4550", "10.0.0.11:4550", "10.0.0.12:4550"],
            "jobs": {"keepDays": 30, "keepLast": 100},
        });
        assert_eq!(view["halite"]["master"], wanted, "{name}");
        // The master's host serves the bundle that it reads; the hosts with the role follow.
        let urls =
            ["10.0.0.13", "10.0.0.11"].map(|host| format!("https://{host}:4551/bundles/0.1.0"));
        assert_eq!(view["halite"]["bundle"]["servers"], json!(urls), "{name}");
    }
}

/// Other hosts see a pod with the address of its node.
#[test]
fn metrics_for_pods_are_for_nodes_too() {
    let bundle = BundleFacts {
        path: "/b".into(),
        ..BundleFacts::new("0.1.0".parse().unwrap(), "v1.36.3")
    };
    for (from, allowed, from_pods) in [
        (json!(["10.9.0.0/24"]), json!(["10.9.0.0/24"]), false),
        (
            json!(["10.9.0.0/24", "10.233.0.0/16"]),
            json!(["10.0.0.0/24", "10.9.0.0/24", "10.233.0.0/16"]),
            true,
        ),
    ] {
        let declared = format!("{RESOLVED}master: {{metrics: {{listen: 9553, from: {from}}}}}\n");
        let view = view(&declaration(&declared), &bundle, &Pki::default(), "cp-2").unwrap();
        let wanted = json!({"port": 9553, "from": from, "allowed": allowed, "fromPods": from_pods, "clientCA": null});
        assert_eq!(view["halite"]["master"]["metrics"], wanted);
    }
}

/// The document that stays for the replacement host must not let that host found a cluster.
#[test]
fn a_replaced_first_host_loses_its_role() {
    let declaration = declaration("");
    let text = without_record(&declaration, "cp-1").unwrap().unwrap();
    assert!(
        text.contains("\nroles: [registry, etcd, control-plane]\n"),
        "{text}"
    );
    assert_eq!(without_record(&declaration, "cp-2").unwrap(), None);
}
