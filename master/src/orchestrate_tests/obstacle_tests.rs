//! Obstacles that appear while an upgrade runs: the turn of their host finds them.

use std::sync::{Arc, Mutex};

use halite_api::UpgradeSeverity;
use halite_states::shipped::UPGRADE;
use serde_json::{Value, json};

use super::back_tests::{change, connected, fails};
use super::fixture::{applied, newest_run, orchestrate, request, resumed};
use super::kubelet_findings_tests::with_kubelet;
use super::outdated_minions_tests::{ANOTHER, OF_NEXT, OF_OLD, found, runs, with_minions};
use super::upgrade_fixture::{Held, NEXT, confirmed, options, plan, progress, site, upgrade};
use crate::backend::fixture::{Life, ScriptedMinion, Site};

fn has_next(minion: &ScriptedMinion) -> bool {
    applied(minion).contains(&format!("from-{NEXT}"))
}

/// The site of an obstacle, and its worker with the packages on hold, by version.
struct Scene<'a> {
    site: &'a Site,
    life: &'a Life,
    worker: &'a ScriptedMinion,
    held: &'a Mutex<Value>,
}

type Change = fn(&Scene<'_>);

/// An obstacle: its message, its remedy, how it appears, and how it disappears.
type Obstacle = (&'static str, &'static str, Change, Change);

const OBSTACLES: [Obstacle; 4] = [
    (
        "worker-1 runs a different halite-minion from the one in its bundle",
        "`ctl highstate worker-1` updates it",
        |scene| runs(scene.life, scene.worker, ANOTHER),
        |scene| runs(scene.life, scene.worker, OF_OLD),
    ),
    (
        "on worker-1 packages are on hold: kubelet (1.36.3-1, to become 1.36.4-1); the run would stop there",
        "on worker-1, run: apt-mark unhold kubelet",
        |scene| *scene.held.lock().unwrap() = json!({"kubelet": "1.36.3-1"}),
        |scene| *scene.held.lock().unwrap() = json!({}),
    ),
    (
        "the kubelet of worker-1 is v1.37.1, and its bundle has v1.36.3; it must not be newer than an API server (v1.36.3)",
        "`ctl highstate worker-1` installs the one of its bundle",
        |scene| scene.site.api.put(with_kubelet("v1.37.1")),
        |scene| scene.site.api.put(with_kubelet("v1.36.3")),
    ),
    (
        "default/bare (no controller) on worker-1 stops its drain",
        "delete the pod, or let a controller own it",
        |scene| {
            scene.site.api.put(json!({"apiVersion": "v1", "kind": "Pod",
                    "metadata": {"name": "bare", "namespace": "default"},
                    "spec": {"nodeName": "worker-1"}, "status": {"phase": "Running"}}));
        },
        |scene| {
            let mut objects = scene.site.api.objects.lock().unwrap();
            objects.retain(|reference, _| reference.name != "bare");
        },
    ),
];

#[test]
fn an_obstacle_that_appears_after_the_plan_stops_the_run_before_its_host() {
    let mut options = options();
    options["drain"] = json!({"delete_emptydir_data": true, "force": false, "timeout": 60});
    for (message, remedy, appears, disappears) in OBSTACLES {
        let site = with_minions();
        let packages = "\"packages\":{\"kubelet\":\"1.36.4-1\"}";
        change(&site, NEXT, "\"packages\":{}", packages);
        let life = site.live();
        let on_hold = Arc::new(Mutex::new(json!({})));
        let reported = Arc::clone(&on_hold);
        let worker = ScriptedMinion::new("worker-1").on(move |job| {
            let held = &*reported.lock().unwrap();
            (job.function == "halite.health").then(|| json!({"held": held}))
        });
        let held = Held::new();
        for host in [&held.minion, &worker] {
            life.connect(host);
            runs(&life, host, OF_OLD);
        }
        let scene = Scene {
            site: &site,
            life: &life,
            worker: &worker,
            held: &on_hold,
        };
        let events = life.backend.orchestrate("root", upgrade(&life, &options));
        drop(life.runtime.block_on(events).unwrap());
        held.wait();
        appears(&scene);
        held.release();
        let (code, said) = resumed(&life, &newest_run(&life));
        assert_eq!(code, 1, "{said}");
        for part in [
            "an obstacle has appeared since the plan was confirmed, so nothing was changed here: ",
            message,
            remedy,
            "then `ctl upgrade 0.3.0` continues",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert_eq!(progress(&life).step.as_deref(), Some("workers-1-turn"));
        assert!(has_next(&held.minion) && !has_next(&worker), "{message}");
        disappears(&scene);
        let (code, said) = orchestrate(&life, upgrade(&life, &options));
        assert_eq!(code, 0, "{message}: {said}");
        assert!(has_next(&worker), "{message}");
        life.kill();
    }
}

#[test]
fn an_error_that_was_confirmed_with_the_plan_does_not_stop_the_run() {
    let site = with_minions();
    let life = site.live();
    let (first, worker) = connected(&life);
    runs(&life, &first, OF_OLD);
    runs(&life, &worker, ANOTHER);
    let shown = plan(&life, &options());
    let errors: Vec<&str> = found(&shown)
        .iter()
        .map(|finding| finding.message.as_str())
        .collect();
    assert_eq!(errors.len(), 1);
    let pillar = upgrade(&life, &options()).pillar_json;
    let mut pillar: Value = serde_json::from_str(&pillar).unwrap();
    let (code, said) = orchestrate(&life, request(UPGRADE, &pillar));
    assert_eq!(code, 1, "without the errors: {said}");
    assert!(said.contains("an obstacle has appeared"), "{said}");
    pillar["plan"]["errors"] = json!(errors);
    let (code, said) = orchestrate(&life, request(UPGRADE, &pillar));
    assert_eq!(code, 0, "{said}");
    assert!(has_next(&worker));
    life.kill();
}

#[test]
fn a_host_changed_by_the_stopped_run_does_not_block_the_next_one() {
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
    worker.journal.lock().unwrap().failing.clear();
    let (code, said) = orchestrate(&life, upgrade(&life, &options()));
    assert_eq!(code, 0, "{said}");
    assert!(has_next(&worker));
    life.kill();
}

/// As `ctl node add` left it when its preflight refused the host: declared, enrolled and bare.
#[test]
fn an_upgrade_names_a_host_that_has_not_joined_and_does_not_change_it() {
    let site = site();
    let life = site.live();
    let first = ScriptedMinion::new("bootstrap-1");
    let worker = ScriptedMinion::new("worker-1")
        .on(|job| (job.function == "halite.health").then(|| json!({"bare": true})));
    for host in [&first, &worker] {
        life.connect(host);
    }
    let plan = plan(&life, &options());
    let errors = plan
        .findings
        .iter()
        .filter(|finding| finding.severity == UpgradeSeverity::Error);
    let errors: Vec<(&str, &str)> = errors
        .map(|finding| (finding.message.as_str(), finding.remedy.as_str()))
        .collect();
    assert_eq!(
        errors,
        [(
            "worker-1 is declared and has not joined: the run would stop at it",
            "finish `ctl node add worker-1`, or remove it with `ctl node remove worker-1`"
        )]
    );
    let (code, said) = orchestrate(&life, confirmed(&plan, &options()));
    assert_eq!(code, 0, "{said}");
    assert!(has_next(&first), "{said}");
    assert_eq!(applied(&worker), [""; 0], "{said}");
    life.kill();
}
