//! The shipped orchestration that removes a host, on the tests' API, members and minions.

use std::sync::Arc;
use std::time::Duration;

use halite_core::declared::NodeRequest;
use halite_etcd::fake::FakeCluster;
use halite_fleet::keys::{TokenRequest, TokenText, create_token};
use serde_json::{Value, json};

use super::fixture::{
    TREE, applied, key, killed, newest_run, orchestrate, put_pod, request, resumed,
};
use crate::backend::fixture::{Life, ScriptedMinion, Site};

const SLS: &str = "halite.orchestrate.remove_node";

fn site() -> Site {
    let site = Site::new(TREE);
    for name in ["worker-1", "cp-2"] {
        site.api.put(
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {}}),
        );
    }
    put_pod(&site.api);
    site
}

/// A site with two more control planes, and its members.
fn planes() -> (Site, Arc<FakeCluster>) {
    let mut site = site();
    for (name, address) in [("cp-2", "10.10.0.12"), ("cp-3", "10.10.0.13")] {
        let text = format!(
            "apiVersion: halite/v1\nkind: Node\nmetadata: {{name: {name}}}\nroles: [control-plane, etcd]\nlabels: {{a: b}}\n\
             resolved:\n  controlPlane: {address}\n  workloadPlane: {address}\n"
        );
        std::fs::write(document(&site, name), text).unwrap();
    }
    let cluster = Arc::new(FakeCluster::new(&["bootstrap-1", "cp-2", "cp-3"]));
    site.etcd = Some((cluster.clone(), Duration::ZERO));
    (site, cluster)
}

fn document(site: &Site, name: &str) -> std::path::PathBuf {
    site.path().join(format!("etc/nodes/{name}.yaml"))
}

fn remove(life: &Life, pillar: &Value) -> (i32, String) {
    orchestrate(life, request(SLS, pillar))
}

#[test]
fn a_worker_leaves_and_the_others_forget_it() {
    let site = site();
    let life = site.live();
    let (first, worker) = (
        ScriptedMinion::new("bootstrap-1"),
        ScriptedMinion::new("worker-1"),
    );
    life.connect(&first);
    life.connect(&worker);
    let (retcode, data) = remove(&life, &json!({"node": "worker-1", "wipe_data": true}));
    assert_eq!(retcode, 0, "{data}");
    assert_eq!(
        applied(&worker),
        ["mounts", "data_mounts", "host", "data", "minion"]
    );
    assert_eq!(applied(&first), ["hosts", "firewall"]);
    assert!(site.api.object("Pod", "web").is_none());
    assert!(site.api.object("Node", "worker-1").is_none());
    assert!(!document(&site, "worker-1").exists());
    assert_eq!(key(&life, "worker-1"), None);

    // The host is gone, and the first host stays.
    let (retcode, data) = remove(&life, &json!({"node": "worker-1"}));
    assert_eq!(retcode, 1, "{data}");
    assert!(
        data.contains("cannot remove worker-1: there is no node worker-1"),
        "{data}"
    );
    let (retcode, data) = remove(
        &life,
        &json!({"node": "bootstrap-1", "force": true, "cluster": "test"}),
    );
    assert_eq!(retcode, 1, "{data}");
    assert!(data.contains("it has the master"), "{data}");
}

/// A token is valid for a day: a host that was removed before it came must not enrol with it.
#[test]
fn the_tokens_of_a_host_end_when_it_is_removed() {
    let site = site();
    let life = site.live();
    let worker = ScriptedMinion::new("worker-1");
    life.connect(&ScriptedMinion::new("bootstrap-1"));
    life.connect(&worker);
    let token = |id: &str| {
        let wanted = TokenRequest {
            id: id.to_owned(),
            ..TokenRequest::default()
        };
        let made = life
            .runtime
            .block_on(create_token(&life.app, "root", wanted));
        TokenText::parse(&made.unwrap().0).unwrap().id
    };
    let is_there = |id: &str| {
        let found = life.runtime.block_on(life.app.store.token(id)).unwrap();
        found.is_some()
    };
    let nodes = site.path().join("etc/nodes");
    let never = "apiVersion: halite/v1\nkind: Node\nmetadata: {name: never}\nroles: [worker]\n";
    std::fs::write(nodes.join("never.yaml"), never).unwrap();
    let tokens = ["worker-1", "never", "bootstrap-1", ""].map(token);
    for (node, dead) in [("worker-1", false), ("never", true)] {
        let pillar = json!({"node": node, "dead": dead, "force": true, "cluster": "test"});
        let (retcode, data) = remove(&life, &pillar);
        assert_eq!(retcode, 0, "{data}");
    }
    assert_eq!(
        tokens.map(|id| is_there(&id)),
        [false, false, true, true],
        "those of other hosts stay"
    );
}

#[test]
fn a_control_plane_leaves_etcd_before_its_host_is_touched() {
    let (site, cluster) = planes();
    let life = site.live();
    let (first, plane) = (
        ScriptedMinion::new("bootstrap-1"),
        ScriptedMinion::new("cp-2"),
    );
    life.connect(&first);
    life.connect(&plane);
    let (retcode, data) = remove(&life, &json!({"node": "cp-2"}));
    assert_eq!(retcode, 1, "{data}");
    assert!(data.contains("private keys of the cluster's CAs"), "{data}");
    assert!(applied(&plane).is_empty() && cluster.changes().is_empty());

    let (retcode, data) = remove(
        &life,
        &json!({"node": "cp-2", "force": true, "cluster": "test"}),
    );
    assert_eq!(retcode, 0, "{data}");
    assert_eq!(
        applied(&plane),
        ["mounts", "address", "planes", "host", "minion"]
    );
    assert_eq!(
        applied(&first),
        ["hosts", "firewall", "keepalived", "masters"]
    );
    assert_eq!(cluster.changes(), ["remove cp-2"]);

    // Two are left, and one of them is away: the other one has all remaining votes.
    cluster.stop("bootstrap-1");
    life.accept("cp-3");
    let (retcode, data) = remove(
        &life,
        &json!({"node": "cp-3", "dead": true, "force": true, "cluster": "test"}),
    );
    assert_eq!(retcode, 1, "{data}");
    assert!(data.contains("--force does not override this"), "{data}");
}

/// Its host is on, and the member's data are lost.
#[test]
fn a_control_plane_whose_member_does_not_answer_leaves_when_the_others_are_a_quorum() {
    let (site, cluster) = planes();
    cluster.stop("cp-2");
    let life = site.live();
    let plane = ScriptedMinion::new("cp-2");
    life.connect(&ScriptedMinion::new("bootstrap-1"));
    life.connect(&plane);
    let pillar = json!({"node": "cp-2", "force": true, "cluster": "test"});
    let (retcode, data) = remove(&life, &pillar);
    assert_eq!(retcode, 0, "{data}");
    assert_eq!(cluster.changes(), ["remove cp-2"]);
    assert_eq!(
        applied(&plane),
        ["mounts", "address", "planes", "host", "minion"]
    );
}

/// The host's kubelet has lost its API server, and ends no pod.
#[test]
fn pods_that_no_kubelet_ends_go_with_the_host_that_is_cleaned() {
    let (site, cluster) = planes();
    cluster.stop("cp-2");
    site.api.put(
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "cp-2"}, "spec": {},
        "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}),
    );
    let mut pod = site.api.object("Pod", "web").unwrap();
    pod["spec"]["nodeName"] = json!("cp-2");
    pod["metadata"]["deletionTimestamp"] = json!("2000-01-01T00:00:00Z");
    site.api.put(pod);
    let life = site.live();
    let plane = ScriptedMinion::new("cp-2");
    life.connect(&ScriptedMinion::new("bootstrap-1"));
    life.connect(&plane);
    let pillar = json!({"node": "cp-2", "force": true, "cluster": "test"});
    let (retcode, data) = remove(&life, &pillar);
    assert_eq!(retcode, 0, "{data}");
    let remark = "they end with the host: default/web";
    assert!(data.contains(remark), "{data}");
    assert!(applied(&plane).contains(&"host".to_owned()));
    assert!(site.api.object("Node", "cp-2").is_none());
}

#[test]
fn a_dead_host_is_cut_off_and_its_place_is_kept_for_another() {
    let (site, cluster) = planes();
    cluster.stop("cp-2");
    let life = site.live();
    let first = ScriptedMinion::new("bootstrap-1");
    life.connect(&first);
    life.accept("cp-2");
    let pillar =
        json!({"node": "cp-2", "dead": true, "keep": true, "force": true, "cluster": "test"});
    let (retcode, data) = remove(&life, &pillar);
    assert_eq!(retcode, 0, "{data}");
    assert_eq!(cluster.changes(), ["remove cp-2"]);
    assert_eq!(key(&life, "cp-2"), None);
    assert!(site.api.object("Node", "cp-2").is_none());
    let text = std::fs::read_to_string(document(&site, "cp-2")).unwrap();
    assert!(
        text.contains("labels: {a: b}") && !text.contains("resolved"),
        "{text}"
    );

    // The same command declares the host that takes its place.
    let request = NodeRequest {
        name: "cp-2".parse().unwrap(),
        address: String::new(),
        roles: vec!["control-plane".into(), "etcd".into()],
        further: r#"{"labels": {"a": "b"}, "taints": null, "custom": {}}"#.into(),
    };
    let declarations = life.backend.jobs().declarations();
    life.runtime
        .block_on(declarations.add_nodes(&[request]))
        .unwrap();
}

/// A site in which the taint of the control planes follows the workers, with one worker.
fn untainted_without_workers() -> Site {
    let site = site();
    let file = site.path().join("etc/cluster.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(file, format!("{text}controlPlane: {{taint: auto}}\n")).unwrap();
    site
}

/// The master is killed after each event of a removal in turn; the removal has each step that a
/// worker can have.
#[test]
fn a_removal_killed_at_any_event_continues_where_it_stopped() {
    for kill_after in 1.. {
        let site = untainted_without_workers();
        let (first, worker) = (
            ScriptedMinion::new("bootstrap-1"),
            ScriptedMinion::new("worker-1"),
        );
        let life = site.live();
        life.connect(&first);
        life.connect(&worker);
        let leaving = request(SLS, &json!({"node": "worker-1"}));
        let ended = killed(life, leaving, kill_after);
        let life = site.live();
        let run = newest_run(&life);
        // The worker no longer exists when the others remove its records; connecting it would
        // recreate its key. Without the first host no run gets past that step.
        let steps = life.runtime.block_on(life.store.steps(&run.id)).unwrap();
        let names: Vec<&str> = steps.iter().map(|step| step.name.as_str()).collect();
        let place = names.iter().position(|name| *name == "control-planes");
        assert_eq!(names[place.unwrap() + 1], "drained", "{names:?}");
        let peers = steps.iter().find(|step| step.name == "peers").unwrap();
        if peers.started.is_none() {
            life.connect(&worker);
        }
        life.connect(&first);
        let (retcode, data) = resumed(&life, &run);
        assert_eq!(retcode, 0, "killed after {kill_after}: {data}");
        assert_eq!(
            applied(&worker),
            ["mounts", "host", "minion"],
            "killed after {kill_after}"
        );
        assert!(site.api.object("Node", "worker-1").is_none());
        assert!(!document(&site, "worker-1").exists());
        assert_eq!(key(&life, "worker-1"), None, "killed after {kill_after}");
        if ended {
            return;
        }
    }
}
