//! The shipped orchestration that takes a control plane or a member of etcd from a host that stays,
//! on the tests' API, members and minions.

use std::sync::Arc;
use std::time::Duration;

use halite_etcd::fake::{FakeCluster, host};
use serde_json::{Value, json};

use super::fixture::{
    adding, all_checks, applied, killed, newest_run, orchestrate, request, resumed, without_facts,
};
use crate::backend::fixture::{Life, Site};

const SLS: &str = "halite.orchestrate.add_node";

/// A change of the roles of `cp-2`, from which its member leaves.
struct Case {
    site: fn() -> (Site, Arc<FakeCluster>),
    roles: &'static [&'static str],
    /// The states that the host has applied before its document changes.
    left: &'static [&'static str],
    /// Its states after that.
    then: &'static [&'static str],
    /// Its states when the same command is run again.
    again: &'static [&'static str],
    /// Checks the document afterwards.
    check: fn(&Site),
    /// The events between two moments at which the master is killed.
    every: usize,
}

/// The states of a worker.
const AGAIN: &[&str] = &[
    "host",
    "containerd",
    "images",
    "kubelet",
    "hosts",
    "firewall",
    "keepalived",
];

/// A control plane becomes a worker.
const WORKER: Case = Case {
    site,
    roles: &["worker"],
    left: &["address", "elsewhere", "planes", "etcd", "plane"],
    then: AGAIN,
    again: AGAIN,
    check: is_worker,
    every: 3,
};

/// A control plane gives up its member, where API servers use all members.
const PLANE: Case = Case {
    site: dedicated,
    roles: &["control-plane", "worker"],
    left: &["apiserver", "member"],
    then: &[
        "apiserver",
        "host",
        "containerd",
        "images",
        "kubelet",
        "hosts",
        "firewall",
        "keepalived",
        "apiserver",
        "kubelet",
        "registers",
        "masters",
        "running",
    ],
    again: &[
        "host",
        "containerd",
        "images",
        "kubelet",
        "hosts",
        "firewall",
        "keepalived",
        "apiserver",
        "kubelet",
        "registers",
        "masters",
        "running",
    ],
    check: is_plane,
    every: 5,
};

fn site() -> (Site, Arc<FakeCluster>) {
    let mut site = adding("cp-2");
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

/// The same with a member as a service beside each control plane, where API servers use all
/// members.
fn dedicated() -> (Site, Arc<FakeCluster>) {
    let (site, cluster) = site();
    let path = site.path().join("etc/cluster.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    let section = "etcd: {placement: dedicated, mode: host-service}\n";
    std::fs::write(path, format!("{text}{section}")).unwrap();
    (site, cluster)
}

fn document(site: &Site) -> std::path::PathBuf {
    site.path().join("etc/nodes/cp-2.yaml")
}

fn pillar(roles: &[&str], confirmed: bool) -> Value {
    let mut pillar = json!({"node": "cp-2", "roles": roles, "ignore_preflight": all_checks()});
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
    let (first, plane) = (without_facts("bootstrap-1"), without_facts("cp-2"));
    life.connect(&first);
    life.connect(&plane);
    // Without a confirmation, or with invalid roles, nothing happens.
    for (roles, confirmed, wanted) in [
        (&["worker"][..], false, "private keys of the cluster's CAs"),
        (&["worker", "control-plane"], true, "leave a host together"),
        (&["registry"], true, "no longer be a Kubernetes node"),
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
    assert_eq!(applied(&plane), [WORKER.left, WORKER.then].concat());
    assert_eq!(
        applied(&first),
        ["hosts", "firewall", "keepalived", "masters"]
    );
    assert_eq!(cluster.changes(), ["remove cp-2"]);
    is_worker(&site);

    // The last one of a kind stays, whatever is confirmed.
    let mut last = pillar(&["worker", "registry"], true);
    last["node"] = json!("bootstrap-1");
    let (retcode, data) = orchestrate(&life, request(SLS, &last));
    assert_eq!(retcode, 1, "{data}");
    assert!(data.contains("keeps it"), "{data}");
}

#[test]
fn a_control_plane_gives_its_member_away_and_uses_the_others() {
    let (site, cluster) = dedicated();
    let before = std::fs::read_to_string(document(&site)).unwrap();
    let life = site.live();
    let (first, plane) = (without_facts("bootstrap-1"), without_facts("cp-2"));
    life.connect(&first);
    life.connect(&plane);
    // It loses no key, but a vote.
    let (retcode, data) = change(&life, PLANE.roles, false);
    assert_eq!(retcode, 1, "{data}");
    assert!(
        data.contains("its vote in etcd: 1 member is left") && !data.contains("private keys"),
        "{data}"
    );
    // A missing quorum cannot be forced.
    cluster.stop("bootstrap-1");
    let (retcode, data) = change(&life, PLANE.roles, true);
    assert_eq!(retcode, 1, "{data}");
    assert!(data.contains("--force does not override this"), "{data}");
    cluster.start(&host("bootstrap-1"));
    assert!(applied(&plane).is_empty() && cluster.changes().is_empty());
    assert_eq!(std::fs::read_to_string(document(&site)).unwrap(), before);

    let (retcode, data) = change(&life, PLANE.roles, true);
    assert_eq!(retcode, 0, "{data}");
    assert_eq!(applied(&plane), [PLANE.left, PLANE.then].concat());
    let others = [
        "hosts",
        "firewall",
        "keepalived",
        "apiserver",
        "hosts",
        "operator",
        "standbys",
    ];
    assert_eq!(applied(&first), others);
    // It has led since the other one was away.
    assert_eq!(cluster.changes(), ["lead bootstrap-1", "remove cp-2"]);
    is_plane(&site);
}

/// The document has a control plane that has joined and its priority, and no member.
fn is_plane(site: &Site) {
    let text = std::fs::read_to_string(document(site)).unwrap();
    for there in [
        "# mine\n",
        "roles: [control-plane, worker]\n",
        "joined: true",
        "vrrpPriority: 199",
    ] {
        assert!(text.contains(there), "{text}");
    }
    assert!(!text.contains("etcd:"), "{text}");
}

/// The document has the operator's text and the addresses, and no control plane.
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

#[test]
fn a_killed_change_ends_the_same_when_it_is_repeated() {
    ends_the_same(&WORKER);
}

#[test]
fn a_member_that_is_given_away_leaves_once_wherever_the_master_is_killed() {
    ends_the_same(&PLANE);
}

/// Kills the master after events of a change in turn; the document names the member as long as it
/// exists.
fn ends_the_same(case: &Case) {
    for kill_after in (1..).step_by(case.every) {
        let (site, cluster) = (case.site)();
        let (first, plane) = (without_facts("bootstrap-1"), without_facts("cp-2"));
        let life = site.live();
        life.connect(&first);
        life.connect(&plane);
        let leaving = request(SLS, &pillar(case.roles, true));
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
        let wanted = [case.left, case.then].concat();
        assert_eq!(done, wanted, "killed after {kill_after}");
        (case.check)(&site);
        let (retcode, data) = change(&life, case.roles, true);
        assert_eq!(retcode, 0, "{data}");
        assert_eq!(applied(&plane)[done.len()..], *case.again);
        assert_eq!(cluster.changes(), ["remove cp-2"]);
        life.kill();
        if ended {
            return;
        }
    }
}
