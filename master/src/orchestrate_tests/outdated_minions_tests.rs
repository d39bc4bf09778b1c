//! Minions that run another program than their host's bundle has, before an upgrade or a return.

use halite_api::{UpgradeCheck, UpgradeFinding, UpgradePlan, UpgradeSeverity};
use halite_host_reports::update::{GRAIN, PROGRAM};
use serde_json::{Value, json};

use super::back_tests::{change, connected, fails, use_bundle, way_back};
use super::back_twice_tests::{LAST, OTHER, fails_at_its_end, with_more};
use super::fixture::orchestrate;
use super::upgrade_fixture::{NEXT, OLD, options, plan, upgrade};
use crate::backend::fixture::{Life, ScriptedMinion, Site};

/// The digests of the minions of the bundles, and of another one.
pub(super) const OF_OLD: &str = "1";
pub(super) const OF_NEXT: &str = "2";
const OF_OTHER: &str = "3";
const OF_LAST: &str = "4";
pub(super) const ANOTHER: &str = "5";

/// A site whose bundles have a minion each.
pub(super) fn with_minions() -> Site {
    let site = with_more();
    let programs = [
        (OLD, OF_OLD),
        (NEXT, OF_NEXT),
        (OTHER, OF_OTHER),
        (LAST, OF_LAST),
    ];
    for (bundle, program) in programs {
        let files = format!(
            "\"files\":{{\"bin/halite-minion\":{{\"sha256\":\"{}\",\"size\":1}},",
            program.repeat(64)
        );
        change(&site, bundle, "\"files\":{", &files);
    }
    site
}

/// Stores the program that a minion reports when it connects.
pub(super) fn runs(life: &Life, minion: &ScriptedMinion, program: &str) {
    reports(life, minion, PROGRAM, json!(program.repeat(64)));
}

/// Stores a grain that a minion reports when it connects.
fn reports(life: &Life, minion: &ScriptedMinion, grain: &str, value: Value) {
    let facts = life.runtime.block_on(life.store.facts(&minion.id));
    let mut facts = facts.unwrap().unwrap();
    let mut grains: Value = serde_json::from_str(&facts.grains_json).unwrap();
    grains[grain] = value;
    facts.grains_json = grains.to_string();
    life.runtime.block_on(life.store.put_facts(&facts)).unwrap();
}

pub(super) fn found(plan: &UpgradePlan) -> Vec<&UpgradeFinding> {
    let own = plan.findings.iter();
    own.filter(|finding| finding.check == UpgradeCheck::Minions)
        .collect()
}

#[test]
fn an_outdated_minion_keeps_an_upgrade_from_its_start() {
    let site = with_minions();
    let life = site.live();
    let (first, worker) = connected(&life);
    // The next bundle was used, and bootstrap has updated its own host.
    runs(&life, &first, OF_OLD);
    runs(&life, &worker, ANOTHER);
    let shown = plan(&life, &options());
    let outdated = found(&shown);
    assert_eq!(outdated.len(), 1, "{outdated:?}");
    let finding = outdated[0];
    assert_eq!(finding.severity, UpgradeSeverity::Error);
    assert_eq!(finding.host.as_deref(), Some("worker-1"));
    assert!(
        finding
            .remedy
            .starts_with("`ctl highstate worker-1` updates it")
    );
    // A resumed run makes no plan, so the plan also has the hosts behind its pause.
    let mut paused = options();
    paused["pause_after"] = json!("control-plane");
    assert_eq!(found(&plan(&life, &paused)).len(), 1);
    // The highstate updates it.
    runs(&life, &worker, OF_OLD);
    assert!(found(&plan(&life, &options())).is_empty());
    life.kill();
}

#[test]
fn the_minion_of_a_bundle_that_a_run_has_begun_to_give_is_not_outdated() {
    let site = with_minions();
    let life = site.live();
    let (first, worker) = connected(&life);
    for host in [&first, &worker] {
        runs(&life, host, OF_OLD);
    }
    fails(&worker, &format!("from-{NEXT}"));
    let (code, said) = orchestrate(&life, upgrade(&life, &options()));
    assert_eq!(code, 1, "{said}");
    // Its highstate has failed, but has updated the minion.
    for host in [&first, &worker] {
        runs(&life, host, OF_NEXT);
    }
    let mut further = options();
    further["bundle"] = json!(OTHER);
    assert!(found(&plan(&life, &further)).is_empty());
    let back = way_back(&life).unwrap();
    assert_eq!(back.begun, ["worker-1"]);
    assert!(found(&back).is_empty());
    runs(&life, &worker, ANOTHER);
    assert_eq!(found(&way_back(&life).unwrap()).len(), 1);
    life.kill();
}

/// The bundle of the plan may have the repair.
#[test]
fn a_minion_whose_update_was_rolled_back_does_not_keep_an_upgrade_from_its_start() {
    let site = with_minions();
    let life = site.live();
    let (first, worker) = connected(&life);
    runs(&life, &first, OF_OLD);
    runs(&life, &worker, ANOTHER);
    for (program, severity) in [
        (OF_NEXT, UpgradeSeverity::Error),
        (OF_OLD, UpgradeSeverity::Warning),
    ] {
        let reverted =
            json!({"time": 1, "program": program.repeat(64), "seconds": 60, "unit": "failed"});
        reports(&life, &worker, GRAIN, reverted);
        let shown = plan(&life, &options());
        let outdated = found(&shown);
        assert_eq!(outdated.len(), 1, "{outdated:?}");
        assert_eq!(outdated[0].severity, severity);
    }
    life.kill();
}

#[test]
fn the_minion_of_a_bundle_from_before_an_upgrade_that_has_ended_is_outdated() {
    let site = with_minions();
    let life = site.live();
    let (first, worker) = connected(&life);
    for host in [&first, &worker] {
        runs(&life, host, OF_OLD);
    }
    fails_at_its_end(&life, &worker);
    use_bundle(&site, OTHER);
    // Bootstrap has updated its own host.
    runs(&life, &first, OF_OTHER);
    runs(&life, &worker, OF_NEXT);
    let mut further = options();
    further["bundle"] = json!(LAST);
    let shown = plan(&life, &further);
    let outdated = found(&shown);
    assert_eq!(outdated.len(), 1, "{outdated:?}");
    assert_eq!(outdated[0].host.as_deref(), Some("worker-1"));
    life.kill();
}
