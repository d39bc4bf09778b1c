use halite_core::names::minion;
use serde_json::json;

use super::*;
use crate::backend::fixture::{Life, Site};

/// 2026-11-21T02:30:00Z
const NIGHT: Millis = 1_795_228_200_000;
const MINUTE: Millis = 60 * 1000;
const HOUR: Millis = 60 * MINUTE;
const DAY: Millis = 24 * HOUR;

fn report(ended: Millis, failure: Option<&str>, good: Option<Millis>) -> Value {
    json!({"ended": ended, "directory": "/srv/b", "failure": failure,
        "good": good.map(|time| json!({"name": "20261121T023000Z", "time": time}))})
}

/// The problems one hour after the night, with a registry that has existed for this many days.
fn problems(days: i64, files: Value, verify: &str) -> Vec<String> {
    let mut reports = json!({"registry-backup.since": NIGHT - days * DAY});
    for (name, content) in files.as_object().unwrap() {
        reports[name] = content.clone();
    }
    let backup = RegistryBackup {
        directory: "/srv/b".into(),
        verify: verify.into(),
        ..RegistryBackup::default()
    };
    Known {
        host: "w",
        backup: &backup,
        reports: &reports,
    }
    .problems(NIGHT + HOUR)
}

#[test]
fn good_backups_cause_no_problems() {
    let good = report(NIGHT + MINUTE, None, Some(NIGHT));
    for (days, files) in [
        (0, json!({})),
        (1, json!({})),
        (9, json!({"registry-backup.json": good})),
        (
            9,
            json!({"registry-backup.json": good, "registry-verify.json": report(NIGHT + 2 * MINUTE, None, Some(NIGHT))}),
        ),
        // The previous ones failed.
        (
            9,
            json!({"registry-backup.json": good, "registry-backup.failed": NIGHT - DAY,
            "registry-verify.json": report(NIGHT + 2 * MINUTE, None, Some(NIGHT)), "registry-verify.failed": NIGHT}),
        ),
        // One run was missed.
        (
            9,
            json!({"registry-backup.json": report(NIGHT - DAY, None, Some(NIGHT - DAY))}),
        ),
    ] {
        assert_eq!(problems(days, files.clone(), "Sun"), [""; 0], "{files}");
    }
}

#[test]
fn backups_that_fail_or_are_not_made_are_problems() {
    let old = NIGHT - 2 * DAY;
    let damage = "the backup 20261121T023000Z is damaged: sha256:1: it is missing";
    let cases: [(Value, &[&[&str]]); 8] = [
        (
            json!({}),
            &[&[
                "there is no good backup",
                "since 2026-11-12T02:30:00Z",
                "`systemctl start halite-registry-backup` makes one",
            ]],
        ),
        (
            json!({"registry-backup.json": report(old, None, Some(old))}),
            &[&[
                "on w is 20261121T023000Z, of 2026-11-19T02:30:00Z",
                "there shows why",
            ]],
        ),
        // It never started: a disk is not mounted.
        (
            json!({"registry-backup.failed": NIGHT}),
            &[
                &["no good backup"],
                &[
                    "could not start",
                    "is /srv/b mounted?",
                    "2026-11-21T02:30:00Z",
                ],
            ],
        ),
        (
            json!({"registry-backup.json": report(NIGHT - DAY, None, Some(NIGHT - DAY)), "registry-backup.failed": NIGHT}),
            &[&["could not start or was cut off"]],
        ),
        (
            json!({"registry-backup.json": report(NIGHT, Some("no room"), Some(NIGHT - DAY)), "registry-backup.failed": NIGHT + 1}),
            &[&[
                "on w failed (no room), 2026-11-21T02:30:00Z",
                "journalctl -u halite-registry-backup",
            ]],
        ),
        // Its report is of the previous night.
        (
            json!({"registry-backup.json": report(NIGHT - DAY, Some("no room"), Some(NIGHT - DAY)), "registry-backup.failed": NIGHT}),
            &[&["could not start or was cut off", "2026-11-21T02:30:00Z"]],
        ),
        (
            json!({"registry-backup.json": report(NIGHT, None, Some(NIGHT)), "registry-verify.failed": NIGHT + MINUTE + 1,
                "registry-verify.json": report(NIGHT + MINUTE, Some(damage), Some(NIGHT - DAY))}),
            &[&[
                "verification",
                damage,
                "`ctl registry verify /srv/b` there",
                "halite-registry-backup halite-registry-verify`",
            ]],
        ),
        (
            json!({"registry-backup.json": report(NIGHT, None, Some(NIGHT)), "registry-verify.failed": NIGHT}),
            &[&["verification", "could not start or was cut off"]],
        ),
    ];
    for (files, wanted) in cases {
        let found = problems(9, files.clone(), "daily");
        assert_eq!(found.len(), wanted.len(), "{files}: {found:?}");
        for (found, wanted) in found.iter().zip(wanted) {
            for part in *wanted {
                assert!(found.contains(part), "{part:?} is not in {found}");
            }
        }
    }
    // A verification that is no longer configured is not a problem.
    let verify = json!({"registry-backup.json": report(NIGHT, None, Some(NIGHT)), "registry-verify.failed": NIGHT});
    assert_eq!(problems(9, verify, "never"), [""; 0]);
}

async fn say(life: &Life, grains: Value) {
    let facts = Facts {
        minion: minion("worker-1"),
        grains_json: grains.to_string(),
        version: "0.1.0".into(),
        last_seen: life.app.clock.now(),
    };
    life.store.put_facts(&facts).await.unwrap();
}

#[test]
fn the_status_tells_of_the_registrys_own_host() {
    let site = Site::new(&[("top.sls", "base:\n  '*': []\n")]);
    let document = site.path().join("etc/cluster.yaml");
    let text = std::fs::read_to_string(&document).unwrap();
    let life = site.live();
    life.accept("worker-1");
    let status = || halite_api::to_value(&life.runtime.block_on(life.backend.status()).unwrap());
    assert_eq!(
        (&status()["registry"], &status()["problems"]),
        (&Value::Null, &json!([]))
    );
    let registry = "siteRegistry: {enabled: true, node: worker-1, users: {ci: canary}}\n";
    std::fs::write(&document, format!("{text}{registry}")).unwrap();
    let told = status();
    assert_eq!(told["problems"].as_array().unwrap().len(), 1, "{told}");
    assert!(
        told["problems"][0]
            .as_str()
            .unwrap()
            .contains("`ctl highstate`"),
        "{told}"
    );

    let now = life.app.clock.now();
    let reports = |failure: Option<&str>| {
        json!({"registry-backup.since": now - DAY, "registry-backup.json": report(now, failure, Some(now - MINUTE)),
            "registry-verify.json": report(now, None, Some(now - MINUTE))})
    };
    life.runtime
        .block_on(say(&life, json!({"reports": reports(None)})));
    let told = status();
    assert_eq!(told["problems"], json!([]));
    let at = Time::from_millis;
    let wanted = json!({"host": "worker-1", "backup": "20261121T023000Z", "backupTime": at(now - MINUTE), "verified": at(now)});
    assert_eq!(told["registry"], wanted);
    life.runtime
        .block_on(say(&life, json!({"reports": reports(Some("no room"))})));
    let told = status();
    assert!(
        told["problems"][0]
            .as_str()
            .unwrap()
            .contains("on worker-1 failed (no room)"),
        "{told}"
    );
}
