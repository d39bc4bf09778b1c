//! The rotation of a CA: its steps, and the control plane while two certificates are trusted.

use std::process::Command;

use halite_states::certificates::{makes_one, renewal};
use halite_states::compile;
use halite_states::compile::Compiled;
use halite_states::low::Chunk;
use serde_json::json;

use crate::support::{
    assert_chain, chunk, contents, fixture, golden, highstate, steps, sure, with,
};

const MANIFEST: &str = "/etc/kubernetes/manifests/kube-controller-manager.yaml";
const SIGNER: &str = "/etc/kubernetes/pki/ca-signer.crt";

fn rotation(pillar: serde_json::Value) -> Compiled {
    rotation_with_batch(pillar, &json!("25%"))
}

fn rotation_with_batch(pillar: serde_json::Value, batch: &serde_json::Value) -> Compiled {
    let (mut given, grains) = fixture("master");
    given["halite"]["upgrade"]["batch"] = batch.clone();
    given["halite"]["nodes"] = json!({
        "cp-1": {"roles": ["bootstrap", "control-plane", "etcd"]},
        "cp-2": {"roles": ["control-plane"]},
        "etcd-1": {"roles": ["etcd"]},
        "worker-1": {"roles": ["worker"]},
    });
    for (key, value) in pillar.as_object().unwrap() {
        given[key] = value.clone();
    }
    let compiled = sure(with(&given, &grains, |i| {
        compile::step(i, &["halite.orchestrate.rotate_ca".to_owned()])
    }));
    assert_chain(&compiled);
    compiled
}

#[test]
fn each_stage_reaches_all_hosts_with_the_ca_before_the_next_begins() {
    let mut text = String::new();
    for ca in ["kubernetes", "etcd", "front-proxy", "sa", "halite", "site"] {
        text += &steps(ca, &rotation(json!({"ca": ca})));
    }
    for ca in ["kubernetes", "etcd", "halite", "site"] {
        let compromised = json!({"ca": ca, "compromised": true, "restart_pods": true});
        text += &steps(&format!("{ca}, compromised"), &rotation(compromised));
    }
    golden("steps-rotate.txt", &text);
}

#[test]
fn further_nodes_get_a_ca_in_the_declared_batches() {
    for (declared, expected) in [(json!("10%"), "10%"), (json!(3), "3")] {
        let compiled = rotation_with_batch(json!({"ca": "kubernetes"}), &declared);
        let mut chunks = compiled.low.chunks.iter();
        let step = chunks.find(|chunk| chunk.id == "nodes-trust").unwrap();
        assert_eq!(step.args["batch"], expected);
    }
}

#[test]
fn the_states_of_a_step_are_those_with_the_ca() {
    let compiled = rotation(json!({"ca": "etcd"}));
    let sls = |id: &str| {
        let mut chunks = compiled.low.chunks.iter();
        let step = chunks.find(|chunk| chunk.id == id).unwrap();
        step.args["sls"].clone()
    };
    let running = "halite.base.control_plane.running";
    assert_eq!(sls("etcd-1-trust"), json!(["halite.base.etcd"]));
    assert_eq!(sls("cp-1-sign"), json!(["halite.base.etcd", running]));
    assert_eq!(sls("cp-2-only"), json!([running]));
}

#[test]
fn each_stage_names_all_hosts_that_must_take_part() {
    for (ca, hosts) in [
        ("kubernetes", json!(["cp-1", "cp-2"])),
        ("etcd", json!(["cp-1", "cp-2", "etcd-1"])),
    ] {
        let compiled = rotation(json!({"ca": ca}));
        let steps = compiled.low.chunks.iter();
        let stages: Vec<_> = steps
            .filter(|chunk| chunk.function() == "halite.ca_stage")
            .collect();
        assert_eq!(stages.len(), 4, "{ca}");
        assert!(stages.iter().all(|step| step.args["nodes"] == hosts));
    }
}

/// Minions and operators have their certificates of the new CA before the old one leaves.
#[test]
fn the_ca_of_identities_waits_for_all_holders_and_a_compromised_one_for_connected_hosts() {
    let waits = |pillar| {
        let compiled = rotation(pillar);
        let chunks = compiled.low.chunks.iter();
        let waits = chunks.filter(|chunk| chunk.function() == "halite.ca_identities");
        let text = |chunk: &Chunk, arg: &str| chunk.args[arg].as_str().unwrap().to_owned();
        let waits = waits.map(|chunk| [text(chunk, "stage"), text(chunk, "of")].join(" "));
        waits.collect::<Vec<_>>()
    };
    assert_eq!(
        waits(json!({"ca": "halite"})),
        ["trust hosts", "sign hosts", "sign operators", "only hosts"]
    );
    assert_eq!(
        waits(json!({"ca": "halite", "compromised": true})),
        ["trust connected", "only connected", "only hosts"]
    );
    assert!(waits(json!({"ca": "site"})).is_empty());
}

/// The script that enrols a host has both CAs, and completes a token with the one that signs.
#[test]
fn the_script_of_new_hosts_has_both_cas_and_the_digest_of_the_one_that_signs() {
    let (mut pillar, grains) = fixture("bootstrap");
    let pem =
        |body: &str| format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n");
    // "new" and "old" in base64.
    let both = [pem("bmV3"), pem("b2xk")].concat();
    for ca in ["halite", "site"] {
        pillar["halite"]["pki"][ca]["cert"] = json!(both);
    }
    let compiled = highstate(&pillar, &grains);
    let script = contents(&compiled, "/srv/halite/enrol.sh");
    assert_eq!(script.matches(both.trim()).count(), 2);
    assert_eq!(contents(&compiled, "/etc/halite/pki/site-ca.crt"), both);
    let function = script.split_once("master_ca_digest() {").unwrap().1;
    let function = function.split_once("\n}\n").unwrap().0;
    let run = Command::new("sh").args(["-c", function]).output().unwrap();
    assert_eq!(
        String::from_utf8(run.stdout).unwrap().trim(),
        "11507a0e2f5e69d5dfa40a62a1bd7b6ee57e6bcd85c67c9b8431b36fff21c437"
    );
    // The master changes its own files itself in a rotation.
    let init = chunk(
        &compiled,
        "cmd.run",
        "/usr/local/bin/halite-master init --config /etc/halite/master.yaml",
    );
    let tests = init.controls.unless.iter();
    let compared: Vec<_> = tests.filter_map(serde_json::Value::as_str).collect();
    assert!(
        compared[0].starts_with("test -e /var/lib/halite/master/ca/halite.rotation.json ||"),
        "{compared:?}"
    );
}

/// A host whose preflight has not ended stays as it is.
#[test]
fn a_rotation_does_not_change_bare_hosts() {
    for pillar in [
        json!({"ca": "kubernetes"}),
        json!({"ca": "kubernetes", "compromised": true}),
    ] {
        let compiled = rotation(pillar);
        let chunks = compiled.low.chunks.iter();
        let nodes: Vec<_> = chunks
            .filter(|chunk| chunk.id.starts_with("nodes-"))
            .collect();
        assert!(!nodes.is_empty());
        assert!(nodes.iter().all(|chunk| chunk.args["bare"] == "skip"));
    }
}

/// The controller-manager refuses to sign with a file of two certificates.
#[test]
fn the_controller_manager_signs_with_one_of_two_certificates() {
    let (mut pillar, grains) = fixture("bootstrap");
    let usual = highstate(&pillar, &grains);
    let signs = |file: &str| format!("--cluster-signing-cert-file={file}");
    let of = |compiled: &Compiled| contents(compiled, MANIFEST).to_owned();
    let ca = "/etc/kubernetes/pki/ca.crt";
    assert!(of(&usual).contains(&signs(ca)));
    chunk(&usual, "file.absent", SIGNER);
    pillar["halite"]["pki"]["kubernetes"]["cert"] = json!("NEW\nOLD\n");
    pillar["halite"]["pki"]["kubernetes"]["signer"] = json!("NEW\n");
    let rotated = highstate(&pillar, &grains);
    assert!(of(&rotated).contains(&signs(SIGNER)));
    assert_eq!(contents(&rotated, SIGNER), "NEW\n");
    assert_eq!(contents(&rotated, ca), "NEW\nOLD\n");
    let ready = chunk(
        &rotated,
        "static_pod.running",
        "kube-controller-manager-ready",
    );
    assert!(
        ready.args["reads"]
            .as_array()
            .unwrap()
            .contains(&json!(SIGNER))
    );
    // All certificates of this CA are compared with the first one.
    for made in &rotated.low.chunks {
        let by = made.args.get("ca").and_then(|ca| ca.as_str());
        if by == Some("kubernetes") || made.function() == "kubeconfig.managed" {
            assert_eq!(made.args["ca_certificate"], "NEW\nOLD\n", "{}", made.id);
        }
    }
}

/// A host's file with its stages, and the master's stages: the host refuses those that are earlier.
#[test]
fn a_host_refuses_the_states_of_an_earlier_stage() {
    const FILE: &str = "/etc/kubernetes/pki/rotations";
    let (mut pillar, grains) = fixture("bootstrap");
    pillar["halite"]["pki"]["stages"] =
        json!({"kubernetes": 2, "etcd": 0, "front-proxy": 3, "sa": 6});
    let compiled = highstate(&pillar, &grains);
    assert_eq!(
        contents(&compiled, FILE),
        "front-proxy 3\nkubernetes 2\nsa 6\n"
    );
    let chunks = &compiled.low.chunks;
    let place = |wanted: &dyn Fn(&&Chunk) -> bool| chunks.iter().position(|one| wanted(&one));
    let guard = place(&|chunk| chunk.id == "ca-stage-not-later").unwrap();
    let condition = chunks[guard].controls.onlyif[0].as_str().unwrap();
    let has_ca = |chunk: &&Chunk| chunk.name.starts_with("/etc/kubernetes/pki/ca.");
    let [stages, first] = [place(&|chunk| chunk.name == FILE), place(&has_ca)];
    assert!(guard < stages.unwrap() && stages < first && chunks[guard].controls.failhard);
    // Certificates of an earlier CA are not made either.
    let renewed = renewal(&compiled.low).chunks;
    let first = renewed.iter().position(makes_one).unwrap();
    assert!(
        renewed[..first]
            .iter()
            .any(|chunk| chunk.id == "ca-stage-not-later")
    );

    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rotations");
    let condition = condition.replace(FILE, &file.display().to_string());
    let refuses = |text: Option<&str>| {
        if let Some(text) = text {
            std::fs::write(&file, text).unwrap();
        }
        let run = Command::new("sh").args(["-c", &condition]).status();
        run.unwrap().success()
    };
    for (text, refused) in [
        (None, false),
        (Some(""), false),
        (Some("front-proxy 3\nkubernetes 2\nsa 6\n"), false),
        (Some("kubernetes 1\nsa 5\n"), false),
        (Some("kubernetes 3\n"), true),
        (Some("front-proxy 3\nsa 7\n"), true),
        (Some("etcd 1\n"), true),
        (Some("other 9\nkubernetes\n"), false),
    ] {
        assert_eq!(refuses(text), refused, "{text:?}");
    }
}

/// A rotation of a CA that a host does not use changes nothing on it.
#[test]
fn a_host_records_the_stages_of_the_cas_that_it_uses() {
    let (mut pillar, grains) = fixture("worker");
    pillar["halite"]["pki"]["stages"] = json!({"kubernetes": 0, "etcd": 3, "sa": 3});
    let is_record = |chunk: &&Chunk| chunk.name == "/etc/kubernetes/pki/rotations";
    let compiled = highstate(&pillar, &grains);
    assert!(!compiled.low.chunks.iter().any(|chunk| is_record(&chunk)));
    pillar["halite"]["pki"]["stages"]["kubernetes"] = json!(3);
    let compiled = highstate(&pillar, &grains);
    assert_eq!(
        contents(&compiled, "/etc/kubernetes/pki/rotations"),
        "kubernetes 3\n"
    );
}
