//! Steps that give a host other roles.

use halite_states::compile;
use halite_states::compile::Compiled;
use serde_json::{Map, Value, json};

use crate::support::{before, fixture, sure, with};

const WORKER: &[&str] = &["worker"];
const PLANE: &[&str] = &["worker", "control-plane", "etcd"];

/// The orchestration that changes the roles of a host.
fn changed(before: &[&str], after: &[&str]) -> Compiled {
    let (pillar, grains) = fixture("master");
    changed_in(pillar, &grains, before, after)
}

/// The same with three members, where the API servers use all of them.
fn beside_members(before: &[&str], after: &[&str]) -> Compiled {
    let (mut pillar, grains) = fixture("master");
    let servers = ["10.10.0.11", "10.10.1.12", "10.10.0.13"];
    let servers = servers.map(|host| format!("https://{host}:2379"));
    pillar["halite"]["etcd"] = json!({
        "placement": "dedicated", "mode": "host-service", "extraArgs": {}, "servers": servers,
    });
    changed_in(pillar, &grains, before, after)
}

fn changed_in(mut pillar: Value, grains: &Value, before: &[&str], after: &[&str]) -> Compiled {
    pillar["node"] = json!("worker-1");
    pillar["roles"] = json!(after);
    pillar["halite"]["nodes"]["worker-1"]["roles"] = json!(before);
    let runs = *before != ["registry"];
    pillar["halite"]["nodes"]["worker-1"]["runs"] = json!({"containers": runs});
    sure(with(&pillar, grains, |i| {
        compile::step(i, &["halite.orchestrate.add_node".to_owned()])
    }))
}

/// The orchestration that adds a host with these roles.
fn added(roles: &[&str]) -> Compiled {
    let (mut pillar, grains) = fixture("master");
    pillar["node"] = json!("worker-1");
    pillar["halite"]["nodes"]["worker-1"]["roles"] = json!(roles);
    sure(with(&pillar, &grains, |i| {
        compile::step(i, &["halite.orchestrate.add_node".to_owned()])
    }))
}

/// The steps until the document has the new roles, and those after it.
fn divided(compiled: &Compiled) -> (Vec<&str>, Vec<&str>) {
    let mut all = steps(compiled);
    let at = all.iter().position(|id| *id == "roles").unwrap();
    let rest = all.split_off(at);
    (all, rest)
}

fn steps(compiled: &Compiled) -> Vec<&str> {
    let chunks = compiled.low.chunks.iter();
    chunks.map(|chunk| chunk.id.as_str()).collect()
}

/// Returns whether all of these steps occur, in this order.
fn are_in_order(steps: &[&str], wanted: &[&str]) -> bool {
    let mut steps = steps.iter();
    wanted.iter().all(|id| steps.any(|step| step == id))
}

fn args<'a>(compiled: &'a Compiled, id: &str) -> &'a Map<String, Value> {
    let mut chunks = compiled.low.chunks.iter();
    &chunks.find(|chunk| chunk.id == id).unwrap().args
}

#[test]
fn a_host_with_new_roles_takes_the_steps_of_one_that_is_added_with_them() {
    let gets = changed(WORKER, PLANE);
    assert_eq!(steps(&gets)[0], "suited");
    assert_eq!(args(&gets, "suited")["roles"], json!(PLANE));
    assert_eq!(args(&gets, "roles")["roles"], json!(PLANE));
    assert_eq!(gets.low.chunks[1].requisites.require, [0]);
    // Its kubelet used another path to the API until now.
    assert_eq!(
        args(&gets, "registered")["sls"],
        json!(["halite.base.kubelet", "halite.base.kubelet.registers"])
    );
    // Interrupted when the document already has them.
    assert_eq!(steps(&gets)[1..], steps(&changed(PLANE, PLANE)));
    let own = |compiled: &Compiled, without: &[&str]| -> Vec<String> {
        let all = steps(compiled).into_iter();
        let own = all.filter(|id| !without.contains(id));
        own.map(str::to_owned).collect()
    };
    assert_eq!(own(&gets, &["suited", "roles"]), own(&added(PLANE), &[]));
    // The other control planes may know it as a control plane.
    let (before, after) = (["registry"], ["registry", "worker"]);
    assert_eq!(
        own(&changed(&before, &after), &["roles", "other-masters"]),
        own(&added(&after), &[])
    );
}

#[test]
fn a_control_plane_leaves_a_host_before_its_document_says_so() {
    let leaves = changed(PLANE, WORKER);
    // The hosts that hold the address forget the host, also when the command is repeated.
    let again = changed(WORKER, WORKER);
    let (left, rest) = divided(&leaves);
    assert_eq!(rest, steps(&again));
    // Each after the previous one, until the document is correct.
    let chunks = leaves.low.chunks.iter().enumerate();
    for (index, chunk) in chunks.skip(1).take(left.len()) {
        assert_eq!(chunk.requisites.require, [index - 1], "{}", chunk.id);
    }
    assert_eq!(args(&leaves, "allowed")["roles"], json!(WORKER));
    assert_eq!(args(&leaves, "roles")["left"], true);
    let states = json!(["halite.leave.etcd", "halite.leave.plane"]);
    assert_eq!(args(&leaves, "left")["sls"], states);
    for compiled in [&leaves, &again] {
        let peers = args(compiled, "peers")["sls"].as_array().unwrap();
        assert!(
            peers.contains(&json!("halite.host.keepalived")),
            "{peers:?}"
        );
    }

    // With an external etcd a control plane has no member.
    let alone = changed(&["control-plane"], WORKER);
    let without: Vec<&str> = left.into_iter().filter(|id| *id != "member").collect();
    assert_eq!(divided(&alone), (without, rest));
    assert_eq!(args(&alone, "left")["sls"], json!(["halite.leave.plane"]));
}

/// Its API server uses the others before its member leaves, and a first host no longer founds a
/// cluster by then.
#[test]
fn where_api_servers_use_all_members_a_control_plane_gives_its_own_away() {
    let gives = beside_members(PLANE, &["worker", "control-plane"]);
    let (left, rest) = divided(&gives);
    let order = ["allowed", "given", "api-server", "member", "left"];
    assert!(are_in_order(&left, &order), "{left:?}");
    // The API servers follow the remaining members, each by itself, before the host is a control
    // plane again.
    let order = [
        "bootstrap-1-members",
        "worker-1-members",
        "members",
        "control-plane",
        "joined",
    ];
    assert!(are_in_order(&rest, &order), "{rest:?}");
    let chunks = gives.low.chunks.iter().enumerate();
    for (index, chunk) in chunks.skip(1).take(left.len()) {
        assert_eq!(chunk.requisites.require, [index - 1], "{}", chunk.id);
    }
    assert_eq!(args(&gives, "given")["node"], "worker-1");
    assert_eq!(args(&gives, "api-server")["offline"], "fail");
    assert_eq!(args(&gives, "left")["sls"], json!(["halite.leave.member"]));
    assert_eq!(args(&gives, "roles")["left"], true);

    // A host without a control plane has nothing that uses etcd.
    let gives = beside_members(&["worker", "etcd"], WORKER);
    let (left, rest) = divided(&gives);
    assert!(
        !left.contains(&"given") && !left.contains(&"api-server"),
        "{left:?}"
    );
    assert!(rest.contains(&"bootstrap-1-members"), "{rest:?}");
    assert!(!rest.contains(&"worker-1-members"), "{rest:?}");
    assert_eq!(args(&gives, "left")["sls"], json!(["halite.leave.etcd"]));
    // Both at once: its API server no longer follows.
    let both = beside_members(PLANE, WORKER);
    assert_eq!(divided(&both).0, divided(&changed(PLANE, WORKER)).0);
    assert_eq!(divided(&both).1, rest);
}

/// The member gets the record by which a member without a control plane shows that it has its vote,
/// and the lock is taken once.
#[test]
fn where_api_servers_use_all_members_a_control_plane_leaves_its_own_behind() {
    let leaves = beside_members(PLANE, &["worker", "etcd"]);
    let (left, rest) = divided(&leaves);
    assert!(!left.contains(&"member"), "{left:?}");
    let order = [
        "learner",
        "etcd",
        "promoted",
        "member",
        "members",
        "turn-ends",
    ];
    assert!(are_in_order(&rest, &order), "{rest:?}");
    let locks = steps(&leaves).iter().filter(|id| **id == "turn").count();
    assert_eq!(locks, 1);
    assert_eq!(args(&leaves, "left")["sls"], json!(["halite.leave.plane"]));
    let at = |id: &str| {
        steps(&leaves)
            .iter()
            .position(|found| *found == id)
            .unwrap()
    };
    let learner = &leaves.low.chunks[at("learner")];
    assert_eq!(learner.requisites.require, [at("late-peers")]);
}

/// No other control plane could become the master, and a target that matches nothing is a failure.
#[test]
fn the_only_control_plane_has_no_others_to_bring_along() {
    let (mut pillar, grains) = fixture("master");
    let nodes = pillar["halite"]["nodes"].as_object_mut().unwrap();
    nodes.retain(|name, _| name == "worker-1");
    let alone = changed_in(pillar, &grains, &["control-plane", "etcd"], PLANE);
    let steps = steps(&alone);
    assert!(steps.contains(&"masters"), "{steps:?}");
    assert!(!steps.contains(&"other-masters"), "{steps:?}");
}

#[test]
fn a_host_that_stops_to_serve_bundles_has_no_clients_by_then() {
    let changed = changed(&["worker", "registry"], &["worker"]);
    // With its own states it stops.
    let stops = before(&changed, "custom");
    assert!(stops.contains("former-clients"), "{stops:?}");
}

#[test]
fn steps_for_the_other_hosts_have_nothing_to_do_in_a_cluster_of_one_host() {
    let gets = changed(WORKER, &["worker", "control-plane", "etcd", "registry"]);
    let gives = changed(&["worker", "registry"], WORKER);
    for compiled in [gets, gives] {
        let chunks = compiled.low.chunks.iter();
        let others = chunks.filter(|chunk| {
            let target = chunk.args.get("tgt").and_then(Value::as_str);
            target.is_some_and(|target| target.starts_with("* and not L@worker-1"))
        });
        let others: Vec<_> = others.collect();
        assert!(!others.is_empty(), "{:?}", steps(&compiled));
        for chunk in others {
            assert_eq!(chunk.args["unmatched"], "skip", "{}", chunk.id);
        }
    }
}
