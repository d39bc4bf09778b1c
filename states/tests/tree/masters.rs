//! The host of the master is the one that the declaration names, whatever roles the hosts have.

use halite_states::compile::Compiled;
use serde_json::{Value, json};

use crate::support::{chunk, contents, fixture, highstate};

/// The pillar after another control plane, `worker-1` of the fixtures, has taken the master's place.
fn promoted(target: &str) -> (Value, Value) {
    let (mut pillar, grains) = fixture(target);
    let halite = &mut pillar["halite"];
    halite["master"]["node"] = json!("worker-1");
    halite["master"]["address"] = json!("10.10.1.12");
    halite["master"]["masters"] = json!(["10.10.1.12:4550", "10.10.0.11:4550"]);
    halite["node"]["runs"]["master"] = json!(target == "worker");
    if target == "worker" {
        halite["node"]["roles"] = json!(["control-plane", "etcd"]);
        halite["node"]["vrrpPriority"] = json!(100);
        halite["pki"] = fixture("bootstrap").0["halite"]["pki"].take();
    }
    (pillar, grains)
}

fn has(compiled: &Compiled, sls: &str) -> bool {
    compiled.low.chunks.iter().any(|chunk| chunk.sls == sls)
}

fn opens_master(compiled: &Compiled) -> bool {
    compiled.low.chunks.iter().any(|chunk| {
        let rules = serde_json::to_string(&chunk.args).unwrap();
        chunk.state == "firewalld" && rules.contains("4550")
    })
}

#[test]
fn the_new_host_of_the_master_has_all_that_the_first_host_had() {
    let (pillar, grains) = promoted("worker");
    let compiled = highstate(&pillar, &grains);
    for sls in [
        "halite.services.master",
        "halite.services.backup",
        "halite.services.bundle_server",
    ] {
        assert!(has(&compiled, sls), "{sls}");
    }
    assert!(opens_master(&compiled));
    let configuration = contents(&compiled, "/etc/halite/master.yaml");
    assert!(
        configuration.contains("advertise: [10.10.1.12]\n"),
        "{configuration}"
    );
    assert_eq!(
        contents(&compiled, "/etc/halite/masters"),
        "# Written by Halite.\n127.0.0.1:4550\n10.10.0.11:4550\n"
    );
}

#[test]
fn the_first_host_is_ordinary_afterwards() {
    let (pillar, grains) = promoted("bootstrap");
    let compiled = highstate(&pillar, &grains);
    assert!(!has(&compiled, "halite.services.master"));
    assert!(!has(&compiled, "halite.services.backup"));
    assert!(!opens_master(&compiled));
    chunk(&compiled, "service.dead", "halite-master");
    // It serves bundles as long as it has that role, and calls the master as its other hosts do.
    assert!(has(&compiled, "halite.services.bundle_server"));
    let configuration = contents(&compiled, "/etc/halite/minion.yaml");
    assert!(
        configuration.contains("master: 10.10.1.12:4550\n"),
        "{configuration}"
    );
    chunk(
        &compiled,
        "x509.certificate",
        "/etc/halite/operator/operator.crt",
    );
}
