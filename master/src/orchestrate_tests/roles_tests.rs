//! The step that gives a host other roles, and the shipped orchestration if there is no other host.

use std::sync::Arc;
use std::time::Duration;

use halite_etcd::MemberHost;
use halite_etcd::fake::{FakeCluster, host};
use halite_proto::v1;
use serde_json::json;

use super::fixture::{adding, all_checks, applied, orchestrate, request, without_facts};
use crate::backend::fixture::{Life, Site};

const TREE: &[(&str, &str)] = &[
    ("top.sls", "base:\n  '*': []\n"),
    (
        "orchestrate/roles.sls",
        "roles:\n  halite.node_roles:\n    - node: {{ pillar.node }}\n    - roles: {{ pillar.roles | json }}\n",
    ),
];

fn give(life: &Life, node: &str, roles: &[&str]) -> (i32, String) {
    let request = v1::OrchestrateRequest {
        sls: "orchestrate.roles".into(),
        pillar_json: json!({"node": node, "roles": roles}).to_string(),
        ..Default::default()
    };
    let stream = life
        .runtime
        .block_on(life.backend.orchestrate("root", request));
    let events = life.collect(stream.unwrap());
    let last = events.last().unwrap();
    (last.retcode, last.data_json.clone())
}

#[test]
fn the_document_has_the_new_roles_and_all_else_that_it_had() {
    let site = Site::new(TREE);
    let path = site.path().join("etc/nodes/worker-1.yaml");
    let before = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("# mine\n{before}")).unwrap();
    let text = || std::fs::read_to_string(&path).unwrap();
    let life = site.live();
    for _ in 0..2 {
        let (retcode, data) = give(&life, "worker-1", &["worker", "infra", "infra"]);
        assert_eq!(retcode, 0, "{data}");
        let wanted = before.replace("[worker]", "[worker, infra]");
        assert_eq!(text(), format!("# mine\n{wanted}"));
    }
    // In another order they are the same.
    let (retcode, data) = give(&life, "worker-1", &["infra", "worker"]);
    assert_eq!(retcode, 0, "{data}");
    assert!(data.contains("already has the roles"), "{data}");
    assert!(text().contains("[worker, infra]"));

    let refused = [
        ("worker-1", &["porter"][..], "there is no role"),
        (
            "worker-1",
            &["worker", "etcd"],
            "`etcd` without `control-plane`",
        ),
        ("worker-1", &["frontend"], "no longer be a Kubernetes node"),
        ("worker-9", &["worker"], "there is no node worker-9"),
        (
            "bootstrap-1",
            &["registry", "etcd", "control-plane"],
            "keeps it",
        ),
    ];
    let before = text();
    for (node, roles, wanted) in refused {
        let (retcode, data) = give(&life, node, roles);
        assert_eq!(retcode, 1, "{data}");
        assert!(data.contains(wanted), "{roles:?}: {data}");
        assert_eq!(text(), before);
    }
}

/// No other host has enrolled, so no step for the others has work to do.
#[test]
fn the_only_host_of_a_cluster_gets_another_role() {
    let mut site = adding("bootstrap-1");
    // Its member has the address of its document.
    let members = FakeCluster::new(&["10.10.0.11"]);
    members.start(&MemberHost {
        name: "bootstrap-1".to_owned(),
        ..host("10.10.0.11")
    });
    site.etcd = Some((Arc::new(members), Duration::ZERO));
    let life = site.live();
    let only = without_facts("bootstrap-1");
    life.connect(&only);
    let roles = ["bootstrap", "registry", "etcd", "control-plane", "worker"];
    let pillar = json!({"node": "bootstrap-1", "roles": roles, "ignore_preflight": all_checks()});
    let (retcode, data) = orchestrate(&life, request("halite.orchestrate.add_node", &pillar));
    assert_eq!(retcode, 0, "{data}");
    let nothing = "no accepted minion matches";
    // Its peers, and the clients of its API server and of its bundles.
    assert_eq!(data.matches(nothing).count(), 3, "{data}");
    assert_eq!(applied(&only).first().unwrap(), "host");
    let document = site.path().join("etc/nodes/bootstrap-1.yaml");
    let document = std::fs::read_to_string(document).unwrap();
    assert!(document.contains("control-plane, worker]"), "{document}");
}
