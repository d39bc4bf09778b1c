//! The etcd member: a host that had one and has lost its data is refused.

use halite_states::compile;
use halite_states::compile::Compiled;
use serde_json::{Value, json};

use crate::support::{chunk, contents, fixture, sure, with};

const MANIFEST: &str = "/etc/kubernetes/manifests/etcd.yaml";
const RECORD: &str = "/var/lib/halite/etcd-member.json";

/// The bootstrap host with that grain.
fn host(etcd: Value) -> Compiled {
    let (pillar, mut grains) = fixture("bootstrap");
    if !etcd.is_null() {
        grains["etcd"] = etcd;
    }
    crate::support::highstate(&pillar, &grains)
}

/// The kubelet replaces etcd's pod for every change of its manifest, and the API is away for most of a
/// minute meanwhile.
#[test]
fn what_the_host_reports_of_its_member_does_not_change_the_manifest() {
    let first = host(Value::Null);
    for grain in [
        json!({"member": null, "recorded": false, "log": true}),
        json!({"member": "bootstrap-1", "recorded": true, "log": true}),
        json!({"member": "bootstrap-1", "recorded": true, "log": false}),
    ] {
        assert_eq!(
            contents(&host(grain.clone()), MANIFEST),
            contents(&first, MANIFEST),
            "{grain}"
        );
    }
}

#[test]
fn lost_data_is_refused_before_anything_is_changed() {
    let compiled = host(Value::Null);
    let first = &compiled.low.chunks[0];
    assert_eq!(
        (first.function().as_str(), first.id.as_str()),
        ("etcd.data", "etcd-data")
    );
    assert!(first.controls.failhard, "the states after it are not run");
    assert_eq!(
        first.args["record"],
        halite_host_reports::etcd::RECORD,
        "the minion reads the record of the states"
    );
    let worker = crate::support::of("worker");
    assert!(!worker.low.chunks.iter().any(|chunk| chunk.state == "etcd"));
    // Each step of the bootstrap that could change something begins with the same state.
    let (pillar, grains) = fixture("bootstrap");
    for step in [
        &["halite.base.etcd.data", "halite.host"][..],
        &["halite.base.kubelet", "halite.base.etcd.started"],
        &["halite.base.etcd"],
    ] {
        let names: Vec<String> = step.iter().map(|&sls| sls.to_owned()).collect();
        let compiled = sure(with(&pillar, &grains, |i| compile::sls(i, &names)));
        assert_eq!(compiled.low.chunks[0].id, "etcd-data", "{step:?}");
    }
}

#[test]
fn a_member_is_recorded_once_it_has_a_log() {
    let compiled = host(Value::Null);
    let record: Value = serde_json::from_str(contents(&compiled, RECORD)).unwrap();
    assert_eq!(record, json!({"member": "bootstrap-1"}));
    let condition = &chunk(&compiled, "file.managed", RECORD).controls.onlyif[0];
    let root = tempfile::tempdir().unwrap();
    let line = condition
        .as_str()
        .unwrap()
        .replace("/var/lib/etcd", &root.path().display().to_string());
    let holds = || {
        let shell = std::process::Command::new("/bin/sh")
            .args(["-c", &line])
            .status();
        shell.unwrap().success()
    };
    assert!(!holds());
    let log = root.path().join("member/wal");
    std::fs::create_dir_all(&log).unwrap();
    std::fs::write(log.join("0.tmp"), "").unwrap();
    assert!(!holds());
    std::fs::write(log.join("0-0.wal"), "").unwrap();
    assert!(holds());
}
