//! Hosts of an upgrade that has not ended return to the previous bundle, and what leads back if
//! they cannot.

use std::fs;

use halite_api::{UpgradePlan, UpgradeSeverity, UpgradeState, from_text};
use halite_core::refusal::Refusal;
use halite_proto::v1;
use halite_states::shipped::UPGRADE;
use serde_json::{Value, json};

use super::fixture::{applied, newest_run, orchestrate, request, resumed};
use super::upgrade_fixture::{
    Held, NEXT, OLD, options, plan, problems, progress, site, tree, upgrade,
};
use crate::backend::fixture::{Life, ScriptedMinion, Site};

pub(super) fn connected(life: &Life) -> (ScriptedMinion, ScriptedMinion) {
    let (first, worker) = (
        ScriptedMinion::new("bootstrap-1"),
        ScriptedMinion::new("worker-1"),
    );
    life.connect(&first);
    life.connect(&worker);
    (first, worker)
}

pub(super) fn fails(minion: &ScriptedMinion, state: &str) {
    let failing = &mut minion.journal.lock().unwrap().failing;
    failing.insert(state.to_owned());
}

/// The state of the last highstate that a minion has applied.
pub(super) fn last_highstate(minion: &ScriptedMinion) -> Option<String> {
    let mut all = applied(minion).into_iter();
    all.rfind(|id| id.starts_with("from-"))
}

/// The plan of the return, as `ctl upgrade back` gets it.
pub(super) fn way_back(life: &Life) -> Result<UpgradePlan, Refusal> {
    let request = v1::ShowRequest {
        what: "upgrade-back".into(),
        pillar_json: json!({"bundle": "", "batch": "25%", "backup": false}).to_string(),
        ..v1::ShowRequest::default()
    };
    let shown = life.runtime.block_on(life.backend.show(request));
    shown.map(|shown| from_text(&shown.json).unwrap())
}

fn refused(life: &Life) -> String {
    way_back(life).unwrap_err().message
}

/// The request of the return, as `ctl upgrade back` makes it.
pub(super) fn back(plan: &UpgradePlan) -> v1::OrchestrateRequest {
    let pillar = json!({"bundle": plan.bundle, "batch": "25%", "backup": false, "back": true,
        "plan": {"id": plan.id, "planned_by": plan.planned_by, "states": plan.states, "begun": plan.begun}});
    request(UPGRADE, &pillar)
}

pub(super) fn turns(plan: &UpgradePlan) -> Vec<&str> {
    let hosts = plan.turns.iter().flat_map(|turn| &turn.hosts);
    hosts.map(|host| host.as_str()).collect()
}

const DOCUMENTS: [&str; 3] = [
    "cluster.yaml",
    "nodes/bootstrap-1.yaml",
    "nodes/worker-1.yaml",
];

pub(super) fn documents(site: &Site) -> String {
    let read = |path: &str| fs::read_to_string(site.path().join("etc").join(path)).unwrap();
    DOCUMENTS.map(read).concat()
}

/// Records this bundle for the objects and each host, as `ctl bundle use` does.
pub(super) fn use_bundle(site: &Site, bundle: &str) {
    for path in DOCUMENTS {
        let path = site.path().join("etc").join(path);
        let text = fs::read_to_string(&path).unwrap();
        let text = text.replace(OLD, bundle).replace(NEXT, bundle);
        fs::write(&path, text).unwrap();
    }
}

/// Changes the manifest of a bundle before it is read.
pub(super) fn change(site: &Site, bundle: &str, from: &str, to: &str) {
    let path = site.path().join(format!("bundles/{bundle}/manifest.json"));
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{text}");
    let text = text.replace(from, to);
    fs::write(&path, &text).unwrap();
    let digest = halite_proto::pki::sha256_hex(text.as_bytes());
    fs::write(
        path.with_file_name("manifest.json.sha256"),
        format!("{digest}  manifest.json\n"),
    )
    .unwrap();
}

/// An upgrade that pauses when the first host and the objects have the bundle.
pub(super) fn half(life: &Life) {
    let mut options = options();
    options["pause_after"] = json!("control-plane");
    let (code, said) = orchestrate(life, upgrade(life, &options));
    assert_eq!(code, 0, "{said}");
}

#[test]
fn a_paused_upgrade_leads_back_in_the_reverse_order() {
    let site = site();
    let life = site.live();
    let (first, worker) = connected(&life);
    half(&life);
    let plan = way_back(&life).unwrap();
    assert!(plan.back);
    assert_eq!(
        (plan.bundle.as_str(), plan.before.bundle.as_str()),
        (OLD, NEXT)
    );
    assert_eq!(plan.hosts, ["bootstrap-1"]);
    assert_eq!(turns(&plan), ["master", "bootstrap-1"]);
    let (code, said) = orchestrate(&life, back(&plan));
    assert_eq!(code, 0, "{said}");
    assert_eq!(last_highstate(&first), Some(format!("from-{OLD}")));
    assert_eq!(last_highstate(&worker), None, "it had no need to change");
    let recorded = documents(&site);
    assert!(
        !recorded.contains(NEXT) && recorded.matches(OLD).count() == 1,
        "{recorded}"
    );
    let status = progress(&life);
    assert!(status.back);
    assert_eq!(
        (status.state, status.bundle.as_deref()),
        (UpgradeState::Done, Some(OLD))
    );
    // Nothing is left to return, and the upgrade can start again.
    let why = refused(&life);
    assert!(
        why.contains("no host has begun") && why.contains("ctl bundle remove"),
        "{why}"
    );
    let (code, said) = orchestrate(&life, upgrade(&life, &options()));
    assert_eq!(code, 0, "{said}");
    assert_eq!(last_highstate(&worker), Some(format!("from-{NEXT}")));
    let why = refused(&life);
    assert!(
        why.contains("so the upgrade has ended") && why.contains("only a restored backup"),
        "{why}"
    );
    life.kill();
}

#[test]
fn a_host_that_an_upgrade_has_begun_to_change_returns_too() {
    let site = site();
    let life = site.live();
    let (first, worker) = connected(&life);
    fails(&worker, &format!("from-{NEXT}"));
    let (code, said) = orchestrate(&life, upgrade(&life, &options()));
    assert_eq!(code, 1, "{said}");
    let plan = way_back(&life).unwrap();
    assert_eq!(plan.begun, ["worker-1"]);
    assert_eq!(plan.hosts, ["bootstrap-1", "worker-1"]);
    assert_eq!(turns(&plan), ["worker-1", "master", "bootstrap-1"]);
    let (code, said) = orchestrate(&life, back(&plan));
    assert_eq!(code, 0, "{said}");
    for host in [&first, &worker] {
        assert_eq!(last_highstate(host), Some(format!("from-{OLD}")));
    }
    assert!(refused(&life).contains("no host has begun"));
    life.kill();
}

#[test]
fn the_first_host_returns_although_no_document_records_the_next_bundle() {
    let site = site();
    let life = site.live();
    let (first, _) = connected(&life);
    fails(&first, &format!("from-{NEXT}"));
    orchestrate(&life, upgrade(&life, &options()));
    assert!(!documents(&site).contains(NEXT));
    let plan = way_back(&life).unwrap();
    assert_eq!(plan.begun, ["bootstrap-1"]);
    assert_eq!(turns(&plan), ["bootstrap-1"]);
    let (code, said) = orchestrate(&life, back(&plan));
    assert_eq!(code, 0, "{said}");
    assert_eq!(last_highstate(&first), Some(format!("from-{OLD}")));
    life.kill();
}

#[test]
fn a_return_that_stops_continues_and_outlives_the_master() {
    let site = site();
    let life = site.live();
    let (first, _) = connected(&life);
    half(&life);
    let forward = "`ctl upgrade` with the newer of the two continues it";
    assert!(problems(&life).contains(forward));
    fails(&first, &format!("from-{OLD}"));
    let plan = way_back(&life).unwrap();
    let (code, said) = orchestrate(&life, back(&plan));
    assert_eq!(code, 1, "{said}");
    let problems = problems(&life);
    let continues = "`ctl upgrade back` continues its return";
    assert!(
        problems.contains(continues) && !problems.contains(forward),
        "{problems}"
    );
    let status = progress(&life);
    assert_eq!((status.state, status.back), (UpgradeState::Stopped, true));
    assert!(status.options.unwrap().back);
    life.kill();
    let life = site.live();
    first.journal.lock().unwrap().failing.clear();
    life.reconnect(&first);
    let plan = way_back(&life).unwrap();
    assert_eq!(turns(&plan), ["bootstrap-1"], "the objects have returned");
    let (code, said) = orchestrate(&life, back(&plan));
    assert_eq!(code, 0, "{said}");
    assert_eq!(last_highstate(&first), Some(format!("from-{OLD}")));
    life.kill();
}

#[test]
fn another_minor_version_leads_back_only_by_a_backup_which_is_named() {
    let site = site();
    change(&site, NEXT, "v1.36.3", "v1.37.0");
    // Not below /tmp, where no backups may be.
    let backups = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::write(
        backups.path().join("test-20200101T000000Z.halite-backup"),
        "",
    )
    .unwrap();
    let path = site.path().join("etc/cluster.yaml");
    let text = fs::read_to_string(&path).unwrap();
    let directory = format!("backup: {{directory: {}, ", backups.path().display());
    fs::write(&path, text.replace("backup: {", &directory)).unwrap();
    let life = site.live();
    let (first, _) = connected(&life);
    fails(&first, &format!("from-{NEXT}"));
    let mut options = options();
    options["drain"] = json!({"timeout": 60});
    let (code, said) = orchestrate(&life, upgrade(&life, &options));
    assert_eq!(code, 1, "{said}");
    let why = refused(&life);
    for part in [
        "the API server of bootstrap-1 has got Kubernetes v1.37.0",
        "cannot be downgraded to another minor version",
        "test-20200101T000000Z.halite-backup",
        "days old",
        "since 2020-01-01T00:00:00.000Z would be lost",
    ] {
        assert!(why.contains(part), "{part:?}: {why}");
    }
    life.kill();
}

#[test]
fn another_minor_version_of_etcd_or_another_master_does_not_lead_back() {
    let with_etcd = |site: &Site| change(site, NEXT, "3.6.8-0", "3.7.0-0");
    let with_program = |site: &Site| {
        for (bundle, digit) in [(OLD, "1"), (NEXT, "2")] {
            let digest = digit.repeat(64);
            let files = format!(
                "\"files\":{{\"bin/halite-master\":{{\"sha256\":\"{digest}\",\"size\":1}},"
            );
            change(site, bundle, "\"files\":{", &files);
        }
    };
    let changes: [&dyn Fn(&Site); 2] = [&with_etcd, &with_program];
    let reasons = ["etcd cannot be downgraded", "another halite-master"];
    for (change, reason) in changes.into_iter().zip(reasons) {
        let site = site();
        change(&site);
        let life = site.live();
        connected(&life);
        half(&life);
        let why = refused(&life);
        assert!(
            why.contains(reason) && why.contains("only a restored backup"),
            "{why}"
        );
        // The steps refuse it too.
        let pillar = json!({"bundle": OLD, "batch": "1", "back": true});
        let (code, said) = orchestrate(&life, request(UPGRADE, &pillar));
        assert_eq!(code, 1);
        assert!(said.contains(reason), "{said}");
        life.kill();
    }
}

#[test]
fn an_upgrade_that_runs_is_paused_before_it_leads_back() {
    let site = site();
    let life = site.live();
    let held = Held::new();
    life.connect(&held.minion);
    life.connect(&ScriptedMinion::new("worker-1"));
    assert!(refused(&life).contains("no upgrade is recorded"));
    let events = life.backend.orchestrate("root", upgrade(&life, &options()));
    drop(life.runtime.block_on(events).unwrap());
    held.wait();
    let run = newest_run(&life);
    let why = refused(&life);
    assert!(
        why.contains(&format!("the upgrade is running ({})", run.id))
            && why.contains("ctl upgrade pause"),
        "{why}"
    );
    held.release();
    resumed(&life, &run);
    life.kill();
}

#[test]
fn an_older_bundle_is_refused_unless_the_upgrade_leads_back() {
    let site = site();
    change(&site, NEXT, "v1.36.3", "v1.36.4");
    let life = site.live();
    connected(&life);
    half(&life);
    let pillar: Value = json!({"bundle": OLD, "batch": "1"});
    let (code, said) = orchestrate(&life, request(UPGRADE, &pillar));
    assert_eq!(code, 1);
    assert!(said.contains("Kubernetes cannot be downgraded"), "{said}");
    life.kill();
}

/// A bundle of the site with another state of the objects.
pub(super) fn put_bundle(site: &Site, version: &'static str, objects: &'static str) {
    let mut tree = tree(version);
    for (path, text) in &mut tree {
        if *path == "objects.sls" {
            objects.clone_into(text);
        }
    }
    let tree: Vec<(&str, &str)> = tree
        .iter()
        .map(|(path, text)| (*path, text.as_str()))
        .collect();
    site.bundle(&format!("bundles/{version}"), version, &tree);
}

pub(super) fn succeeds(minion: &ScriptedMinion) {
    minion.journal.lock().unwrap().failing.clear();
}

#[test]
fn the_objects_return_if_the_upgrade_has_stopped_at_them() {
    let site = site();
    put_bundle(&site, NEXT, "objects:\n  test.fail_without_changes: []\n");
    let life = site.live();
    connected(&life);
    let (code, said) = orchestrate(&life, upgrade(&life, &options()));
    assert_eq!(code, 1, "{said}");
    let plan = way_back(&life).unwrap();
    assert_eq!(plan.begun, ["master"]);
    assert_eq!(turns(&plan), ["master", "bootstrap-1"]);
    let (code, said) = orchestrate(&life, back(&plan));
    assert_eq!(code, 0, "{said}");
    assert!(refused(&life).contains("no host has begun"));
    life.kill();
}

#[test]
fn an_upgrade_completes_a_host_at_which_a_return_has_stopped() {
    let site = site();
    let life = site.live();
    let (first, worker) = connected(&life);
    half(&life);
    assert!(plan(&life, &options()).begun.is_empty());
    fails(&first, &format!("from-{OLD}"));
    let (code, said) = orchestrate(&life, back(&way_back(&life).unwrap()));
    assert_eq!(code, 1, "{said}");
    succeeds(&first);
    let forward = plan(&life, &options());
    assert_eq!(forward.begun, ["bootstrap-1"]);
    assert_eq!(turns(&forward), ["bootstrap-1", "master", "worker-1"]);
    let before = applied(&first).len();
    let pillar = json!({"bundle": NEXT, "batch": "25%", "backup": false,
        "plan": {"id": forward.id, "planned_by": forward.planned_by, "states": forward.states, "begun": forward.begun}});
    let (code, said) = orchestrate(&life, request(UPGRADE, &pillar));
    assert_eq!(code, 0, "{said}");
    assert!(applied(&first)[before..].contains(&format!("from-{NEXT}")));
    assert_eq!(last_highstate(&worker), Some(format!("from-{NEXT}")));
    assert!(plan(&life, &options()).begun.is_empty());
    life.kill();
}

#[test]
fn a_disconnected_host_that_must_return_is_found_before_any_host_returns() {
    let site = site();
    let life = site.live();
    connected(&life);
    half(&life);
    life.kill();
    let life = site.live();
    let plan = way_back(&life).unwrap();
    let found = plan
        .findings
        .iter()
        .find(|finding| finding.host.as_deref() == Some("bootstrap-1"))
        .unwrap();
    assert_eq!(found.severity, UpgradeSeverity::Error);
    assert!(found.message.contains("before any host returns"));
    life.kill();
}

#[test]
fn a_host_that_a_return_has_left_out_returns_later() {
    let site = site();
    let life = site.live();
    let (first, worker) = connected(&life);
    fails(&worker, &format!("from-{NEXT}"));
    orchestrate(&life, upgrade(&life, &options()));
    life.kill();
    let life = site.live();
    life.reconnect(&first);
    let (code, said) = orchestrate(&life, back(&way_back(&life).unwrap()));
    assert_eq!(code, 0, "{said}");
    let plan = way_back(&life).unwrap();
    assert_eq!(plan.begun, ["worker-1"]);
    assert_eq!(turns(&plan), ["worker-1"], "the others have returned");
    life.reconnect(&worker);
    let (code, said) = orchestrate(&life, back(&plan));
    assert_eq!(code, 0, "{said}");
    assert_eq!(last_highstate(&worker), Some(format!("from-{OLD}")));
    assert!(refused(&life).contains("no host has begun"));
    life.kill();
}

#[test]
fn a_return_does_not_wait_for_an_upgrade_with_the_previous_steps() {
    let site = site();
    let life = site.live();
    let held = Held::new();
    life.connect(&held.minion);
    life.connect(&ScriptedMinion::new("worker-1"));
    let events = life.backend.orchestrate("root", upgrade(&life, &options()));
    drop(life.runtime.block_on(events).unwrap());
    held.wait();
    let run = newest_run(&life);
    let pillar = json!({"bundle": OLD, "batch": "1", "back": true});
    let events = life.backend.orchestrate("root", request(UPGRADE, &pillar));
    let why = life.runtime.block_on(events).err().unwrap().message;
    assert!(
        why.contains(&format!("the upgrade is running ({})", run.id)),
        "{why}"
    );
    held.release();
    resumed(&life, &run);
    life.kill();
}
