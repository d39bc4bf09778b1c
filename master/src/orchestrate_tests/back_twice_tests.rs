//! Returns after two upgrades that have not ended.

use std::fs;

use halite_proto::v1;
use halite_states::shipped::UPGRADE;
use serde_json::{Value, json};

use super::back_tests::{
    back, change, connected, documents, fails, half, last_highstate, put_bundle, succeeds, turns,
    use_bundle, way_back,
};
use super::fixture::{orchestrate, request};
use super::upgrade_fixture::{NEXT, OLD, SERVERS, options, site, upgrade};
use crate::backend::fixture::{Life, ScriptedMinion, Site};

/// The bundle after the next one, and the one after that.
pub(super) const OTHER: &str = "0.4.0";
pub(super) const LAST: &str = "0.5.0";

/// An upgrade to the bundle after the next one, without a plan.
fn other() -> v1::OrchestrateRequest {
    let pillar = json!({"bundle": OTHER, "batch": "25%", "backup": false});
    request(UPGRADE, &pillar)
}

/// A site with all four bundles.
pub(super) fn with_more() -> Site {
    let site = site();
    for bundle in [OTHER, LAST] {
        put_bundle(&site, bundle, "objects:\n  test.nop: []\n");
    }
    site
}

/// An upgrade to the next bundle that fails behind its last host, and is repeated.
pub(super) fn fails_at_its_end(life: &Life, worker: &ScriptedMinion) {
    fails(worker, SERVERS);
    let (code, said) = orchestrate(life, upgrade(life, &options()));
    assert_eq!(code, 1, "{said}");
    assert_eq!(last_highstate(worker), Some(format!("from-{NEXT}")));
    succeeds(worker);
    let (code, said) = orchestrate(life, upgrade(life, &options()));
    assert_eq!(code, 0, "{said}");
}

/// An upgrade that pauses as that of [`half`] does, without a plan.
fn half_of(life: &Life, bundle: &str, drain: &Value) {
    let pillar = json!({"bundle": bundle, "batch": "25%", "backup": false, "drain": drain, "pause_after": "control-plane"});
    let (code, said) = orchestrate(life, request(UPGRADE, &pillar));
    assert_eq!(code, 0, "{said}");
}

#[test]
fn an_upgrade_that_changed_no_host_does_not_hide_the_one_before_it() {
    let site = with_more();
    let life = site.live();
    let (first, worker) = connected(&life);
    half(&life);
    fails(&worker, "stub");
    let (code, said) = orchestrate(&life, other());
    assert_eq!(code, 1, "{said}");
    let plan = way_back(&life).unwrap();
    assert_eq!(
        (plan.bundle.as_str(), plan.before.bundle.as_str()),
        (OLD, NEXT)
    );
    assert_eq!(turns(&plan), ["master", "bootstrap-1"]);
    succeeds(&worker);
    let (code, said) = orchestrate(&life, back(&plan));
    assert_eq!(code, 0, "{said}");
    assert_eq!(last_highstate(&first), Some(format!("from-{OLD}")));
    life.kill();
}

#[test]
fn hosts_of_an_earlier_upgrade_return_with_those_of_the_last_one() {
    let site = with_more();
    let life = site.live();
    let (first, worker) = connected(&life);
    fails(&worker, &format!("from-{NEXT}"));
    let (code, said) = orchestrate(&life, upgrade(&life, &options()));
    assert_eq!(code, 1, "{said}");
    fails(&first, &format!("from-{OTHER}"));
    let (code, said) = orchestrate(&life, other());
    assert_eq!(code, 1, "{said}");
    // The objects have the next bundle already, so that is the previous one of the last upgrade.
    let plan = way_back(&life).unwrap();
    assert_eq!(
        (plan.before.bundle.as_str(), plan.bundle.as_str()),
        (OTHER, NEXT)
    );
    assert_eq!(plan.begun, ["bootstrap-1"]);
    assert_eq!(plan.hosts, ["bootstrap-1", "worker-1"]);
    life.kill();
}

#[test]
fn hosts_return_to_the_bundle_between_two_paused_upgrades() {
    let site = with_more();
    let life = site.live();
    let (first, worker) = connected(&life);
    half(&life);
    half_of(&life, OTHER, &Value::Null);
    assert!(!documents(&site).contains(NEXT), "no host has it any more");
    let plan = way_back(&life).unwrap();
    assert_eq!(
        (plan.before.bundle.as_str(), plan.bundle.as_str()),
        (OTHER, NEXT)
    );
    assert_eq!(turns(&plan), ["worker-1", "master", "bootstrap-1"]);
    // It also continues after a stop, when the objects have returned.
    fails(&first, &format!("from-{NEXT}"));
    let (code, said) = orchestrate(&life, back(&plan));
    assert_eq!(code, 1, "{said}");
    succeeds(&first);
    let plan = way_back(&life).unwrap();
    assert_eq!(turns(&plan), ["bootstrap-1"]);
    let (code, said) = orchestrate(&life, back(&plan));
    assert_eq!(code, 0, "{said}");
    for host in [&first, &worker] {
        assert_eq!(last_highstate(host), Some(format!("from-{NEXT}")));
    }
    let recorded = documents(&site);
    assert!(
        !recorded.contains(OTHER) && recorded.matches(NEXT).count() == 1,
        "{recorded}"
    );
    life.kill();
}

#[test]
fn a_worker_with_an_earlier_minor_version_does_not_keep_the_others_from_their_return() {
    let site = with_more();
    for bundle in [NEXT, OTHER] {
        change(&site, bundle, "v1.36.3", "v1.37.0");
    }
    let life = site.live();
    connected(&life);
    for bundle in [NEXT, OTHER] {
        half_of(&life, bundle, &json!({"timeout": 60}));
    }
    let plan = way_back(&life).unwrap();
    assert_eq!(
        (plan.before.bundle.as_str(), plan.bundle.as_str()),
        (OTHER, NEXT)
    );
    life.kill();
}

#[test]
fn an_upgrade_that_was_completed_without_a_change_has_ended() {
    let site = with_more();
    let life = site.live();
    let (_, worker) = connected(&life);
    fails_at_its_end(&life, &worker);
    use_bundle(&site, OTHER);
    half_of(&life, LAST, &Value::Null);
    let plan = way_back(&life).unwrap();
    assert_eq!(
        (plan.before.bundle.as_str(), plan.bundle.as_str()),
        (LAST, OTHER)
    );
    life.kill();
}

/// The record of the upgrade before it stays open, because it has left a host out.
#[test]
fn hosts_return_to_a_newer_bundle_that_was_used_since_the_recorded_one() {
    let site = with_more();
    for (bundle, built) in [(OTHER, "2026-02-01"), (LAST, "2026-03-01")] {
        change(&site, bundle, "2026-01-01", built);
    }
    let life = site.live();
    let (first, _) = connected(&life);
    life.kill();
    let life = site.live();
    life.reconnect(&first);
    orchestrate(&life, upgrade(&life, &options()));
    assert_eq!(last_highstate(&first), Some(format!("from-{NEXT}")));
    use_bundle(&site, OTHER);
    half_of(&life, LAST, &Value::Null);
    let plan = way_back(&life).unwrap();
    assert_eq!(
        (plan.before.bundle.as_str(), plan.bundle.as_str()),
        (LAST, OTHER)
    );
    life.kill();
}

#[test]
fn a_removed_host_does_not_need_the_bundle_that_it_had_begun_to_get() {
    let site = with_more();
    let life = site.live();
    let (first, worker) = connected(&life);
    fails(&worker, &format!("from-{NEXT}"));
    orchestrate(&life, upgrade(&life, &options()));
    life.kill();
    // The others return without the worker, which is then removed, and the bundle with it.
    let life = site.live();
    life.reconnect(&first);
    let (code, said) = orchestrate(&life, back(&way_back(&life).unwrap()));
    assert_eq!(code, 0, "{said}");
    life.kill();
    fs::remove_file(site.path().join("etc/nodes/worker-1.yaml")).unwrap();
    fs::remove_dir_all(site.path().join("bundles").join(NEXT)).unwrap();
    let life = site.live();
    life.reconnect(&first);
    fails(&first, &format!("from-{OTHER}"));
    let (code, said) = orchestrate(&life, other());
    assert_eq!(code, 1, "{said}");
    let plan = way_back(&life).unwrap();
    assert_eq!(
        (plan.before.bundle.as_str(), plan.bundle.as_str()),
        (OTHER, OLD)
    );
    assert_eq!(plan.begun, ["bootstrap-1"]);
    life.kill();
}

#[test]
fn hosts_do_not_return_to_a_bundle_that_they_never_had() {
    let site = with_more();
    let life = site.live();
    connected(&life);
    half(&life);
    let pillar = json!({"bundle": OTHER, "batch": "25%", "backup": false, "back": true});
    let events = life.backend.orchestrate("root", request(UPGRADE, &pillar));
    let why = life.runtime.block_on(events).err().unwrap().message;
    assert!(why.contains("no run is recorded"), "{why}");
    life.kill();
}
