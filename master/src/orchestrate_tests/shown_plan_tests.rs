//! `ctl upgrade --plan`: a plan that `--test` has shown, with its options.

use halite_api::{UpgradeOptions, UpgradePlan, from_text};
use halite_core::refusal::{Refusal, RefusalKind};
use halite_proto::ids::JobId;
use halite_proto::v1;
use halite_states::shipped::UPGRADE;
use halite_store::{Run, RunStatus};
use serde_json::{Value, json};

use super::back_tests::connected;
use super::fixture::{applied, orchestrate, request};
use super::upgrade_fixture::{NEXT, change_document, options, plan, site, upgrade};
use crate::backend::fixture::Life;

/// Shows a plan as `ctl upgrade --test` does; returns its id.
fn show(life: &Life, options: &Value) -> String {
    let mut request = upgrade(life, options);
    request.test = true;
    let (code, said) = orchestrate(life, request);
    assert_eq!(code, 0, "{said}");
    plan(life, options).id
}

fn shown(life: &Life, id: &str) -> Result<UpgradePlan, Refusal> {
    let request = v1::ShowRequest {
        what: "upgrade-shown".into(),
        target: id.to_owned(),
        ..v1::ShowRequest::default()
    };
    let shown = life.runtime.block_on(life.backend.show(request));
    shown.map(|shown| from_text(&shown.json).unwrap())
}

#[test]
fn a_plan_that_was_shown_is_applied_with_its_options_also_after_a_restart_of_the_master() {
    let site = site();
    let life = site.live();
    let (first, worker) = connected(&life);
    let mut given = options();
    given["batch"] = json!("2");
    given["drain"] = json!({"delete_emptydir_data": true, "force": true, "timeout": 60});
    let id = show(&life, &given);
    // A later plan with other options does not replace it.
    show(&life, &options());
    life.kill();
    let life = site.live();
    life.reconnect(&first);
    life.reconnect(&worker);
    let plan = shown(&life, &id[..12]).unwrap();
    assert_eq!(
        (plan.id.as_str(), plan.bundle.as_str()),
        (id.as_str(), NEXT)
    );
    assert_eq!(plan.changed, [""; 0]);
    let expected = UpgradeOptions::from_pillar(given.as_object().unwrap()).unwrap();
    assert_eq!(plan.options, expected);
    let pillar = plan.options.to_pillar(&plan.bundle);
    assert_eq!(pillar, given);
    let (code, said) = orchestrate(&life, request(UPGRADE, &pillar));
    assert_eq!(code, 0, "{said}");
    assert!(applied(&worker).contains(&format!("from-{NEXT}")));
    life.kill();
}

#[test]
fn a_plan_that_no_longer_holds_names_what_has_changed() {
    let site = site();
    let life = site.live();
    connected(&life);
    let id = show(&life, &options());
    change_document(&site, "two");
    let now = shown(&life, &id).unwrap();
    assert_ne!(now.id, id);
    assert_eq!(now.changed, ["worker-1: changed motd"]);
    life.kill();
}

#[test]
fn a_plan_that_no_run_has_shown_and_that_of_a_return_are_refused() {
    let site = site();
    let life = site.live();
    connected(&life);
    // It is computed, but not recorded.
    let id = plan(&life, &options()).id;
    for unknown in [id.as_str(), "0123456789ab", ""] {
        let refused = shown(&life, unknown).unwrap_err();
        assert_eq!(refused.kind, RefusalKind::NotFound, "{unknown}");
        assert!(
            refused.message.contains("`ctl upgrade VERSION --test`"),
            "{refused}"
        );
    }
    let back = json!({"bundle": NEXT, "back": true, "plan": {"id": "0123456789abcdef"}});
    let run = Run {
        id: JobId::from_number(5),
        sls: UPGRADE.to_owned(),
        pillar_json: back.to_string(),
        test: true,
        operator: "root".to_owned(),
        request_id: None,
        low_json: "{}".to_owned(),
        status: RunStatus::Succeeded,
        current: 0,
        cancelled_by: None,
        paused_by: None,
        created: 0,
        changed: 0,
    };
    let created = life.store.create_run(&run, &[]);
    life.runtime.block_on(created).unwrap();
    let refused = shown(&life, "0123456789ab").unwrap_err();
    assert!(
        refused
            .message
            .contains("`ctl upgrade back` carries it out"),
        "{refused}"
    );
    life.kill();
}
