//! A second upgrade to the bundle of one that is in progress joins it, or is refused if its options
//! differ.

use halite_core::refusal::RefusalKind;
use halite_proto::v1;
use halite_states::shipped::UPGRADE;
use serde_json::{Value, json};

use super::fixture::{newest_run, orchestrate, request};
use super::upgrade_fixture::{Held, NEXT, confirmed, options, plan, site, upgrade};
use crate::backend::fixture::{Life, ScriptedMinion};

/// The refusal of an upgrade with these options: of its plan, and of its start without a plan.
fn refused(life: &Life, options: &Value) -> String {
    let shown = v1::ShowRequest {
        what: "upgrade".into(),
        target: NEXT.into(),
        pillar_json: options.to_string(),
        ..v1::ShowRequest::default()
    };
    let planned = life.runtime.block_on(life.backend.show(shown));
    let planned = planned.map(drop).unwrap_err();
    let started = life.backend.orchestrate("root", request(UPGRADE, options));
    let started = life.runtime.block_on(started).map(drop).unwrap_err();
    assert_eq!(planned.kind, RefusalKind::Conflict, "{planned}");
    assert_eq!(planned, started);
    planned.message
}

#[test]
fn an_upgrade_with_other_options_is_refused_and_the_same_one_joins() {
    let site = site();
    let life = site.live();
    let (held, worker) = (Held::new(), ScriptedMinion::new("worker-1"));
    life.connect(&held.minion);
    life.connect(&worker);
    let first = upgrade(&life, &options());
    let first = life.backend.orchestrate("root", first);
    drop(life.runtime.block_on(first).unwrap());
    held.wait();
    let run = newest_run(&life).id;

    let mut other = options();
    other["backup"] = json!(true);
    other["batch"] = json!("1");
    let said = refused(&life, &other);
    for part in [
        format!("the upgrade to the bundle {NEXT} is in progress ({run})"),
        "with other options (--no-backup, --batch)".to_owned(),
        format!("`ctl upgrade {NEXT}` with its options joins it"),
        "`ctl upgrade status`".to_owned(),
        "`ctl upgrade pause`".to_owned(),
        format!("`ctl orchestrate cancel {run}`"),
    ] {
        assert!(said.contains(&part), "{part}: {said}");
    }
    let mut drained = options();
    drained["drain"] = json!({"force": false, "timeout": 60});
    assert!(refused(&life, &drained).contains("(--no-drain)"));

    // The held host does not answer what a plan asks, so there is one plan for both.
    let plan = plan(&life, &options());
    assert_eq!(plan.run, Some(run.clone()));
    let same = confirmed(&plan, &options());
    let same = life.backend.orchestrate("root", same);
    let joined = life.runtime.block_on(same).unwrap();
    held.release();
    let events = life.collect(joined);
    let last = events.last().unwrap();
    assert_eq!(last.retcode, 0, "{}", last.data_json);
    let runs = life.runtime.block_on(life.store.runs(10)).unwrap();
    let runs: Vec<_> = runs.into_iter().map(|run| run.id).collect();
    assert_eq!(runs, [run]);

    // Nothing is in progress any more.
    let (code, said) = orchestrate(&life, request(UPGRADE, &other));
    assert_eq!(code, 0, "{said}");
    life.kill();
}
