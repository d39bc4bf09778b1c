//! The shipped orchestration that takes a control plane from a host that stays, on the API, the members and
//! the minions of tests.

use std::sync::Arc;
use std::time::Duration;

use halite_etcd::fake::FakeCluster;
use halite_preflight::checks::CHECKS;
use serde_json::{Value, json};

use super::fixture::{
    ETCD_CLIENTS, LEAVING, applied, killed, newest_run, orchestrate, request, resumed,
};
use crate::backend::fixture::{Life, ScriptedMinion, Site};

const SLS: &str = "halite.orchestrate.add_node";

const TREE: &[(&str, &str)] = &[
    ("top.sls", "base:\n  '*': []\n"),
    shipped!("add_node"),
    LEAVING,
    ETCD_CLIENTS,
    (
        "halite/orchestrate/give_member.jinja",
        include_str!("../../../states/tree/halite/orchestrate/give_member.jinja"),
    ),
    ("halite/leave/address.sls", stub!("address")),
    ("halite/leave/control_plane.sls", stub!("planes")),
    ("halite/leave/etcd.sls", stub!("etcd")),
    ("halite/leave/plane.sls", stub!("plane")),
    ("halite/base/kubelet/elsewhere.sls", stub!("elsewhere")),
    ("halite/host.sls", stub!("host")),
    ("halite/host/hosts.sls", stub!("hosts")),
    ("halite/host/firewall.sls", stub!("firewall")),
    ("halite/host/keepalived.sls", stub!("keepalived")),
    ("halite/base/containerd.sls", stub!("containerd")),
    ("halite/images.sls", stub!("images")),
    ("halite/base/kubelet.sls", stub!("kubelet")),
    ("halite/base/nodes.sls", "nodes:\n  test.nop: []\n"),
    ("halite/services/masters.sls", stub!("masters")),
];

/// What the host does until its document says what it is, and what it does then.
const LEFT: [&str; 5] = ["address", "elsewhere", "planes", "etcd", "plane"];
const THEN: [&str; 4] = ["host", "containerd", "images", "kubelet"];

fn site() -> (Site, Arc<FakeCluster>) {
    let mut site = Site::new(TREE);
    site.api.put(
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "cp-2"}, "spec": {},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
    );
    site.api.put(
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "coredns", "namespace": "kube-system"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"k8s-app": "kube-dns"}}}}),
    );
    std::fs::write(
        document(&site),
        "# mine\napiVersion: halite/v1\nkind: Node\nmetadata: {name: cp-2}\nroles: [control-plane, etcd, worker]\n\
         resolved:\n  controlPlane: 10.10.0.12\n  workloadPlane: 10.10.0.12\n  etcd: {member: cp-2, initialCluster: \
         \"cp-2=https://10.10.0.12:2380\"}\n  vrrpPriority: 199\n",
    )
    .unwrap();
    let cluster = Arc::new(FakeCluster::new(&["bootstrap-1", "cp-2"]));
    site.etcd = Some((cluster.clone(), Duration::ZERO));
    (site, cluster)
}

fn document(site: &Site) -> std::path::PathBuf {
    site.path().join("etc/nodes/cp-2.yaml")
}

/// A minion whose answer to the preflight has no facts; the checks are ignored.
fn minion(name: &str) -> ScriptedMinion {
    ScriptedMinion::new(name).on(|job| (job.function == "halite.preflight").then(|| json!({})))
}

fn pillar(roles: &[&str], confirmed: bool) -> Value {
    let checks: Vec<&str> = CHECKS.iter().map(|check| check.name).collect();
    let mut pillar = json!({"node": "cp-2", "roles": roles, "ignore_preflight": checks});
    if confirmed {
        pillar["force"] = json!(true);
        pillar["cluster"] = json!("test");
    }
    pillar
}

fn change(life: &Life, roles: &[&str], confirmed: bool) -> (i32, String) {
    orchestrate(life, request(SLS, &pillar(roles, confirmed)))
}

#[test]
fn a_control_plane_leaves_a_host_that_stays_as_a_worker() {
    let (site, cluster) = site();
    let before = std::fs::read_to_string(document(&site)).unwrap();
    let life = site.live();
    let (first, plane) = (minion("bootstrap-1"), minion("cp-2"));
    life.connect(&first);
    life.connect(&plane);
    // Without a word of the operator, or with roles that no host can have, nothing happens.
    for (roles, confirmed, wanted) in [
        (&["worker"][..], false, "private keys of the cluster's CAs"),
        (&["worker", "control-plane"], true, "leave a host together"),
        (&["registry"], true, "no Kubernetes node any more"),
    ] {
        let (retcode, data) = change(&life, roles, confirmed);
        assert_eq!(retcode, 1, "{data}");
        assert!(
            data.contains(wanted) && data.contains("cannot change the roles of cp-2"),
            "{data}"
        );
        assert!(applied(&plane).is_empty() && cluster.changes().is_empty());
        assert_eq!(std::fs::read_to_string(document(&site)).unwrap(), before);
    }

    let (retcode, data) = change(&life, &["worker"], true);
    assert_eq!(retcode, 0, "{data}");
    assert_eq!(applied(&plane), [&LEFT[..], &THEN].concat());
    assert_eq!(
        applied(&first),
        ["hosts", "firewall", "keepalived", "masters"]
    );
    assert_eq!(cluster.changes(), ["remove cp-2"]);
    is_worker(&site);

    // The last of a kind stays, whatever is confirmed.
    let mut last = pillar(&["worker", "registry"], true);
    last["node"] = json!("bootstrap-1");
    let (retcode, data) = orchestrate(&life, request(SLS, &last));
    assert_eq!(retcode, 1, "{data}");
    assert!(data.contains("keeps it"), "{data}");
}

/// The document has what the operator wrote and the addresses, and nothing of a control plane.
fn is_worker(site: &Site) {
    let text = std::fs::read_to_string(document(site)).unwrap();
    assert!(
        text.starts_with("# mine\n") && text.contains("roles: [worker]\n"),
        "{text}"
    );
    assert!(text.contains("controlPlane: 10.10.0.12"), "{text}");
    for gone in ["etcd:", "vrrpPriority", "joined"] {
        assert!(!text.contains(gone), "{text}");
    }
}

/// The master is killed after events of a change in turn; its document names the member as long as it is
/// there.
#[test]
fn a_change_that_was_killed_goes_on_and_ends_the_same_when_it_is_run_again() {
    for kill_after in (1..).step_by(3) {
        let (site, cluster) = site();
        let (first, plane) = (minion("bootstrap-1"), minion("cp-2"));
        let life = site.live();
        life.connect(&first);
        life.connect(&plane);
        let leaving = request(SLS, &pillar(&["worker"], true));
        let ended = killed(life, leaving, kill_after);
        let text = std::fs::read_to_string(document(&site)).unwrap();
        assert!(
            text.contains("member: cp-2") || cluster.changes() == ["remove cp-2"],
            "killed after {kill_after}: {text}"
        );
        let life = site.live();
        let run = newest_run(&life);
        life.connect(&first);
        life.connect(&plane);
        let (retcode, data) = resumed(&life, &run);
        assert_eq!(retcode, 0, "killed after {kill_after}: {data}");
        let done = applied(&plane);
        assert_eq!(
            done,
            [&LEFT[..], &THEN].concat(),
            "killed after {kill_after}"
        );
        is_worker(&site);
        let (retcode, data) = change(&life, &["worker"], true);
        assert_eq!(retcode, 0, "{data}");
        assert_eq!(applied(&plane)[done.len()..], THEN);
        assert_eq!(cluster.changes(), ["remove cp-2"]);
        if ended {
            return;
        }
    }
}
