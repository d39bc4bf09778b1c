//! Hosts with their own bundles: compiled from these, and brought to another one.

use std::fs;

use halite_core::names::{MASTER, minion};
use halite_proto::v1;
use serde_json::{Value, json};

use super::fixture::{Life, ScriptedMinion, Site};

/// A state that names its bundle and Kubernetes version, and the orchestration of an upgrade.
fn tree(version: &str) -> Vec<(&'static str, String)> {
    let step = |id: &str, target: &str, more: &str| {
        format!(
            "{id}:\n  halite.state:\n    - tgt: '{target}'\n    - tgt_type: list\n    - bundle: '{{{{ pillar.bundle }}}}'\n{more}"
        )
    };
    let (whole, after) = ("    - highstate: True\n", |id: &str| {
        format!("    - require: [{{halite: {id}}}]\n")
    });
    vec![
        (
            "top.sls",
            "base:\n  '* and not master':\n    - match: compound\n    - host\n  'master':\n    - objects\n"
                .to_owned(),
        ),
        (
            "host.sls",
            format!(
                "from-{version}:\n  file.managed:\n    - name: /opt/payload\n    - source: bundle://files/payload\n\
                 {{{{ pillar.halite.kubernetes.version }}}}:\n  test.nop: []\n\
                 {{{{ pillar.halite.bundle.fallbacks | length }}}}-fallbacks:\n  test.nop: []\n"
            ),
        ),
        (
            "objects.sls",
            format!(
                "settings:\n  kubernetes.object:\n    - manifest:\n        apiVersion: v1\n        kind: ConfigMap\n        \
                 metadata: {{name: settings, namespace: kube-system}}\n        data: {{from: '{version}'}}\n"
            ),
        ),
        (
            "upgrade.sls",
            format!(
                "{}{}{}{}",
                step("before", "bootstrap-1", "    - sls: [host]\n"),
                step("first", "bootstrap-1", &format!("{whole}{}", after("before"))),
                step("objects", "master", &format!("{whole}{}", after("first"))),
                step("workers", "worker-1", &format!("{whole}{}", after("objects"))),
            ),
        ),
    ]
}

/// A site with the bundles 0.2.0 and 0.3.0 of one minor version, whose cluster uses `in_use`.
pub(super) fn site(in_use: &str, kubernetes: &str) -> Site {
    let site = Site::new(&[]);
    put(&site, "0.2.0", "v1.36.3", "2026-01-01");
    put(&site, "0.3.0", "v1.36.4", "2026-02-01");
    let path = site.path().join("etc/cluster.yaml");
    let text = fs::read_to_string(&path).unwrap();
    let resolved = format!("resolved:\n  kubernetes: {kubernetes}\n  bundle: \"{in_use}\"\n");
    fs::write(&path, format!("{text}{resolved}")).unwrap();
    site
}

pub(super) fn put(site: &Site, version: &str, kubernetes: &str, built: &str) {
    let tree = tree(version);
    let tree: Vec<(&str, &str)> = tree
        .iter()
        .map(|(path, text)| (*path, text.as_str()))
        .collect();
    let place = format!("bundles/{version}");
    site.bundle(&place, version, &tree);
    let manifest = site.path().join(&place).join("manifest.json");
    let text = fs::read_to_string(&manifest).unwrap();
    let text = text
        .replace("v1.36.3", kubernetes)
        .replace("2026-01-01", built);
    fs::write(&manifest, &text).unwrap();
    let digest = halite_proto::pki::sha256_hex(text.as_bytes());
    let checksum = site.path().join(&place).join("manifest.json.sha256");
    fs::write(checksum, format!("{digest}  manifest.json\n")).unwrap();
}

pub(super) fn node(site: &Site, name: &str) -> String {
    fs::read_to_string(site.path().join(format!("etc/nodes/{name}.yaml"))).unwrap()
}

fn record(site: &Site, name: &str, address: &str, bundle: &str, kubernetes: &str) {
    let text = node(site, name);
    fs::write(
        site.path().join(format!("etc/nodes/{name}.yaml")),
        format!(
            "{text}resolved:\n  controlPlane: {address}\n  workloadPlane: {address}\n  bundle: \"{bundle}\"\n  kubernetes: \
             {kubernetes}\n"
        ),
    )
    .unwrap();
}

/// The ids of the states in a minion's last job.
pub(super) fn given(minion: &ScriptedMinion) -> Vec<String> {
    let journal = minion.journal.lock().unwrap();
    let low: Value = serde_json::from_str(&journal.received.last().unwrap().low_json).unwrap();
    let chunks = low["chunks"].as_array().unwrap().iter();
    chunks
        .map(|chunk| chunk["id"].as_str().unwrap().to_owned())
        .collect()
}

pub(super) fn connected(life: &Life) -> (ScriptedMinion, ScriptedMinion) {
    let (first, worker) = (
        ScriptedMinion::new("bootstrap-1"),
        ScriptedMinion::new("worker-1"),
    );
    life.connect(&first);
    life.connect(&worker);
    (first, worker)
}

pub(super) fn status(life: &Life) -> Value {
    halite_api::to_value(&life.runtime.block_on(life.backend.status()).unwrap())
}

pub(super) fn upgrade(life: &Life, bundle: &str, test: bool) -> (i32, String) {
    let request = v1::OrchestrateRequest {
        sls: "upgrade".into(),
        pillar_json: json!({"bundle": bundle}).to_string(),
        test,
        ..Default::default()
    };
    let stream = life
        .runtime
        .block_on(life.backend.orchestrate("root", request))
        .unwrap();
    let events = life.collect(stream);
    let last = events.last().unwrap();
    (last.retcode, last.data_json.clone())
}

fn read_bundles(life: &Life) -> usize {
    let declarations = life.backend.jobs().declarations();
    life.runtime.block_on(declarations.load()).unwrap();
    declarations.bundles_in_memory()
}

#[test]
fn a_host_is_compiled_from_the_bundle_that_its_document_records() {
    let site = site("0.3.0", "v1.36.4");
    let life = site.live();
    let (first, worker) = connected(&life);
    life.run("state.highstate", "*", json!({}), false);
    assert_eq!(given(&worker)[0], "from-0.3.0");
    assert_eq!(read_bundles(&life), 1, "one that no host uses is not read");

    let text = node(&site, "worker-1");
    let (head, _) = text.split_once("# Chosen by Halite").unwrap();
    fs::write(site.path().join("etc/nodes/worker-1.yaml"), head).unwrap();
    record(&site, "worker-1", "10.10.1.12", "0.2.0", "v1.36.3");
    life.run("state.highstate", "*", json!({}), false);
    assert_eq!(given(&worker), ["from-0.2.0", "v1.36.3", "1-fallbacks"]);
    assert_eq!(given(&first), ["from-0.3.0", "v1.36.4", "1-fallbacks"]);
    assert_eq!(read_bundles(&life), 2);
    // One job, for which each host uses its own bundle.
    let bundles = life.runtime.block_on(life.store.minion_bundles()).unwrap();
    let of = |name: &str| {
        let own = bundles.iter().filter(|one| one.minion == *name);
        own.map(|one| (one.bundle.as_str(), one.highstate.is_some()))
            .collect::<Vec<_>>()
    };
    assert_eq!(of("bootstrap-1"), [("0.3.0", true)]);
    assert_eq!(of("worker-1"), [("0.2.0", true)]);
    let said = status(&life);
    let problems = said["problems"].as_array().unwrap();
    assert!(
        problems.len() == 1
            && problems[0]
                .as_str()
                .unwrap()
                .contains("an upgrade has not ended: worker-1 with the bundle 0.2.0"),
        "{problems:?}"
    );
    // A missing bundle holds up only the hosts that use it.
    fs::rename(site.path().join("bundles/0.2.0"), site.path().join("away")).unwrap();
    let highstate = |target: &str| {
        let request = v1::RunRequest {
            target: target.into(),
            function: "state.highstate".into(),
            ..v1::RunRequest::default()
        };
        let run = life.backend.run("root", request);
        life.runtime.block_on(run).map(|_| ())
    };
    let refusal = highstate("worker-1").unwrap_err();
    assert!(refusal.message.contains("bundles/0.2.0"), "{refusal}");
    highstate("bootstrap-1").unwrap();
    life.kill();
}

#[test]
fn an_upgrade_records_each_host_when_it_has_the_bundle() {
    let site = site("0.2.0", "v1.36.3");
    let life = site.live();
    let (first, worker) = connected(&life);
    let documents = || {
        let cluster = fs::read_to_string(site.path().join("etc/cluster.yaml")).unwrap();
        [cluster, node(&site, "bootstrap-1"), node(&site, "worker-1")]
    };
    let before = documents();
    let (code, said) = upgrade(&life, "0.3.0", true);
    assert_eq!(code, 0, "{said}");
    assert_eq!(documents(), before, "a test records nothing");
    assert_eq!(read_bundles(&life), 1, "the test is over");

    // The worker fails: the control plane and the objects have the new bundle, and the worker keeps
    // its own.
    worker
        .journal
        .lock()
        .unwrap()
        .failing
        .insert("from-0.3.0".into());
    let (code, said) = upgrade(&life, "0.3.0", false);
    assert_eq!(code, 1, "{said}");
    assert_eq!(given(&first), ["from-0.3.0", "v1.36.4", "1-fallbacks"]);
    let settings = || site.api.object("ConfigMap", "settings").unwrap()["data"]["from"].clone();
    assert_eq!(settings(), "0.3.0");
    let [cluster, own, behind] = documents();
    assert!(
        cluster.ends_with("resolved:\n  kubernetes: v1.36.4\n  bundle: \"0.3.0\"\n"),
        "{cluster}"
    );
    assert!(!own.contains("bundle:"), "as the cluster's: {own}");
    assert!(
        behind.contains("  bundle: \"0.2.0\"\n  kubernetes: v1.36.3\n"),
        "{behind}"
    );
    let said = status(&life)["problems"].to_string();
    assert!(said.contains("worker-1 with the bundle 0.2.0"), "{said}");
    // Until it continues, each host keeps its bundle.
    life.run("state.highstate", "*", json!({}), false);
    assert_eq!(given(&worker)[0], "from-0.2.0");
    assert_eq!(given(&first)[0], "from-0.3.0");

    worker.journal.lock().unwrap().failing.clear();
    let (code, said) = upgrade(&life, "0.3.0", false);
    assert_eq!(code, 0, "{said}");
    assert!(!node(&site, "worker-1").contains("bundle:"));
    assert_eq!(given(&worker), ["from-0.3.0", "v1.36.4", "0-fallbacks"]);
    life.run("state.highstate", "*", json!({}), false);
    assert_eq!(given(&worker), ["from-0.3.0", "v1.36.4", "0-fallbacks"]);
    assert_eq!(status(&life)["problems"], json!([]));
    assert_eq!(read_bundles(&life), 1);
    life.kill();
}

#[test]
fn an_upgrade_takes_hosts_with_a_minion_of_an_earlier_protocol_to_its_bundle() {
    let site = site("0.2.0", "v1.36.3");
    let life = site.live();
    let (first, worker) = connected(&life);
    for host in [&first, &worker] {
        life.app.connections.speaks(&host.id, 1);
    }
    // Their bundle brings no other minion.
    life.run("state.highstate", "*", json!({}), false);
    assert!(worker.journal.lock().unwrap().received.is_empty());
    let (code, said) = upgrade(&life, "0.3.0", false);
    assert_eq!(code, 0, "{said}");
    for host in [&first, &worker] {
        assert_eq!(given(host)[0], "from-0.3.0");
    }
    life.kill();
}

#[test]
fn what_cannot_be_upgraded_to_is_refused_with_the_reason() {
    let site = site("0.3.0", "v1.36.4");
    put(&site, "0.4.0", "v1.38.0", "2026-03-01");
    put(&site, "0.5.0", "v1.36.4", "2025-03-01");
    put(&site, "0.6.0", "v1.36.4", "2026-03-01");
    let life = site.live();
    let (first, _worker) = connected(&life);
    let show = |wanted: &str| {
        let request = v1::ShowRequest {
            what: "upgrade".into(),
            target: wanted.into(),
            ..v1::ShowRequest::default()
        };
        life.runtime.block_on(life.backend.show(request))
    };
    for (wanted, reason) in [
        (
            "0.4.0",
            "it has Kubernetes v1.38.0, and this cluster has v1.36.4; no minor version can be skipped",
        ),
        ("1.38.0", "upgrade to the one after 1.36 first"),
        ("0.2.0", "Kubernetes v1.36.3 is older than v1.36.4"),
        (
            "0.5.0",
            "it was built at 2025-03-01T00:00:00Z, before the bundle in use (0.3.0",
        ),
        ("0.9.0", "has no bundle 0.9.0"),
        ("1.36.4", "several bundles"),
    ] {
        let refused = show(wanted).unwrap_err();
        assert!(refused.message.contains(reason), "{wanted}: {refused}");
    }
    // The job itself checks this too, for every caller.
    let (code, said) = upgrade(&life, "0.2.0", false);
    assert_eq!(code, 1);
    assert!(said.contains("older than v1.36.4"), "{said}");
    assert!(first.journal.lock().unwrap().received.is_empty());
    // The same Kubernetes, with other content.
    let plan = show("0.6.0").unwrap();
    let plan: halite_api::UpgradePlan = halite_api::from_text(&plan.json).unwrap();
    assert_eq!(plan.hosts, ["bootstrap-1", "worker-1"]);
    let cluster = site.path().join("etc/cluster.yaml");
    let text = fs::read_to_string(&cluster).unwrap();
    put(&site, "0.7.0", "v1.36.5", "2026-03-01");
    fs::write(
        &cluster,
        text.replace("{version: \"1.36\"}", "{version: \"1.36.4\"}"),
    )
    .unwrap();
    let refused = show("0.7.0").unwrap_err();
    assert!(
        refused.message.contains("declare 1.36, which allows"),
        "{refused}"
    );
    life.kill();
}

#[test]
fn a_record_outlives_the_master_between_job_and_record() {
    let site = site("0.2.0", "v1.36.3");
    let life = site.live();
    let (_first, _worker) = connected(&life);
    let declarations = life.backend.jobs().declarations();
    let version = "0.3.0".parse().unwrap();
    life.runtime.block_on(async {
        // As often as a resumed run may repeat it.
        for _ in 0..2 {
            let name = minion("bootstrap-1");
            declarations.record_release(&name, &version).await.unwrap();
        }
        let snapshot = declarations.load().await.unwrap();
        assert_eq!(snapshot.bundle().unwrap().version, "0.2.0");
        for _ in 0..2 {
            declarations
                .record_release(&MASTER, &version)
                .await
                .unwrap();
        }
        let snapshot = declarations.load().await.unwrap();
        assert_eq!(snapshot.bundle().unwrap().version, "0.3.0");
        let worker = snapshot.bundle_for(&minion("worker-1")).unwrap();
        assert_eq!(worker.version, "0.2.0");
    });
    life.kill();
}
