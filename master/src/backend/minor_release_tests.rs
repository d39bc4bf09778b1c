//! Upgrades to another minor version of Kubernetes: their order, and the declared version.

use std::fs;

use halite_proto::v1;
use serde_json::json;

use super::fixture::ScriptedMinion;
use super::release_tests::{connected, given, node, put, site, status, upgrade};

#[test]
fn an_upgrade_to_the_next_minor_version_changes_the_declared_one_with_the_objects() {
    let site = site("0.3.0", "v1.36.4");
    put(&site, "0.4.0", "v1.37.0", "2026-03-01");
    put(&site, "0.5.0", "v1.37.1", "2026-04-01");
    put(&site, "0.6.0", "v1.38.0", "2026-05-01");
    put(&site, "0.7.0", "v1.36.5", "2026-06-01");
    let life = site.live();
    let (first, worker) = connected(&life);
    let declared = || fs::read_to_string(site.path().join("etc/cluster.yaml")).unwrap();
    let before = declared();
    let (code, said) = upgrade(&life, "0.4.0", true);
    assert_eq!(code, 0, "{said}");
    assert_eq!(declared(), before, "a test records nothing");

    // The first host fails: it stays in its version, and so does the cluster.
    let failing = |host: &ScriptedMinion, id: &str| {
        host.journal.lock().unwrap().failing.insert(id.to_owned());
    };
    failing(&first, "from-0.4.0");
    let (code, said) = upgrade(&life, "0.4.0", false);
    assert_eq!(code, 1, "{said}");
    assert_eq!(declared(), before);

    // The worker fails: the API server and the objects have the next version.
    first.journal.lock().unwrap().failing.clear();
    failing(&worker, "from-0.4.0");
    let (code, said) = upgrade(&life, "0.4.0", false);
    assert_eq!(code, 1, "{said}");
    let between = declared();
    assert!(
        between.contains("{version: \"1.37\"}")
            && between.ends_with("resolved:\n  kubernetes: v1.37.0\n  bundle: \"0.4.0\"\n"),
        "{between}"
    );
    let behind = node(&site, "worker-1");
    assert!(
        behind.contains("  bundle: \"0.3.0\"\n  kubernetes: v1.36.4\n"),
        "{behind}"
    );
    life.run("state.highstate", "*", json!({}), false);
    assert_eq!(given(&first)[..2], ["from-0.4.0", "v1.37.0"]);
    assert_eq!(given(&worker)[..2], ["from-0.3.0", "v1.36.4"]);

    // From there it continues, also with a later patch release, and leads to no other version.
    let refused = |wanted: &str| {
        let request = v1::ShowRequest {
            what: "upgrade".into(),
            target: wanted.into(),
            ..v1::ShowRequest::default()
        };
        let shown = life.runtime.block_on(life.backend.show(request));
        shown.err().map(|refusal| refusal.message)
    };
    let skipped = refused("0.6.0").unwrap();
    assert!(
        skipped.contains("worker-1 still has v1.36.4")
            && skipped.contains("finish the upgrade to 1.37 first"),
        "{skipped}"
    );
    let older = refused("0.7.0").unwrap();
    assert!(older.contains("is older than v1.37.0"), "{older}");
    assert_eq!(refused("0.5.0"), None);
    worker.journal.lock().unwrap().failing.clear();
    let (code, said) = upgrade(&life, "0.5.0", false);
    assert_eq!(code, 0, "{said}");
    assert_eq!(given(&worker)[..2], ["from-0.5.0", "v1.37.1"]);
    assert!(!node(&site, "worker-1").contains("bundle:"));
    assert!(declared().contains("{version: \"1.37\"}"));
    assert_eq!(status(&life)["problems"], json!([]));
    // Now all hosts have one minor version, and the next one follows.
    assert_eq!(refused("0.6.0"), None);
    life.kill();
}

#[test]
fn a_host_gets_no_minor_version_before_those_that_must_have_it_first() {
    let site = site("0.3.0", "v1.36.4");
    put(&site, "0.4.0", "v1.37.0", "2026-03-01");
    let step = |id: &str, target: &str| {
        format!(
            "{id}:\n  halite.state:\n    - tgt: {target}\n    - highstate: True\n    - bundle: 0.4.0\n"
        )
    };
    let custom = site.path().join("etc/custom");
    fs::create_dir_all(&custom).unwrap();
    fs::write(custom.join("workers.sls"), step("workers", "worker-1")).unwrap();
    fs::write(custom.join("objects.sls"), step("objects", "master")).unwrap();
    let life = site.live();
    let (_first, worker) = connected(&life);
    for (sls, reason) in [
        (
            "custom.workers",
            "newer than the API server of bootstrap-1 (v1.36.4)",
        ),
        ("custom.objects", "this API server has Kubernetes v1.36.4"),
    ] {
        let request = v1::OrchestrateRequest {
            sls: sls.into(),
            ..Default::default()
        };
        let stream = life.backend.orchestrate("root", request);
        let events = life.collect(life.runtime.block_on(stream).unwrap());
        let last = events.last().unwrap();
        assert!(
            last.retcode == 1 && last.data_json.contains(reason),
            "{sls}: {}",
            last.data_json
        );
    }
    assert!(worker.journal.lock().unwrap().received.is_empty());
    life.kill();
}

#[test]
fn a_declared_version_that_cannot_be_changed_is_refused_before_any_host_changes() {
    let site = site("0.3.0", "v1.36.4");
    put(&site, "0.4.0", "v1.37.0", "2026-03-01");
    let cluster = site.path().join("etc/cluster.yaml");
    let text = fs::read_to_string(&cluster).unwrap();
    let life = site.live();
    let (first, _worker) = connected(&life);
    for (declared, reason) in [
        ("{version: \"1.36.4\"}", "declare 1.36, which allows"),
        (
            "\n  version: >-\n    1.36",
            "cannot change `kubernetes.version`",
        ),
    ] {
        let changed = text.replace("{version: \"1.36\"}", declared);
        assert_ne!(changed, text);
        fs::write(&cluster, changed).unwrap();
        let (code, said) = upgrade(&life, "0.4.0", false);
        assert_eq!(code, 1);
        assert!(said.contains(reason), "{declared}: {said}");
    }
    assert!(first.journal.lock().unwrap().received.is_empty());
    life.kill();
}
