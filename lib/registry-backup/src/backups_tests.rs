use super::*;

fn metadata(time: &str) -> BackupMetadata {
    BackupMetadata {
        time: time.parse().unwrap(),
        tags: 1,
        links_sha256: Links::default().sha256(),
        blobs: 1,
        bytes: 2,
        bytes_new: 2,
    }
}

/// Writes the backup of a day, and returns its name.
fn put(dir: &Path, day: u32) -> String {
    let metadata = metadata(&format!("2026-11-{day:02}T02:30:00.4Z"));
    let name = metadata.name();
    metadata.write(&dir.join(&name)).unwrap();
    name
}

fn names(dir: &Path) -> Vec<String> {
    let found = list(dir).unwrap().into_iter();
    found.map(|found| found.name).collect()
}

#[test]
fn the_newest_backups_stay() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let all: Vec<String> = (1..=6).map(|day| put(dir, day)).collect();
    assert_eq!(all[0], "20261101T023000Z");
    // An unreadable one, and another directory.
    fs::write(dir.join(&all[2]).join(METADATA), "{").unwrap();
    fs::create_dir(dir.join("other")).unwrap();
    let prune = |keep| {
        let mut removed = Vec::new();
        prune(dir, keep, &mut removed).unwrap();
        removed
    };
    assert_eq!(prune(9), [""; 0]);
    assert_eq!(prune(2), [&all[0][..], &all[1], &all[3]]);
    assert_eq!(names(dir), [&all[2][..], &all[4], &all[5]]);
    assert!(dir.join("other").exists());
}

#[test]
fn a_backup_is_found_by_its_path_or_as_the_newest() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let error = find(dir).unwrap_err().to_string();
    let wanted = "there is no backup of a registry here";
    assert!(error.contains(wanted), "{error}");
    let (first, second) = (put(dir, 1), put(dir, 2));
    for partial in [PARTIAL, "20261103T023000Z"] {
        fs::create_dir(dir.join(partial)).unwrap();
    }
    fs::write(dir.join(PARTIAL).join(METADATA), "").unwrap();
    assert_eq!(find(dir).unwrap().metadata.name(), second);
    let named = find(&dir.join(&first)).unwrap();
    assert_eq!(named.metadata, metadata("2026-11-01T02:30:00.4Z"));
    fs::write(dir.join(&second).join(METADATA), "{").unwrap();
    let error = find(dir).unwrap_err().to_string();
    assert!(error.contains("20261102T023000Z/backup.json"), "{error}");
    assert_eq!(names(dir), [first, second]);
}
