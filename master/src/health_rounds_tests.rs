//! Rounds over a whole master.

use halite_core::app::App;
use halite_core::isolation::{AFTER, Surroundings};

use super::*;
use crate::backend::fixture::{Life, ScriptedMinion, Site};

const METRICS: &str = "master: {metrics: {from: [10.10.9.0/24]}}\n";

/// A site that declares metrics, and its documents.
fn site(extra: &str) -> Site {
    let site = Site::new(&[("top.sls", "base:\n  '*': []\n")]);
    let path = site.path().join("etc/cluster.yaml");
    let mut text = std::fs::read_to_string(&path).unwrap();
    text.push_str(extra);
    std::fs::write(path, text).unwrap();
    site
}

/// Lets the master find that it may act, or that it is isolated.
fn may_act(app: &App, may: bool) {
    let seen = Surroundings {
        standbys: 1,
        alone_since: (!may).then_some(0),
        accepted: 2,
        connected: 0,
    };
    let now = app.clock.steady();
    app.isolation.look(now, seen);
    app.isolation.look(now + AFTER, seen);
}

fn round(life: &Life, rounds: &HealthRounds) -> LatestHealth {
    life.runtime
        .block_on(rounds.round(LIMIT, rounds.inspect_if_needed()));
    rounds.subscribe().borrow().clone()
}

#[test]
fn rounds_run_only_while_the_document_needs_them_and_the_master_may_act() {
    let bare = site("");
    let life = bare.live();
    may_act(&life.app, true);
    let rounds = HealthRounds::new(Arc::clone(life.backend.jobs()));
    assert!(round(&life, &rounds).round.is_none());
    life.kill();

    let site = site(METRICS);
    let life = site.live();
    let rounds = HealthRounds::new(Arc::clone(life.backend.jobs()));
    may_act(&life.app, true);
    life.connect(&ScriptedMinion::new("worker-1"));
    let latest = round(&life, &rounds);
    let seen = latest.round.expect("a round");
    assert!(latest.stale.is_none());
    assert!(!seen.health().healthy, "bootstrap-1 has no pods");
    let minions: Vec<&str> = seen.inspection.minions.keys().map(|n| n.as_str()).collect();
    assert_eq!(minions, ["worker-1"]);
    // An isolated master may see only a part of the cluster.
    may_act(&life.app, false);
    assert!(round(&life, &rounds).round.is_none());
    life.kill();
}

#[test]
fn a_round_that_hangs_is_cut_off_and_the_previous_result_is_stale() {
    let site = site(METRICS);
    let life = site.live();
    may_act(&life.app, true);
    let rounds = HealthRounds::new(Arc::clone(life.backend.jobs()));
    let before = round(&life, &rounds).round.expect("a round");
    let hanging = rounds.round(Duration::from_millis(1), std::future::pending());
    life.runtime.block_on(hanging);
    let latest = rounds.subscribe().borrow().clone();
    let stale = latest.stale.expect("a reason");
    assert!(stale.contains("did not end within 0 s"), "{stale}");
    assert!(Arc::ptr_eq(
        &before,
        &latest.round.expect("the round before")
    ));
    let failing = rounds.round(LIMIT, async { Err(Refusal::conflict("the disk is full")) });
    life.runtime.block_on(failing);
    let stale = rounds.subscribe().borrow().stale.clone().expect("a reason");
    assert!(stale.contains("the disk is full"), "{stale}");
    assert!(round(&life, &rounds).stale.is_none(), "the next one ends");
    life.kill();
}
