//! Upgrades that pause, continue, and stop because their plan no longer holds.

use halite_api::UpgradeState;
use halite_core::refusal::RefusalKind;
use halite_proto::ids::JobId;
use halite_states::shipped::UPGRADE;
use halite_store::RunStatus;
use serde_json::{Value, json};

use super::back_tests::{back, way_back};
use super::fixture::{applied, newest_run, orchestrate, request, resumed};
use super::upgrade_fixture::{
    Held, NEXT, change_document, options, plan, problems, progress, site, upgrade,
};
use crate::backend::fixture::{Life, ScriptedMinion};

fn has_next(minion: &ScriptedMinion) -> bool {
    applied(minion).contains(&format!("from-{NEXT}"))
}

/// Continues the paused upgrade with its options, as `ctl upgrade resume` does.
fn resume(life: &Life) -> (i32, String) {
    let status = progress(life);
    let (bundle, options) = (
        status.bundle.unwrap(),
        status.options.expect("it is paused"),
    );
    orchestrate(life, request(UPGRADE, &options.to_pillar(&bundle)))
}

/// Starts an upgrade, and waits until the first host is in the middle of it.
fn begin(life: &Life, held: &Held, options: &Value) -> JobId {
    let request = upgrade(life, options);
    let events = life.backend.orchestrate("root", request);
    drop(life.runtime.block_on(events).unwrap());
    held.wait();
    newest_run(life).id
}

fn pause(life: &Life, run: &JobId) -> UpgradeState {
    let paused = life.backend.pause_run(run, "alice");
    life.runtime.block_on(paused).unwrap().state
}

#[test]
fn a_pause_ends_the_run_before_the_next_host_and_resume_continues() {
    let site = site();
    let life = site.live();
    let (held, worker) = (Held::new(), ScriptedMinion::new("worker-1"));
    life.connect(&held.minion);
    life.connect(&worker);
    // A plan asks the hosts, and the held one does not answer.
    let again = upgrade(&life, &options());
    let run = begin(&life, &held, &options());
    assert_eq!(progress(&life).state, UpgradeState::Running);
    assert_eq!(pause(&life, &run), UpgradeState::Pausing);
    // The same command does not continue it before it has ended.
    let refused = life
        .runtime
        .block_on(life.backend.orchestrate("root", again));
    let refused = refused.map(drop).unwrap_err();
    assert!(refused.message.contains("was paused by alice"), "{refused}");

    held.release();
    let (code, said) = resumed(&life, &newest_run(&life));
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains("\"status\":\"paused\"") && said.contains("\"pausedBy\":\"alice\""),
        "{said}"
    );
    assert!(has_next(&held.minion) && !has_next(&worker));
    let status = progress(&life);
    assert_eq!(status.state, UpgradeState::Paused);
    assert_eq!(status.step.as_deref(), Some("workers-1-turn"));
    assert_eq!(status.done, ["bootstrap-1"]);
    assert_eq!(status.left, ["worker-1"]);
    let found = problems(&life);
    assert!(
        found.contains("is paused since") && found.contains("(by alice)"),
        "{found}"
    );
    // Its lock is free.
    let other = JobId::from_number(1);
    let lock = life.store.take_lock("etcd-members", &other, 1);
    assert_eq!(life.runtime.block_on(lock).unwrap(), None);
    // It cannot be paused again.
    let again = life.runtime.block_on(life.backend.pause_run(&run, "bob"));
    assert_eq!(again.unwrap_err().kind, RefusalKind::Conflict);

    let (code, said) = resume(&life);
    assert_eq!(code, 0, "{said}");
    assert!(has_next(&worker));
    assert_eq!(progress(&life).state, UpgradeState::Done);
    assert!(!problems(&life).contains("paused"), "{}", problems(&life));
    life.kill();
}

#[test]
fn a_pause_outlives_the_master() {
    let site = site();
    let life = site.live();
    let (held, worker) = (Held::new(), ScriptedMinion::new("worker-1"));
    life.connect(&held.minion);
    life.connect(&worker);
    let run = begin(&life, &held, &options());
    pause(&life, &run);
    held.release();
    life.kill();
    let life = site.live();
    life.reconnect(&held.minion);
    life.reconnect(&worker);
    resumed(&life, &newest_run(&life));
    assert_eq!(newest_run(&life).status, RunStatus::Paused);
    assert!(!has_next(&worker));
    life.kill();
}

#[test]
fn an_upgrade_pauses_after_the_control_planes_if_it_was_started_so() {
    let site = site();
    let life = site.live();
    let (first, worker) = (
        ScriptedMinion::new("bootstrap-1"),
        ScriptedMinion::new("worker-1"),
    );
    life.connect(&first);
    life.connect(&worker);
    let mut options = options();
    options["pause_after"] = json!("control-plane");
    let (code, said) = orchestrate(&life, upgrade(&life, &options));
    assert_eq!(code, 0, "the pause was requested with the command: {said}");
    assert!(has_next(&first) && !has_next(&worker));
    let status = progress(&life);
    assert_eq!(
        (status.state, status.paused_by.as_deref()),
        (UpgradeState::Paused, Some("root"))
    );
    assert_eq!(status.options.unwrap().pause_after, None);
    // The command itself continues, too.
    let (code, said) = orchestrate(&life, upgrade(&life, &options));
    assert_eq!(code, 0, "{said}");
    assert!(has_next(&worker));
    assert_eq!(progress(&life).state, UpgradeState::Done);
    life.kill();
}

#[test]
fn a_run_stops_before_a_host_whose_states_differ_from_the_plan() {
    let site = site();
    let life = site.live();
    let (held, worker) = (Held::new(), ScriptedMinion::new("worker-1"));
    life.connect(&held.minion);
    life.connect(&worker);
    let before = plan(&life, &options());
    begin(&life, &held, &options());
    change_document(&site, "two");
    held.release();
    let (code, said) = resumed(&life, &newest_run(&life));
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains("no longer holds") && said.contains("worker-1: changed motd"),
        "{said}"
    );
    assert!(has_next(&held.minion) && !has_next(&worker));
    assert_eq!(progress(&life).state, UpgradeState::Stopped);
    let after = plan(&life, &options());
    assert_ne!(before.id, after.id);
    // With the new plan it continues.
    let (code, said) = orchestrate(&life, upgrade(&life, &options()));
    assert_eq!(code, 0, "{said}");
    assert!(has_next(&worker));
    life.kill();
}

#[test]
fn a_plan_does_not_depend_on_the_progress() {
    let site = site();
    let life = site.live();
    let (first, worker) = (
        ScriptedMinion::new("bootstrap-1"),
        ScriptedMinion::new("worker-1"),
    );
    life.connect(&first);
    life.connect(&worker);
    let before = plan(&life, &options());
    assert_eq!(before.states.len(), 2);
    let mut options_with_pause = options();
    options_with_pause["pause_after"] = json!("control-plane");
    orchestrate(&life, upgrade(&life, &options_with_pause));
    let middle = plan(&life, &options());
    assert_eq!(middle.hosts, ["worker-1"]);
    assert_eq!(before.id, middle.id);
    assert_ne!(
        before.id,
        plan(&life, &options_with_pause).id,
        "the options count"
    );
    life.kill();
}

#[test]
fn a_plan_of_another_master_version_is_not_compared() {
    let site = site();
    let life = site.live();
    let (held, worker) = (Held::new(), ScriptedMinion::new("worker-1"));
    life.connect(&held.minion);
    life.connect(&worker);
    let mut request = upgrade(&life, &options());
    let mut pillar: Value = serde_json::from_str(&request.pillar_json).unwrap();
    pillar["plan"]["planned_by"] = json!("0.0.1");
    request.pillar_json = pillar.to_string();
    let events = life.backend.orchestrate("root", request);
    drop(life.runtime.block_on(events).unwrap());
    held.wait();
    change_document(&site, "two");
    held.release();
    let run = newest_run(&life);
    let (code, said) = resumed(&life, &run);
    assert_eq!(code, 0, "{said}");
    assert!(has_next(&worker));
    let steps = life.runtime.block_on(life.store.steps(&run.id)).unwrap();
    let turn = steps.iter().find(|step| step.name == "workers-1-turn");
    let turn = format!("{turn:?}");
    assert!(
        turn.contains("planned by halite-master 0.0.1; not compared"),
        "{turn}"
    );
    life.kill();
}

#[test]
fn the_oldest_open_upgrade_is_the_last_one() {
    let site = site();
    let life = site.live();
    let run = |number: u64, status: RunStatus| halite_store::Run {
        id: JobId::from_number(number),
        sls: UPGRADE.to_owned(),
        pillar_json: json!({"bundle": NEXT, "batch": "2", "plan": {}}).to_string(),
        test: false,
        operator: "root".to_owned(),
        request_id: None,
        low_json: "{}".to_owned(),
        status,
        current: 0,
        cancelled_by: None,
        paused_by: None,
        created: 0,
        changed: 0,
    };
    let put = |run: halite_store::Run| {
        let created = life.store.create_run(&run, &[]);
        life.runtime.block_on(created).unwrap();
    };
    put(run(5, RunStatus::Failed));
    let stopped = progress(&life);
    assert_eq!(stopped.state, UpgradeState::Stopped);
    assert_eq!(
        stopped.options.unwrap().to_pillar(NEXT),
        json!({"bundle": NEXT, "batch": "2", "backup": false})
    );
    put(run(7, RunStatus::Running));
    put(run(8, RunStatus::Running));
    let status = progress(&life);
    assert_eq!(status.run, Some(JobId::from_number(7)));
    assert_eq!(
        (status.state, status.options),
        (UpgradeState::Running, None)
    );
    life.kill();
}

#[test]
fn only_an_upgrade_can_be_paused() {
    let site = site();
    let life = site.live();
    let run = halite_store::Run {
        id: JobId::from_number(7),
        sls: "custom.roll".to_owned(),
        pillar_json: "{}".to_owned(),
        test: false,
        operator: "root".to_owned(),
        request_id: None,
        low_json: "{}".to_owned(),
        status: RunStatus::Running,
        current: 0,
        cancelled_by: None,
        paused_by: None,
        created: 0,
        changed: 0,
    };
    let refused = life.runtime.block_on(async {
        life.store.create_run(&run, &[]).await.unwrap();
        life.backend.pause_run(&run.id, "alice").await.unwrap_err()
    });
    assert!(
        refused
            .message
            .contains("only upgrades have places to pause"),
        "{refused}"
    );
    let other = JobId::from_number(8);
    let unknown = life.backend.pause_run(&other, "alice");
    let unknown = life.runtime.block_on(unknown).unwrap_err();
    assert_eq!(unknown.kind, RefusalKind::NotFound);
    assert_eq!(progress(&life).state, UpgradeState::None);
    life.kill();
}

#[test]
fn a_paused_upgrade_that_has_changed_no_host_is_ended_by_a_return() {
    let site = site();
    let life = site.live();
    let (held, worker) = (
        Held::at("halite.images.ahead"),
        ScriptedMinion::new("worker-1"),
    );
    life.connect(&held.minion);
    life.connect(&worker);
    let run = begin(&life, &held, &options());
    pause(&life, &run);
    held.release();
    let (code, said) = resumed(&life, &newest_run(&life));
    assert_eq!(code, 1, "{said}");
    assert_eq!(progress(&life).state, UpgradeState::Paused);

    let plan = way_back(&life).unwrap();
    assert!(plan.hosts.is_empty() && plan.begun.is_empty(), "{plan:?}");
    let (code, said) = orchestrate(&life, back(&plan));
    assert_eq!(code, 0, "{said}");
    assert!(!has_next(&held.minion) && !has_next(&worker));
    let status = progress(&life);
    assert!(status.back);
    assert_eq!(status.state, UpgradeState::Done);
    assert!(!problems(&life).contains("paused"), "{}", problems(&life));
    let refused = way_back(&life).unwrap_err().message;
    assert!(refused.contains("no host has begun"), "{refused}");
    life.kill();
}
