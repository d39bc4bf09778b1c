//! Minions that run another program than their host's bundle has, before an upgrade or a return.

use halite_api::{UpgradeCheck, UpgradeFinding, UpgradePlan, UpgradeSeverity};
use halite_host_reports::update::PROGRAM;
use serde_json::{Value, json};

use super::back_tests::{change, connected, fails, way_back};
use super::fixture::orchestrate;
use super::upgrade_fixture::{NEXT, OLD, options, plan, site, upgrade};
use crate::backend::fixture::{Life, ScriptedMinion, Site};

/// The digests of the minions of the two bundles, and of another one.
const OF_OLD: &str = "1";
const OF_NEXT: &str = "2";
const ANOTHER: &str = "3";

/// A site whose bundles have a minion each.
fn with_minions() -> Site {
    let site = site();
    for (bundle, program) in [(OLD, OF_OLD), (NEXT, OF_NEXT)] {
        let files = format!(
            "\"files\":{{\"bin/halite-minion\":{{\"sha256\":\"{}\",\"size\":1}},",
            program.repeat(64)
        );
        change(&site, bundle, "\"files\":{", &files);
    }
    site
}

/// Stores the program that a minion reports when it connects.
fn runs(life: &Life, minion: &ScriptedMinion, program: &str) {
    let facts = life.runtime.block_on(life.store.facts(&minion.id));
    let mut facts = facts.unwrap().unwrap();
    let mut grains: Value = serde_json::from_str(&facts.grains_json).unwrap();
    grains[PROGRAM] = json!(program.repeat(64));
    facts.grains_json = grains.to_string();
    life.runtime.block_on(life.store.put_facts(&facts)).unwrap();
}

fn found(plan: &UpgradePlan) -> Vec<&UpgradeFinding> {
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
    assert_eq!(finding.remedy, "`ctl highstate worker-1` updates it");
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
    assert!(found(&plan(&life, &options())).is_empty());
    let back = way_back(&life).unwrap();
    assert_eq!(back.begun, ["worker-1"]);
    assert!(found(&back).is_empty());
    runs(&life, &worker, ANOTHER);
    assert_eq!(found(&way_back(&life).unwrap()).len(), 1);
    life.kill();
}
