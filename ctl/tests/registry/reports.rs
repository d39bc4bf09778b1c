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

/// The time of a backup according to its name, in milliseconds since 1970.
fn time_of(backup: &str) -> i64 {
    let time = jiff::civil::DateTime::strptime("%Y%m%dT%H%M%SZ", &backup[..16]).unwrap();
    time.to_zoned(jiff::tz::TimeZone::UTC)
        .unwrap()
        .timestamp()
        .as_millisecond()
}

#[test]
fn every_run_leaves_how_it_ended() {
    let world = World::new();
    let backup = [&BACKUP[..], &REPORTED].concat();
    // There is no backup to read yet.
    world.refused(&VERIFY);
    let said = report(&world, "verify.json");
    assert!(failure(&said).contains("cannot open backups"), "{said}");
    assert_eq!(said["good"], Value::Null);

    let web = image("app/web", "1", &[90_000, 40], 1);
    world.push("app/web", &web);
    let first = world.done(&backup).name();
    let good = json!({"name": first, "time": time_of(&first)});
    let said = report(&world, "backup.json");
    assert_eq!(
        (&said["failure"], &said["good"], &said["directory"]),
        (&Value::Null, &good, &json!("backups"))
    );
    let (ended, now) = (
        said["ended"].as_i64().unwrap(),
        jiff::Timestamp::now().as_millisecond(),
    );
    assert!((time_of(&first)..=now).contains(&ended), "{said}");
    world.done(&VERIFY);
    assert_eq!(
        (
            &report(&world, "verify.json")["failure"],
            &report(&world, "verify.json")["good"]
        ),
        (&Value::Null, &good)
    );

    // The registry is damaged: at first an earlier backup still has the blob, then none has.
    let blob = largest(&web);
    // With another size, it does not count as the backed-up blob.
    fs::write(world.live(&place(&blob)), "short").unwrap();
    let second = world.refused(&backup).name();
    let said = report(&world, "backup.json");
    assert!(
        failure(&said).starts_with("the registry is damaged and the backup is complete"),
        "{said}"
    );
    assert!(
        failure(&said).contains(&format!("{blob} (in app/web): its 5 bytes are")),
        "{said}"
    );
    assert_eq!(said["good"]["name"], second);
    for backup in [&first, &second] {
        fs::remove_file(world.kept(backup, &place(&blob))).unwrap();
    }
    let third = world.refused(&backup).name();
    let said = report(&world, "backup.json");
    assert!(
        failure(&said).starts_with(&format!(
            "the registry is damaged, and so is the backup {third}"
        )),
        "{said}"
    );
    assert_eq!(said["good"]["name"], second);
    world.refused(&VERIFY);
    let said = report(&world, "verify.json");
    assert!(
        failure(&said).starts_with(&format!(
            "the backup {third} is damaged: {blob} (in app/web)"
        )),
        "{said}"
    );
    assert_eq!(
        said["good"]["name"], first,
        "the last successful verification"
    );

    // A backup of an empty registry does not succeed if there was content before.
    fs::rename(world.path("storage/docker"), world.path("docker")).unwrap();
    world.run(&backup);
    assert_eq!(report(&world, "backup.json")["good"]["name"], second);

    // A run that cannot start reports the last good result.
    fs::rename(world.path("storage"), world.path("away")).unwrap();
    world.refused(&backup);
    let said = report(&world, "backup.json");
    assert!(
        failure(&said).contains("storage: there is no registry"),
        "{said}"
    );
    assert_eq!(said["good"]["name"], second);
}

#[test]
fn a_disk_with_backups_that_is_not_mounted_is_not_taken_for_an_empty_one() {
    let world = World::new();
    world.push("app", &image("app", "1", &[90], 1));
    let backup = [&BACKUP[..], &REPORTED].concat();
    let first = world.done(&backup).name();
    let before = report(&world, "backup.json");
    fs::rename(world.path("backups"), world.path("disk")).unwrap();
    // Without the mount point, and with it.
    for _ in 0..2 {
        let said = world.refused(&backup);
        assert!(
            said.text.contains(&format!("the backup {first} was here")),
            "{}",
            said.text
        );
        let said = report(&world, "backup.json");
        assert!(failure(&said).contains("not mounted?"), "{said}");
        assert_eq!(said["good"], before["good"]);
        // Nothing is written to the disk below.
        let made = fs::read_dir(world.path("backups"))
            .map(Iterator::count)
            .unwrap_or_default();
        assert_eq!(made, 0);
        fs::create_dir_all(world.path("backups")).unwrap();
    }
    fs::remove_dir(world.path("backups")).unwrap();
    fs::rename(world.path("disk"), world.path("backups")).unwrap();
    let second = world.done(&backup).name();
    assert_eq!(report(&world, "backup.json")["good"]["name"], second);
    // Another directory, and backups that were removed on purpose.
    fs::remove_dir_all(world.path("backups")).unwrap();
    world.done(
        &[
            &["backup", "--data", "storage", "--out", "others"][..],
            &REPORTED,
        ]
        .concat(),
    );
    let said = report(&world, "backup.json");
    assert_eq!(
        (&said["failure"], &said["directory"]),
        (&Value::Null, &json!("others"))
    );
    world.done(&backup);
    fs::remove_dir_all(world.path("backups")).unwrap();
    world.refused(&backup);
    fs::remove_file(world.path("reports/backup.json")).unwrap();
    world.done(&backup);
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
