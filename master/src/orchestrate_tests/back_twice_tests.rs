//! Returns after two upgrades that have not ended.

use halite_proto::v1;
use halite_states::shipped::UPGRADE;
use serde_json::{Value, json};

use super::back_tests::{
    back, change, connected, documents, fails, half, last_highstate, put_bundle, succeeds, turns,
    way_back,
};
use super::fixture::{orchestrate, request};
use super::upgrade_fixture::{NEXT, OLD, options, site, upgrade};
use crate::backend::fixture::{Life, Site};

/// The bundle after the next one.
const OTHER: &str = "0.4.0";

/// An upgrade to the bundle after the next one, without a plan.
fn other() -> v1::OrchestrateRequest {
    let pillar = json!({"bundle": OTHER, "batch": "25%", "backup": false});
    request(UPGRADE, &pillar)
}

fn third() -> Site {
    let site = site();
    put_bundle(&site, OTHER, "objects:\n  test.nop: []\n");
    site
}

/// An upgrade that pauses as that of [`half`] does, without a plan.
fn half_of(life: &Life, bundle: &str, drain: &Value) {
    let pillar = json!({"bundle": bundle, "batch": "25%", "backup": false, "drain": drain, "pause_after": "control-plane"});
    let (code, said) = orchestrate(life, request(UPGRADE, &pillar));
    assert_eq!(code, 0, "{said}");
}

#[test]
fn an_upgrade_that_changed_no_host_does_not_hide_the_one_before_it() {
    let site = third();
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
    let site = third();
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
    let site = third();
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
    let site = third();
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
