//! The shipped rotation of a CA, and of the key pair that signs tokens of service accounts.

use std::sync::Arc;

use futures_util::StreamExt as _;
use halite_cluster::kubernetes::fake::FakeApi;
use halite_core::ca::Cas;
use halite_core::clock::ManualClock;
use halite_pillar::ca_rotation::CaRotation;
use halite_proto::pki::certificates;
use halite_proto::v1;
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, KeyUsagePurpose};
use serde_json::{Value, json};

use super::fixture::{findings, newest_run, orchestrate, request};
use crate::backend::fixture::{Life, ScriptedMinion, Site, WATCHDOG};

pub(super) const ROTATE: &str = "halite.orchestrate.rotate_ca";

/// The states have the form of the shipped ones: the files with each CA, the file with the public
/// keys of tokens, and a key.
const PLANE: &str = "\
include:
  - halite.base.pki.stages
/ca.crt:
  file.managed:
    - contents: {{ pillar.halite.pki.kubernetes.cert | json }}
/etcd-ca.crt:
  file.managed:
    - contents: {{ pillar.halite.pki.etcd.cert | json }}
/front-proxy-ca.crt:
  file.managed:
    - contents: {{ pillar.halite.pki['front-proxy'].cert | json }}
/sa.pub:
  file.managed:
    - contents: {{ pillar.halite.pki.sa.pub | json }}
/ca.key:
  file.managed:
    - contents: {{ pillar.halite.pki.kubernetes.key | json }}
";
const NODE: &str = "\
/node-ca.crt:
  file.managed:
    - contents: {{ pillar.halite.pki.kubernetes.cert | json }}
";

pub(super) const TREE: &[(&str, &str)] = &[
    ("top.sls", "base:\n  '*': []\n"),
    (
        "halite/orchestrate/rotate_ca.sls",
        include_str!("../../../states/tree/halite/orchestrate/rotate_ca.sls"),
    ),
    (
        "halite/base/pki/stages.sls",
        include_str!("../../../states/tree/halite/base/pki/stages.sls"),
    ),
    (
        "halite/map.jinja",
        include_str!("../../../states/tree/halite/map.jinja"),
    ),
    ("halite/base/control_plane/running.sls", PLANE),
    ("halite/base/kubelet.sls", NODE),
    ("halite/base/etcd.sls", "etcd:\n  test.nop: []\n"),
    ("halite/host/local_proxy.sls", "proxy:\n  test.nop: []\n"),
    (
        "halite/base/kubeadm_objects.sls",
        "objects:\n  test.nop: []\n",
    ),
];

fn site() -> Site {
    let site = Site::new(TREE);
    put_namespace(&site);
    site
}

/// The namespace of all pods.
pub(super) fn put_namespace(site: &Site) {
    let name = json!({"name": "default"});
    site.api
        .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": name}));
}

/// The content of a file in the low state of a job.
pub(super) fn file(job: &v1::Job, path: &str) -> Option<String> {
    let low: Value = serde_json::from_str(&job.low_json).ok()?;
    let chunk = (low["chunks"].as_array()?.iter()).find(|chunk| chunk["name"] == path)?;
    Some(chunk["args"]["contents"].as_str()?.to_owned())
}

/// A control plane whose controller-manager publishes the CA of each stage.
pub(super) fn plane(site: &Site) -> ScriptedMinion {
    let api = Arc::clone(&site.api);
    ScriptedMinion::new("bootstrap-1").on(move |job| {
        if let Some(ca) = file(job, "/ca.crt") {
            publish(&api, &ca);
        }
        None
    })
}

fn publish(api: &FakeApi, ca: &str) {
    api.put(
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"ca.crt": ca},
        "metadata": {"name": "kube-root-ca.crt", "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"}}),
    );
}

/// A pod that has run since this time.
fn pod(api: &FakeApi, created: &str) {
    api.put(json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default", "creationTimestamp": created,
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "controller": true}]},
        "spec": {"volumes": [{"projected": {"sources": [{"configMap": {"name": "kube-root-ca.crt"}},
            {"serviceAccountToken": {"expirationSeconds": 3607}}]}}]}}));
}

/// The contents of a file on a host, in order, without repetitions.
pub(super) fn contents(minion: &ScriptedMinion, path: &str) -> Vec<String> {
    let journal = minion.journal.lock().unwrap();
    let mut found: Vec<String> = (journal.received.iter())
        .filter(|job| job.function == "state.apply")
        .filter_map(|job| file(job, path))
        .collect();
    found.dedup();
    found
}

/// The CAs of the master.
pub(super) fn stored(site: &Site) -> Cas {
    Cas::load(&site.path().join("state")).unwrap()
}

fn ca(site: &Site) -> String {
    let cas = stored(site);
    cas.certificate_pem("kubernetes").unwrap().to_owned()
}

pub(super) fn rotate(life: &Life, pillar: &Value) -> (i32, String) {
    orchestrate(life, request(ROTATE, pillar))
}

pub(super) fn joined(first: &str, second: &str) -> String {
    format!("{}\n{}\n", first.trim_end(), second.trim_end())
}

/// Checks the stages that both hosts have seen, and that the rotation has ended.
pub(super) fn check_stages(site: &Site, old: &str, hosts: [&ScriptedMinion; 2], case: &str) {
    let new = ca(site);
    assert_ne!(new, old, "{case}");
    let wanted = [joined(old, &new), joined(&new, old), new];
    for (host, path) in hosts.into_iter().zip(["/ca.crt", "/node-ca.crt"]) {
        assert_eq!(contents(host, path), wanted, "{case}: {path}");
    }
    let numbers = contents(hosts[0], "/etc/kubernetes/pki/rotations");
    let wanted = [1, 2, 3].map(|number| format!("kubernetes {number}\n"));
    assert_eq!(numbers, wanted, "{case}");
    let keys = contents(hosts[0], "/ca.key");
    assert_eq!(keys.len(), 2, "{case}");
    assert_eq!(keys[1], stored(site).key_pem("kubernetes").unwrap());
    let record = site
        .path()
        .join("state")
        .join(CaRotation::path("kubernetes"));
    assert!(!record.exists(), "{case}");
}

/// All hosts trust both before the new one signs, and the old one leaves last.
#[test]
fn a_ca_reaches_all_hosts_stage_by_stage_and_no_record_has_its_key() {
    let site = site();
    let life = site.live();
    let (first, worker) = (plane(&site), ScriptedMinion::new("worker-1"));
    life.connect(&first);
    life.connect(&worker);
    let old = ca(&site);
    let (retcode, data) = rotate(&life, &json!({"ca": "kubernetes"}));
    assert_eq!(retcode, 0, "{data}");
    check_stages(&site, &old, [&first, &worker], "whole");
    let key = stored(&site).key_pem("kubernetes").unwrap().to_owned();
    let body = key.lines().nth(1).unwrap();
    assert!(!format!("{:?}{data}", newest_run(&life)).contains(body));
    assert!(!life.everything_stored(&site).contains(body));
}

#[test]
fn an_imported_ca_reaches_all_hosts_and_is_used_once() {
    let site = site();
    let life = site.live();
    let (first, worker) = (plane(&site), ScriptedMinion::new("worker-1"));
    life.connect(&first);
    life.connect(&worker);
    let old = ca(&site);
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let import = v1::ImportCaRequest {
        name: "kubernetes".to_owned(),
        certificate_pem: params.self_signed(&key).unwrap().pem(),
        key_pem: key.serialize_pem(),
        ..v1::ImportCaRequest::default()
    };
    let imported = certificates(&import.certificate_pem).unwrap();
    let done = life.runtime.block_on(life.backend.import_ca(import));
    done.unwrap();
    let (retcode, data) = rotate(&life, &json!({"ca": "kubernetes"}));
    assert_eq!(retcode, 0, "{data}");
    check_stages(&site, &old, [&first, &worker], "imported");
    assert_eq!(certificates(&ca(&site)).unwrap(), imported);
    let text = key.serialize_pem();
    let body = text.lines().nth(1).unwrap();
    assert!(!format!("{:?}{data}", newest_run(&life)).contains(body));
    assert!(!life.everything_stored(&site).contains(body));
    let (retcode, data) = rotate(&life, &json!({"ca": "kubernetes"}));
    assert_eq!(retcode, 0, "{data}");
    assert_ne!(certificates(&ca(&site)).unwrap(), imported);
}

#[test]
fn old_pods_are_restarted_before_the_new_ca_signs() {
    let site = site();
    let api = Arc::clone(&site.api);
    api.put(json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 1, "template": {"metadata": {}}}, "status": {"updatedReplicas": 1, "availableReplicas": 1}}));
    pod(&api, "2025-12-31T00:00:00Z");
    let life = site.live();
    let (first, worker) = (plane(&site), ScriptedMinion::new("worker-1"));
    life.connect(&first);
    life.connect(&worker);
    let old = ca(&site);
    // The controller of the StatefulSet.
    let controller = Arc::clone(&api);
    life.runtime.spawn(async move {
        loop {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            let set = controller.object("StatefulSet", "web").unwrap();
            if set.pointer("/spec/template/metadata/annotations").is_some() {
                pod(&controller, "2026-01-02T00:00:00Z");
                return;
            }
        }
    });
    let pillar = json!({"ca": "kubernetes", "restart_pods": true});
    let (retcode, data) = rotate(&life, &pillar);
    assert_eq!(retcode, 0, "{data}");
    assert!(data.contains("StatefulSet default/web"), "{data}");
    check_stages(&site, &old, [&first, &worker], "restarted");
}

#[test]
fn the_keys_of_tokens_and_the_other_cas_have_the_same_stages() {
    let site = site();
    let life = site.live();
    let first = plane(&site);
    life.connect(&first);
    let before = stored(&site);
    for ca in ["etcd", "front-proxy", "sa"] {
        let (retcode, data) = rotate(&life, &json!({"ca": ca}));
        assert_eq!(retcode, 0, "{ca}: {data}");
        assert_eq!(stored(&site).rotation(ca), None);
    }
    let after = stored(&site);
    for ca in ["etcd", "front-proxy"] {
        assert_ne!(
            after.certificate_pem(ca).unwrap(),
            before.certificate_pem(ca).unwrap()
        );
    }
    let (old, new) = (before.sa_public_pem(), after.sa_public_pem());
    let all = [
        old.to_owned(),
        joined(old, new),
        joined(new, old),
        new.to_owned(),
    ];
    assert_eq!(contents(&first, "/sa.pub"), all);
    let wrong = request(ROTATE, &json!({"ca": "other"}));
    let stream = life.backend.orchestrate("root", wrong);
    let refused = life.runtime.block_on(stream).err();
    let said = refused.map(|refusal| refusal.message).unwrap_or_default();
    assert!(said.contains("the CAs that can be rotated are"), "{said}");
}

/// The kubelet renews the token of a pod within an hour after all API servers sign with the new
/// key. The run is cancelled in this hour, and the next one waits only for the rest of it.
#[test]
fn a_repeated_run_waits_only_for_the_rest_of_the_time_of_tokens() {
    const HOUR: i64 = 60 * 60 * 1000;
    let site = site();
    pod(&site.api, "2025-12-31T00:00:00Z");
    let clock = Arc::new(ManualClock::at(1_795_910_400_000));
    let life = site.live_at(clock.clone());
    let first = plane(&site);
    life.connect(&first);
    let rotation = || request(ROTATE, &json!({"ca": "sa"}));
    life.runtime.block_on(async {
        let stream = life.backend.orchestrate("root", rotation()).await;
        let mut events = stream.unwrap().map(Result::unwrap);
        let mut has_waited = false;
        let all = async {
            while let Some(event) = events.next().await {
                if !has_waited
                    && event
                        .data_json
                        .contains("no token of the old key is in use")
                {
                    has_waited = true;
                    let run = life.store.runs(1).await.unwrap().remove(0);
                    life.backend.cancel_run(&run.id, "root").await.unwrap();
                }
            }
        };
        tokio::time::timeout(WATCHDOG, all).await.unwrap();
        assert!(has_waited);
    });
    clock.advance(HOUR);
    let (retcode, data) = orchestrate(&life, rotation());
    assert_eq!(retcode, 0, "{data}");
    assert_eq!(stored(&site).rotation("sa"), None);
}

/// The last stage of a run that ended early is the first of the next one.
#[test]
fn a_run_that_stopped_at_a_host_is_continued_by_the_next_one() {
    let site = site();
    let life = site.live();
    let (first, worker) = (plane(&site), ScriptedMinion::new("worker-1"));
    life.connect(&first);
    life.connect(&worker);
    let old = ca(&site);
    let failing = |state: Option<&str>| {
        let failing = state.into_iter().map(str::to_owned);
        first.journal.lock().unwrap().failing = failing.collect();
    };
    failing(Some("/ca.crt"));
    let (retcode, data) = rotate(&life, &json!({"ca": "kubernetes"}));
    assert_eq!(retcode, 1, "{data}");
    let found = findings(&life, "ca-rotation");
    assert!(
        found.contains(
            "the rotation of the CA kubernetes has not ended: it has the stage `trust` since 20"
        ) && found.contains("`ctl certs rotate kubernetes` continues it"),
        "{found}"
    );
    let stopped = ca(&site);
    assert!(stopped.starts_with(old.trim_end()) && stopped.len() > old.len());
    life.kill();
    failing(None);
    let life = site.live();
    life.connect(&first);
    life.connect(&worker);
    let (retcode, data) = rotate(&life, &json!({"ca": "kubernetes"}));
    assert_eq!(retcode, 0, "{data}");
    check_stages(&site, &old, [&first, &worker], "continued");
    assert_eq!(findings(&life, "ca-rotation"), "[]");
    assert_eq!(contents(&first, "/ca.crt")[0], stopped);
}
