use std::os::unix::fs::symlink;

use halite_errors::chain;

use super::*;
use crate::backup_metadata::{Repaired, StoredDamage};
use crate::metadata_error::FORMAT;

const FACTS: &str = "backup.json";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn complete() -> BackupMetadata {
    BackupMetadata {
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
        repaired: Vec::new(),
    }
}

fn damaged() -> BackupMetadata {
    let damage = StoredDamage {
        what: "sha256:x".into(),
        why: "it is missing".into(),
        repositories: vec!["app".into()],
    };
    let repaired = Repaired {
        damage: damage.clone(),
        from: "20260101T000000Z".into(),
    };
    BackupMetadata {
        damaged: vec![damage],
        repaired: vec![repaired],
        ..complete()
    }
}

fn put(dir: &Path, name: &str, metadata: Option<&BackupMetadata>) {
    create_private_dir(&dir.join(name)).unwrap();
    if let Some(metadata) = metadata {
        fs::write(
            dir.join(name).join(FACTS),
            serde_json::to_vec(metadata).unwrap(),
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
fn other_texts_are_not_names() {
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
fn metadata_is_read_as_it_was_written() {
    for metadata in [complete(), damaged()] {
        let text = serde_json::to_string(&metadata).unwrap();
        assert_eq!(
            serde_json::from_str::<BackupMetadata>(&text).unwrap(),
            metadata,
            "{text}"
        );
    }
}

#[test]
fn the_newest_complete_backups_stay() {
    let dir = tempfile::tempdir().unwrap();
    let backups = Backups::create(&dir.path().join("new/backups")).unwrap();
    let at = backups.dir();
    let name = |day: u32| format!("202611{day:02}T000000Z");
    for day in 1..=6 {
        put(at, &name(day), Some(&complete()));
    }
    put(at, &name(7), Some(&damaged()));
    put(at, "20261102T000000Z-2", Some(&damaged()));
    put(at, "20261001T000000Z", None);
    // Backups of a disk that was not mounted, newer than all that contain images.
    let empty = BackupMetadata {
        repositories: 0,
        tags: 0,
        links: 0,
        blobs: 0,
        bytes: 0,
        bytes_new: 0,
        ..complete()
    };
    for day in 8..=11 {
        put(at, &name(day), Some(&empty));
    }
    put(at, "other", Some(&complete()));
    fs::create_dir(at.join(".partial-other")).unwrap();
    let prune = |keep| {
        let mut removed = Vec::new();
        backups.prune(keep, &mut removed).unwrap();
        removed
    };
    assert_eq!(prune(9), Vec::<String>::new());
    // Damaged and empty backups are not counted; those newer than a counted one stay.
    assert_eq!(
        prune(3),
        [&name(1), &name(2), "20261102T000000Z-2", &name(3)].map(String::from)
    );
    let mut left = vec!["20261001T000000Z".to_owned()];
    left.extend((4..=11).map(name));
    assert_eq!(names(&backups), left);
    assert!(at.join("other").exists());
    // Leftovers are removed; a directory that only looks similar is not.
    put(at, ".partial-20261201T000000Z-2", None);
    backups.remove_leftovers().unwrap();
    assert!(!at.join(".partial-20261201T000000Z-2").exists() && at.join(".partial-other").exists());
}

#[test]
fn an_unreadable_backup_has_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let backups = Backups::open(dir.path()).unwrap();
    put(dir.path(), "20260101T000000Z", None);
    put(dir.path(), "20260102T000000Z", Some(&complete()));
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
        .map(|backup| {
            backup
                .metadata
                .as_ref()
                .err()
                .map(|error| chain(error))
                .unwrap_or_default()
        })
        .collect();
    let wanted = [
        "cannot read backup.json",
        "",
        "not a directory",
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
    assert_eq!(
        (found.dir(), one.metadata.unwrap()),
        (backups.dir(), complete())
    );
    let empty = tempfile::tempdir().unwrap();
    assert!(
        Backups::find(empty.path())
            .unwrap_err()
            .to_string()
            .contains("there is no backup")
    );
}

#[test]
fn only_one_process_works_with_the_backups() {
    let dir = tempfile::tempdir().unwrap();
    let backups = Backups::open(dir.path()).unwrap();
    let lock = backups.lock().unwrap();
    assert!(
        backups
            .lock()
            .unwrap_err()
            .to_string()
            .contains("another ctl works with the backups here")
    );
    drop(lock);
    backups.lock().unwrap();
}
