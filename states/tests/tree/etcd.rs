//! The etcd member: a host that had one and has lost its data is refused.

use halite_states::compile;
use halite_states::compile::Compiled;
use halite_states::low::Chunk;
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

/// The kubelet replaces etcd's pod for every change of its manifest, and the API is unavailable for
/// most of a minute.
#[test]
fn a_host_report_about_its_member_does_not_change_the_manifest() {
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
    // Each step of the bootstrap that could change something starts with the same state.
    let (pillar, grains) = fixture("bootstrap");
    for step in [
        &[
            "halite.base.etcd.data",
            "halite.base.containerd.kept",
            "halite.base.kubelet.kept",
            "halite.host",
        ][..],
        &["halite.base.kubelet", "halite.base.etcd.member"],
        &["halite.base.etcd"],
    ] {
        let names: Vec<String> = step.iter().map(|&sls| sls.to_owned()).collect();
        let compiled = sure(with(&pillar, &grains, |i| compile::step(i, &names)));
        assert_eq!(compiled.low.chunks[0].id, "etcd-data", "{step:?}");
    }
}

/// A kubelet that restarts etcd without its data then fails: only the state that founds a cluster
/// writes the other flag, once.
#[test]
fn a_member_that_has_run_never_founds_a_cluster() {
    let compiled = host(Value::Null);
    let manifest = contents(&compiled, MANIFEST);
    assert!(
        manifest.contains("--initial-cluster-state=existing"),
        "{manifest}"
    );
    assert!(
        manifest.contains("--initial-cluster=bootstrap-1=https://10.10.0.11:2380"),
        "{manifest}"
    );
    let founded = chunk(&compiled, "etcd.founded", RECORD);
    let command = founded.args["command"].as_array().unwrap();
    let lines: Vec<String> = command
        .iter()
        .map(|argument| format!("    - {argument}\n"))
        .collect();
    assert!(
        manifest.contains(&lines.concat().replacen("\"etcd\"", "etcd", 1)),
        "the first start has the arguments of the manifest: {lines:?}"
    );
    let recorded = chunk(&compiled, "etcd.recorded", RECORD);
    assert_eq!(
        (&recorded.args["member"], &recorded.args["initial_cluster"]),
        (
            &json!("bootstrap-1"),
            &json!("bootstrap-1=https://10.10.0.11:2380")
        )
    );
}

/// A highstate waits for each pod, and stops at the first that does not start; the bootstrap does
/// not wait for pods that it needs only later.
#[test]
fn a_highstate_waits_for_each_static_pod() {
    let waits = |compiled: &Compiled| -> Vec<String> {
        let chunks = compiled.low.chunks.iter();
        let pods = chunks.filter(|chunk| chunk.state == "static_pod");
        pods.map(|chunk| {
            assert!(chunk.controls.failhard, "{}", chunk.id);
            chunk.id.clone()
        })
        .collect()
    };
    let all = host(Value::Null);
    assert_eq!(
        waits(&all),
        [
            "etcd-ready",
            "kube-apiserver-ready",
            "kube-controller-manager-ready",
            "kube-scheduler-ready"
        ]
    );
    let ready = |id: &str| {
        let found = all.low.chunks.iter().find(|chunk| chunk.id == id);
        found.unwrap().args["ready"].as_str().unwrap().to_owned()
    };
    assert_eq!(ready("etcd-ready"), "http://127.0.0.1:2381/readyz");
    assert_eq!(
        ready("kube-apiserver-ready"),
        "https://10.10.0.11:6443/readyz"
    );
    assert_eq!(
        ready("kube-controller-manager-ready"),
        "https://127.0.0.1:10257/healthz"
    );
    assert_eq!(
        ready("kube-scheduler-ready"),
        "https://127.0.0.1:10259/readyz"
    );
    let (pillar, grains) = fixture("bootstrap");
    for (step, waited) in [
        (
            &["halite.base.kubelet", "halite.base.etcd.member"][..],
            &[][..],
        ),
        (&["halite.base.control_plane"], &["kube-apiserver-ready"]),
    ] {
        let names: Vec<String> = step.iter().map(|&sls| sls.to_owned()).collect();
        let compiled = sure(with(&pillar, &grains, |i| compile::step(i, &names)));
        assert_eq!(waits(&compiled), waited, "{step:?}");
    }
}

/// A probe of a program that listens on all addresses goes to this host.
#[test]
fn a_pod_that_listens_everywhere_is_asked_here() {
    let (mut pillar, grains) = fixture("bootstrap");
    pillar["halite"]["scheduler"]["extraArgs"]["bind-address"] = json!("0.0.0.0");
    let compiled = crate::support::highstate(&pillar, &grains);
    let found = compiled
        .low
        .chunks
        .iter()
        .find(|chunk| chunk.id == "kube-scheduler-ready");
    assert_eq!(
        found.unwrap().args["ready"],
        "https://127.0.0.1:10259/readyz"
    );
}

/// The worker's host as a second control plane.
fn second(etcd: Value) -> Compiled {
    let (pillar, grains) = second_pillar(&etcd);
    crate::support::highstate(&pillar, &grains)
}

fn second_pillar(etcd: &Value) -> (Value, Value) {
    let (mut pillar, grains) = fixture("worker");
    let (first, _) = fixture("bootstrap");
    pillar["halite"]["pki"] = first["halite"]["pki"].clone();
    for node in ["/halite/node", "/halite/nodes/worker-1"] {
        let node = pillar.pointer_mut(node).unwrap();
        node["roles"] = json!(["control-plane", "etcd"]);
        node["etcd"] = etcd.clone();
        node["vrrpPriority"] = json!(199);
    }
    (pillar, grains)
}

/// The members are those that were recorded when it joined, also after others came and went.
#[test]
fn a_member_that_joined_keeps_the_members_of_its_first_start() {
    let cluster = "bootstrap-1=https://10.10.0.11:2380,worker-1=https://10.10.1.12:2380";
    let etcd = json!({
        "member": "worker-1", "initialCluster": cluster,
        "clusterId": "cdf818194e3a8c32", "memberId": "12345678",
    });
    let compiled = second(etcd.clone());
    let manifest = contents(&compiled, MANIFEST);
    for flag in [
        format!("--initial-cluster={cluster}"),
        "--initial-cluster-state=existing".to_owned(),
        "--name=worker-1".to_owned(),
    ] {
        assert!(manifest.contains(&flag), "no {flag} in:\n{manifest}");
    }
    let chunks = &compiled.low.chunks;
    assert!(
        !chunks
            .iter()
            .any(|chunk| chunk.function() == "etcd.founded")
    );
    let record = chunk(&compiled, "etcd.recorded", RECORD);
    assert_eq!(
        (&record.args["member"], &record.args["initial_cluster"]),
        (&etcd["member"], &etcd["initialCluster"])
    );
    // It is started once with the same arguments, before there is a pod, and recorded once it has
    // data.
    let first = chunk(&compiled, "etcd.joined", "/var/lib/etcd");
    assert_eq!(
        (&first.args["cluster_id"], &first.args["member_id"]),
        (&etcd["clusterId"], &etcd["memberId"]),
        "data of another member are set aside"
    );
    let command = first.args["command"].as_array().unwrap();
    let lines = command.iter().map(|word| format!("    - {word}\n"));
    let lines = lines.collect::<String>().replacen("\"etcd\"", "etcd", 1);
    assert!(manifest.contains(&lines), "{lines}");
    let at = |function: &str, name: &str| {
        let found = |chunk: &Chunk| chunk.function() == function && chunk.name == name;
        chunks.iter().position(found).unwrap()
    };
    let joined = at("etcd.joined", "/var/lib/etcd");
    let recorded = at("etcd.recorded", RECORD);
    assert!(joined < recorded && recorded < at("file.managed", MANIFEST));
}

/// The states that remove an earlier member of the second control plane, whose current ids are
/// these.
fn earlier(etcd: &Value) -> Compiled {
    let (pillar, grains) = second_pillar(etcd);
    sure(with(&pillar, &grains, |i| {
        compile::step(i, &["halite.base.etcd.earlier".to_owned()])
    }))
}

/// Runs a condition of a state on a host with this record.
fn holds(condition: &str, record: Option<&str>) -> bool {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("record.json");
    if let Some(record) = record {
        std::fs::write(&path, record).unwrap();
    }
    let condition = condition.replace(RECORD, path.to_str().unwrap());
    let run = std::process::Command::new("/bin/sh")
        .args(["-c", &condition])
        .status();
    run.unwrap().success()
}

/// A learner that was not promoted in time was removed, and the host becomes a member again: with
/// the data of the first, etcd would exit.
#[test]
fn a_removed_member_stops_before_the_host_joins_again() {
    let etcd = json!({
        "member": "worker-1", "initialCluster": "worker-1=https://10.10.1.12:2380",
        "clusterId": "cdf818194e3a8c32", "memberId": "8e9e05c52164694d",
    });
    let compiled = earlier(&etcd);
    let chunks = &compiled.low.chunks;
    let ids: Vec<&str> = chunks.iter().map(|chunk| chunk.id.as_str()).collect();
    assert_eq!(
        ids,
        [
            "etcd-data",
            "etcd-identified",
            MANIFEST,
            "etcd-unit",
            "etcd-ended"
        ]
    );
    // The data stay, for `etcd.joined`, which sets them aside by the ids of the log.
    assert!(!format!("{chunks:?}").contains("mv "), "{chunks:?}");
    let record = |cluster: &str, member: &str| {
        format!(
            "{{\"member\":\"worker-1\",\"initialCluster\":\"\",\"clusterId\":\"{cluster}\",\"memberId\":\"{member}\"}}\n"
        )
    };
    let manifest = chunk(&compiled, "file.absent", MANIFEST);
    let [condition] = &manifest.controls.onlyif[..] else {
        panic!("{:?}", manifest.controls);
    };
    let condition = condition.as_str().unwrap();
    let (own, other) = (
        record("cdf818194e3a8c32", "8e9e05c52164694d"),
        "8e9e05c52164694",
    );
    for (record, ends) in [
        (Some(record("cdf818194e3a8c32", other)), true),
        (Some(own), false),
        // The record of another cluster may be all that is left of it.
        (Some(record("1", other)), false),
        (Some("{\"member\":\"worker-1\"}\n".to_owned()), false),
        (None, false),
    ] {
        assert_eq!(holds(condition, record.as_deref()), ends, "{record:?}");
    }
    for id in ["etcd-unit", "etcd-ended"] {
        let found = chunks.iter().find(|chunk| chunk.id == id).unwrap();
        let text = format!("{:?}", found.controls.onlyif);
        assert!(
            text.contains("clusterId") && text.contains("memberId"),
            "{text}"
        );
    }
    // A member about which something is unknown is not removed.
    let compiled = earlier(
        &json!({"member": "worker-1", "initialCluster": "worker-1=https://10.10.1.12:2380"}),
    );
    assert_eq!(compiled.low.chunks.len(), 1);
}

/// An etcd that starts without being a member founds a cluster of its own, or fails forever.
#[test]
fn a_host_that_is_not_yet_a_member_starts_no_etcd() {
    let compiled = second(Value::Null);
    let refusal = chunk(&compiled, "test.fail_without_changes", "etcd-not-joined");
    assert!(refusal.controls.failhard);
    let chunks = &compiled.low.chunks;
    let at = |name: &str| chunks.iter().position(|chunk| chunk.name == name);
    assert!(at("etcd-not-joined") < at(MANIFEST));
    assert!(
        !chunks
            .iter()
            .any(|chunk| chunk.function() == "etcd.founded")
    );
}
