//! The cluster of a backup, and the time at which it was made.

use super::*;

/// A host with a wrong clock and no time server: minions obey no epoch below one that they have
/// seen.
#[test]
fn the_epoch_after_a_restore_is_at_least_the_time_of_the_backup() {
    let scene = Scene::new();
    let file = BackupFile::open(&scene.backup).unwrap();
    let epoch = |second: i64| place::epoch(file.header(), Timestamp::from_second(second).unwrap());
    assert_eq!(epoch(1_577_836_800), 1_800_000_000, "the clock says 2020");
    assert_eq!(epoch(1_900_000_000), 1_900_000_000);
    let restored = Header {
        epoch: 2_000_000_000,
        ..file.header().clone()
    };
    assert_eq!(place::epoch(&restored, time()), 2_000_000_000);
}

#[test]
fn a_backup_of_another_cluster_is_not_restored() {
    let mut scene = Scene::new();
    let from = |ca_hash: Option<String>, unsigned, asks| Origin {
        ca_hash,
        unsigned,
        asks,
    };
    let other = BackupCa::new().hash();
    let error = refused(scene.open_from(from(Some(other.clone()), false, true)));
    assert!(
        error.contains(&format!(
            "it is signed by the CA {}, and --ca-hash has {other}",
            scene.ca.hash()
        )),
        "{error}"
    );
    // Without the hash, a person compares it.
    let error = refused(scene.open_from(from(None, false, false)));
    assert!(
        error.contains(&scene.ca.hash()) && error.contains("pass --ca-hash"),
        "{error}"
    );
    let asked = scene.open_from(from(None, false, true)).unwrap();
    let text = asked.summary();
    assert!(
        text.contains(&scene.ca.hash()) && text.contains("only if that is the hash that you noted"),
        "{text}"
    );
    let text = scene.open().unwrap().summary();
    assert!(text.contains("as --ca-hash says"), "{text}");

    // A backup of an earlier version, or one whose signature was removed.
    scene.backup = Scene::backup(scene.dir.path(), &scene.key, None, 1);
    for origin in [
        from(None, false, true),
        from(None, false, false),
        from(Some("a".repeat(64)), false, true),
    ] {
        let error = refused(scene.open_from(origin));
        assert!(
            error.contains("it is not signed") && error.contains("pass --unsigned"),
            "{error}"
        );
    }
    let restore = scene.open_from(from(None, true, false)).unwrap();
    assert!(
        restore.summary().contains("not signed"),
        "{}",
        restore.summary()
    );
    assert_eq!(scene.host(), [], "opening changes nothing");
}
