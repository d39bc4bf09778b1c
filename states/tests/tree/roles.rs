//! Steps that give a host other roles.

use halite_states::compile;
use halite_states::compile::Compiled;
use serde_json::{Map, Value, json};

use crate::support::{fixture, sure, with};

const WORKER: &[&str] = &["worker"];
const PLANE: &[&str] = &["worker", "control-plane", "etcd"];

/// The first steps that follow the new roles in the document.
const FIRST: [&str; 7] = [
    "roles",
    "enrolled",
    "peers",
    "preflight",
    "host",
    "containerd",
    "kubelet",
];
/// The last ones of a host without a control plane.
const LAST: [&str; 5] = ["node", "ready", "other-masters", "dns", "custom"];
/// Those by which a control plane and a member of etcd leave.
const LEFT: [&str; 8] = [
    "turn",
    "allowed",
    "vip",
    "address",
    "kubelet-elsewhere",
    "control-plane",
    "member",
    "left",
];

/// The orchestration that gives a host of these roles others.
fn changed(before: &[&str], after: &[&str]) -> Compiled {
    let (mut pillar, grains) = fixture("master");
    pillar["node"] = json!("worker-1");
    pillar["roles"] = json!(after);
    pillar["halite"]["nodes"]["worker-1"]["roles"] = json!(before);
    let runs = *before != ["registry"];
    pillar["halite"]["nodes"]["worker-1"]["runs"] = json!({"containers": runs});
    sure(with(&pillar, &grains, |i| {
        compile::sls(i, &["halite.orchestrate.add_node".to_owned()])
    }))
}

fn steps(compiled: &Compiled) -> Vec<&str> {
    let chunks = compiled.low.chunks.iter();
    chunks.map(|chunk| chunk.id.as_str()).collect()
}

fn args<'a>(compiled: &'a Compiled, id: &str) -> &'a Map<String, Value> {
    let mut chunks = compiled.low.chunks.iter();
    &chunks.find(|chunk| chunk.id == id).unwrap().args
}

#[test]
fn a_host_with_new_roles_takes_the_steps_of_one_that_is_added_with_them() {
    let added = [
        "turn",
        "learner",
        "etcd",
        "promoted",
        "control-plane",
        "registered",
        "turn-ends",
        "api-clients",
        "node",
        "ready",
        "masters",
        "other-masters",
        "dns",
        "custom",
    ];
    let gets = changed(WORKER, PLANE);
    assert_eq!(steps(&gets), [&["suited"][..], &FIRST, &added].concat());
    assert_eq!(args(&gets, "suited")["roles"], json!(PLANE));
    assert_eq!(args(&gets, "roles")["roles"], json!(PLANE));
    assert_eq!(gets.low.chunks[1].requisites.require, [0]);
    // Its kubelet had another way to the API until now.
    assert_eq!(
        args(&gets, "registered")["sls"],
        json!(["halite.base.kubelet", "halite.base.kubelet.registers"])
    );
    // Cut off when the document has them already.
    assert_eq!(steps(&changed(PLANE, PLANE)), [&FIRST[..], &added].concat());

    assert_eq!(
        steps(&changed(&["registry"], &["registry", "worker"])),
        [
            "roles",
            "enrolled",
            "peers",
            "preflight",
            "host",
            "registry",
            "containerd",
            "kubelet",
            "node",
            "ready",
            "other-masters",
            "dns",
            "custom",
            "clients"
        ]
    );
}

#[test]
fn a_control_plane_leaves_a_host_before_its_document_says_so() {
    let leaves = changed(PLANE, WORKER);
    assert_eq!(steps(&leaves), [&LEFT[..], &FIRST, &LAST].concat());
    // Each after the one before, until the document says what is there.
    let chunks = leaves.low.chunks.iter().enumerate();
    for (index, chunk) in chunks.skip(1).take(LEFT.len()) {
        assert_eq!(chunk.requisites.require, [index - 1], "{}", chunk.id);
    }
    assert_eq!(args(&leaves, "allowed")["roles"], json!(WORKER));
    assert_eq!(args(&leaves, "roles")["left"], true);
    let left = json!(["halite.leave.etcd", "halite.leave.plane"]);
    assert_eq!(args(&leaves, "left")["sls"], left);
    // Those that hold the address forget the host, also when the command is run again.
    let again = changed(WORKER, WORKER);
    assert_eq!(steps(&again), [&FIRST[..], &LAST].concat());
    for compiled in [&leaves, &again] {
        let peers = json!([
            "halite.host.hosts",
            "halite.host.firewall",
            "halite.host.keepalived"
        ]);
        assert_eq!(args(compiled, "peers")["sls"], peers);
    }

    // Beside an external etcd a control plane has no member.
    let alone = changed(&["control-plane"], WORKER);
    let left = LEFT.iter().copied().filter(|id| *id != "member");
    let left: Vec<&str> = left.collect();
    assert_eq!(steps(&alone), [&left[..], &FIRST, &LAST].concat());
    assert_eq!(args(&alone, "left")["sls"], json!(["halite.leave.plane"]));
}

#[test]
fn a_host_that_stops_to_serve_bundles_has_no_clients_by_then() {
    let changed = changed(&["worker", "registry"], &["worker"]);
    let steps = steps(&changed);
    let last = &steps[steps.len() - 2..];
    assert_eq!(last, ["former-clients", "custom"]);
}
