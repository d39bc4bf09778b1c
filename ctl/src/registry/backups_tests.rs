use std::os::unix::fs::symlink;

use super::super::facts::{Damage, FORMAT, Mended};
use super::*;

const FACTS: &str = "backup.json";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn facts() -> Facts {
    Facts {
        format: FORMAT,
        time: at("2026-11-21T23:13:10Z"),
        repositories: 1,
        tags: 1,
        links: 3,
        links_sha256: halite_durable::digest::sha256(b""),
        blobs: 1,
        bytes: 2,
        bytes_new: 2,
        damaged: Vec::new(),
        mended: Vec::new(),
    }
}

fn damaged() -> Facts {
    let damage = Damage {
        what: "sha256:x".into(),
        why: "it is missing".into(),
        repositories: vec!["app".into()],
    };
    let mended = Mended {
        damage: damage.clone(),
        from: "20260101T000000Z".into(),
    };
    Facts {
        damaged: vec![damage],
        mended: vec![mended],
        ..facts()
    }
}

fn put(dir: &Path, name: &str, facts: Option<&Facts>) {
    private(&dir.join(name)).unwrap();
    if let Some(facts) = facts {
        fs::write(
            dir.join(name).join(FACTS),
            serde_json::to_vec(facts).unwrap(),
        )
        .unwrap();
    }
}

fn names(backups: &Backups) -> Vec<String> {
    backups.list().unwrap().iter().map(Backup::name).collect()
}

#[test]
fn names_are_in_the_order_of_the_backups() {
    let first = Name::next(at("2026-11-21T23:13:10.9Z"), None);
    assert_eq!(first.to_string(), "20261121T231310Z");
    // The same second, a clock that went back, and then a clock that is right again.
    let mut all = vec![first];
    for now in [
        "2026-11-21T23:13:10Z",
        "2020-01-01T00:00:00Z",
        "2026-11-21T23:13:11Z",
    ] {
        all.push(Name::next(at(now), all.last()));
    }
    for _ in 0..10 {
        all.push(Name::next(at("2026-11-21T23:13:11Z"), all.last()));
    }
    assert!(all.is_sorted(), "{all:?}");
    assert_eq!(all[2].to_string(), "20261121T231310Z-3");
    assert_eq!(all.last().unwrap().to_string(), "20261121T231311Z-11");
    for name in &all {
        assert_eq!(&name.to_string().parse::<Name>().unwrap(), name);
    }
}

#[test]
fn nothing_else_is_a_name() {
    for text in [
        "",
        "2026",
        "20261121T231310",
        "20261121T231310Z-",
        "20261121T231310Z-1",
        "20261121T231310Z-02",
    ] {
        assert!(text.parse::<Name>().is_err(), "{text}");
    }
    for text in [
        "20261121T231310Z-x",
        ".partial-20261121T231310Z",
        "2026112lT231310Z",
        "20261121T231310Z/x",
    ] {
        assert!(text.parse::<Name>().is_err(), "{text}");
    }
}

#[test]
fn what_a_backup_says_is_read_as_it_was_written() {
    for facts in [facts(), damaged()] {
        let text = serde_json::to_string(&facts).unwrap();
        assert_eq!(
            serde_json::from_str::<Facts>(&text).unwrap(),
            facts,
            "{text}"
        );
    }
}

#[test]
fn the_newest_whole_ones_stay() {
    let dir = tempfile::tempdir().unwrap();
    let backups = Backups::make(&dir.path().join("new/backups")).unwrap();
    let at = backups.dir();
    let name = |day: u32| format!("202611{day:02}T000000Z");
    for day in 1..=6 {
        put(at, &name(day), Some(&facts()));
    }
    put(at, &name(7), Some(&damaged()));
    put(at, "20261102T000000Z-2", Some(&damaged()));
    put(at, "20261001T000000Z", None);
    // Of a disk that was not mounted: newer than all that have something.
    let empty = Facts {
        repositories: 0,
        tags: 0,
        links: 0,
        blobs: 0,
        bytes: 0,
        bytes_new: 0,
        ..facts()
    };
    for day in 8..=11 {
        put(at, &name(day), Some(&empty));
    }
    put(at, "other", Some(&facts()));
    fs::create_dir(at.join(".partial-other")).unwrap();
    let prune = |keep| {
        let mut removed = Vec::new();
        backups.prune(keep, &mut removed).unwrap();
        removed
    };
    assert_eq!(prune(9), Vec::<String>::new());
    // The damaged and the empty neither count nor keep; those that are newer than what stays do
    // stay.
    assert_eq!(
        prune(3),
        [&name(1), &name(2), "20261102T000000Z-2", &name(3)].map(String::from)
    );
    let mut left = vec!["20261001T000000Z".to_owned()];
    left.extend((4..=11).map(name));
    assert_eq!(names(&backups), left);
    assert!(at.join("other").exists());
    // What was being made or removed goes, and nothing that only looks like it.
    put(at, ".partial-20261201T000000Z-2", None);
    backups.clear().unwrap();
    assert!(!at.join(".partial-20261201T000000Z-2").exists() && at.join(".partial-other").exists());
}

#[test]
fn a_backup_that_cannot_be_read_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let backups = Backups::open(dir.path()).unwrap();
    put(dir.path(), "20260101T000000Z", None);
    put(dir.path(), "20260102T000000Z", Some(&facts()));
    symlink(
        dir.path().join("20260102T000000Z"),
        dir.path().join("20260103T000000Z"),
    )
    .unwrap();
    put(dir.path(), "20260104T000000Z", None);
    fs::write(
        dir.path().join("20260104T000000Z").join(FACTS),
        r#"{"format": 2}"#,
    )
    .unwrap();
    put(dir.path(), "20260105T000000Z", None);
    fs::write(
        dir.path().join("20260105T000000Z").join(FACTS),
        r#"{"format": 1"#,
    )
    .unwrap();
    let why: Vec<String> = backups
        .list()
        .unwrap()
        .iter()
        .map(|backup| backup.facts.clone().err().unwrap_or_default())
        .collect();
    let wanted = [
        "backup.json cannot be read",
        "",
        "no directory",
        "format 2, and this ctl knows 1",
        "is damaged",
    ];
    for (said, wanted) in why.iter().zip(wanted) {
        assert!(
            said.contains(wanted) && said.is_empty() == wanted.is_empty(),
            "{why:?}"
        );
    }
    let (_, newest) = Backups::find(dir.path()).unwrap();
    assert_eq!(newest.name(), "20260105T000000Z");
    let (found, one) = Backups::find(&dir.path().join("20260102T000000Z")).unwrap();
    assert_eq!((found.dir(), one.facts), (backups.dir(), Ok(facts())));
    let empty = tempfile::tempdir().unwrap();
    assert!(
        Backups::find(empty.path())
            .unwrap_err()
            .to_string()
            .contains("there is no backup")
    );
}

#[test]
fn two_do_not_work_with_the_same_backups() {
    let dir = tempfile::tempdir().unwrap();
    let backups = Backups::open(dir.path()).unwrap();
    let claim = backups.claim().unwrap();
    assert!(
        backups
            .claim()
            .unwrap_err()
            .to_string()
            .contains("another ctl works with the backups here")
    );
    drop(claim);
    backups.claim().unwrap();
}
