//! The reports of runs, which `ctl status` shows.

use std::fs;

use serde_json::{Value, json};

use crate::world::{BACKUP, World, image, largest, place};

const REPORTED: [&str; 2] = ["--report", "reports/backup.json"];
const VERIFY: [&str; 4] = ["verify", "backups", "--report", "reports/verify.json"];

fn report(world: &World, name: &str) -> Value {
    serde_json::from_slice(&fs::read(world.path("reports").join(name)).unwrap()).unwrap()
}

fn failure(report: &Value) -> &str {
    report["failure"]
        .as_str()
        .unwrap_or_else(|| panic!("no failure: {report}"))
}

#[test]
fn every_run_reports_its_outcome() {
    let world = World::new();
    let backup = [&BACKUP[..], &REPORTED].concat();
    // There is no backup to verify yet.
    world.refused(&VERIFY);
    let said = report(&world, "verify.json");
    assert!(failure(&said).contains("cannot open backups"), "{said}");
    assert_eq!(said["good"], Value::Null);

    let web = image("app/web", "1", &[90_000, 40], 1);
    world.push("app/web", &web);
    let first = world.done(&backup).name();
    let said = report(&world, "backup.json");
    assert_eq!(
        (&said["failure"], &said["good"]["name"], &said["directory"]),
        (&Value::Null, &json!(first), &json!("backups"))
    );
    let (made, ended) = (&said["good"]["time"], &said["ended"]);
    let age = ended.as_i64().unwrap() - made.as_i64().unwrap();
    assert!((0..600_000).contains(&age), "{said}");
    world.done(&VERIFY);
    let verified = report(&world, "verify.json");
    assert_eq!(
        (&verified["failure"], &verified["good"]),
        (&Value::Null, &said["good"])
    );

    // A damaged backup, and a damaged registry.
    let blob = largest(&web);
    fs::remove_file(world.kept(&first, &place(&blob))).unwrap();
    fs::write(world.live(&place(&blob)), "short").unwrap();
    for (command, name) in [(&VERIFY[..], "verify.json"), (&backup[..], "backup.json")] {
        world.refused(command);
        let said = report(&world, name);
        let damage = format!("it is damaged: {blob} (in app/web): ");
        assert!(failure(&said).contains(&damage), "{said}");
        assert_eq!(said["good"]["name"], first, "the last successful run");
    }
    fs::remove_file(world.live(&place(&blob))).unwrap();
    world.push("app/web", &web);
    let second = world.done(&backup).name();
    world.done(&VERIFY);
    for name in ["verify.json", "backup.json"] {
        let said = report(&world, name);
        assert_eq!(
            (&said["failure"], &said["good"]["name"]),
            (&Value::Null, &json!(second))
        );
    }
}

#[test]
fn a_report_that_cannot_be_written_is_an_error() {
    let world = World::new();
    world.push("app", &image("app", "1", &[90], 1));
    fs::write(world.path("reports"), "").unwrap();
    let said = world.refused(&[&BACKUP[..], &REPORTED].concat());
    assert!(said.text.contains("reports"), "{}", said.text);
    // The backup exists nevertheless.
    world.done(&["verify", "backups"]);
    let said = world.refused(&VERIFY);
    assert!(said.text.contains("reports"), "{}", said.text);
}
