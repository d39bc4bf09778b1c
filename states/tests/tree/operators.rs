//! `ctl` on control-plane hosts: the address of the master, and the identity to use there.

use serde_json::json;

use crate::support::{chunk, contents, fixture, highstate, of};

#[test]
fn root_on_a_further_control_plane_has_an_operator_of_its_own() {
    let (mut pillar, grains) = fixture("worker");
    pillar["halite"]["node"]["roles"] = json!(["control-plane", "etcd"]);
    pillar["halite"]["node"]["vrrpPriority"] = json!(100);
    pillar["halite"]["pki"] = fixture("bootstrap").0["halite"]["pki"].take();
    let compiled = highstate(&pillar, &grains);
    assert_eq!(
        contents(&compiled, "/etc/halite/masters"),
        "# Written by Halite.\n10.10.0.11:4550\n"
    );
    chunk(&compiled, "file.managed", "/usr/local/bin/ctl");
    let identity = chunk(
        &compiled,
        "x509.certificate",
        "/etc/halite/operator/operator.crt",
    );
    assert_eq!(
        identity.args["sans_uri"],
        json!(["halite://prod/operator/root@worker-1"])
    );
    assert_eq!(identity.args["ca"], "halite");
    assert!(
        identity.args.get("key").is_none(),
        "the key is made next to it"
    );
    let ca = chunk(&compiled, "file.managed", "/etc/halite/operator/ca.crt");
    assert_eq!(
        ca.args["contents"],
        pillar["halite"]["pki"]["halite"]["cert"]
    );
}

#[test]
fn the_masters_host_calls_itself_first_and_other_hosts_have_no_operator() {
    let first = of("bootstrap");
    assert_eq!(
        contents(&first, "/etc/halite/masters"),
        "# Written by Halite.\n127.0.0.1:4550\n"
    );
    let asks = |compiled: &halite_states::compile::Compiled| {
        let mut chunks = compiled.low.chunks.iter();
        chunks.any(|chunk| chunk.args.get("ca").is_some_and(|ca| ca == "halite"))
    };
    // Its identity is the one from `halite-master init`.
    assert!(!asks(&first));
    let worker = of("worker");
    assert!(!asks(&worker));
    let mut chunks = worker.low.chunks.iter();
    assert!(!chunks.any(|chunk| chunk.name == "/etc/halite/masters"));
}
