//! The backup file written from the master's answer, whatever happens to the answer on the way.

use std::fs;

use halite_api::{SavedStandby, StreamReport};
use halite_backup::{BackupFile, Identity, SIGNATURE};
use halite_proto::v1::BackupFile as File;
use halite_testkit::process::{done, script};
use halite_testkit::{BackupCa, empty_etcd_snapshot};

use super::*;
use crate::reply_contract_tests::backup_head;

/// The head of a real backup, with these recipients.
fn head(recipients: &[String]) -> BackupHead {
    let mut head = backup_head();
    head.created = "2026-11-23T14:00:00.123Z".parse().unwrap();
    head.backup.keep = 2;
    head.backup.recipients = recipients.to_vec();
    head
}

/// The parts of an answer after its head.
fn parts() -> Vec<Part> {
    let file = |path: &str, size: usize| {
        Part::File(File {
            path: path.to_owned(),
            mode: 0o600,
            size: size as u64,
        })
    };
    let snapshot = empty_etcd_snapshot();
    let (begin, end) = snapshot.split_at(1000);
    vec![
        file("config/cluster.yaml", 4),
        Part::Data(b"ab".to_vec()),
        Part::Data(b"cd".to_vec()),
        file("state/empty", 0),
        file("etcd/snapshot.db", snapshot.len()),
        Part::Data(begin.to_vec()),
        Part::Data(end.to_vec()),
        Part::End(true),
    ]
}

fn written(directory: &Path, head: &BackupHead, parts: Vec<Part>) -> anyhow::Result<Created> {
    let (sender, receiver) = mpsc::channel(parts.len().max(1));
    for part in parts {
        sender.try_send(part).unwrap();
    }
    drop(sender);
    let keep = usize::try_from(head.backup.keep).ok();
    write(
        directory,
        header(head)?,
        keep,
        BackupStream::new(receiver),
        None,
    )
}

fn entries(directory: &Path) -> usize {
    fs::read_dir(directory).unwrap().count()
}

#[test]
fn the_answer_becomes_one_file_and_old_ones_go() {
    let dir = tempfile::tempdir().unwrap();
    let key = Identity::generate().unwrap();
    let head = head(&[key.recipient().to_string()]);
    let mut removed = Vec::new();
    for _ in 0..3 {
        let created = written(dir.path(), &head, parts()).unwrap();
        assert_eq!(created.files, 3);
        let file = BackupFile::open(&created.path).unwrap();
        let keys = std::slice::from_ref(&key);
        let list = file.read(keys, &mut |_, _, _| Ok(())).unwrap();
        assert_eq!(list.files.len(), 3);
        assert_eq!(exit_code(&created, Ok(())), 0);
        removed.extend(created.pruned.removed);
    }
    assert_eq!(removed.len(), 1);
    assert_eq!(entries(dir.path()), 2);
}

/// The clock was ahead when the others were made.
#[test]
fn a_backup_whose_date_is_older_than_that_of_others_stays() {
    let dir = tempfile::tempdir().unwrap();
    let ahead = head(&[]);
    for _ in 0..2 {
        written(dir.path(), &ahead, parts()).unwrap();
    }
    let mut now = head(&[]);
    now.created = "2026-11-20T14:00:00Z".parse().unwrap();
    for _ in 0..2 {
        let created = written(dir.path(), &now, parts()).unwrap();
        assert!(created.path.exists(), "{:?}", created.pruned);
        assert_eq!(created.pruned.removed.len(), 1);
        assert_eq!(entries(dir.path()), 2);
    }
}

/// The master, the link or the operator ends the answer after each part, or within it.
#[test]
fn an_answer_that_ends_early_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path(), &head(&[]), parts()).unwrap();
    for length in 0..parts().len() {
        let mut cut = parts();
        cut.truncate(length);
        let error = written(dir.path(), &head(&[]), cut).err();
        let error = format!("{:#}", error.expect("half a backup is taken for one"));
        assert!(error.contains("ended early"), "{length}: {error}");
        assert_eq!(entries(dir.path()), 1, "{length} parts");
    }
}

/// A disk that returns other data than was written: the backup is neither listed nor replaces a
/// good one, and the command fails.
#[test]
fn a_backup_that_is_read_again_and_differs_is_none() {
    use std::os::unix::fs::FileExt as _;
    let dir = tempfile::tempdir().unwrap();
    let mut one = head(&[]);
    one.backup.keep = 1;
    let good = written(dir.path(), &one, parts()).unwrap();
    let mut all = parts();
    let end = all.pop().unwrap();
    // More than fits into the queue in memory.
    all.push(Part::File(File {
        path: "state/large".to_owned(),
        mode: 0o600,
        size: 50_000,
    }));
    all.push(Part::Data(vec![1; 50_000]));
    let (sender, receiver) = mpsc::channel(all.len());
    for part in all {
        sender.try_send(part).unwrap();
    }
    let (header, to) = (header(&one).unwrap(), dir.path().to_owned());
    let writing =
        std::thread::spawn(move || write(&to, header, Some(1), BackupStream::new(receiver), None));
    let partial = loop {
        let found = fs::read_dir(dir.path()).unwrap().flatten();
        let mut found = found.filter(|entry| entry.path().extension().is_some_and(|e| e == "new"));
        if let Some(found) = found.find(|found| found.metadata().is_ok_and(|it| it.len() > 1500)) {
            break fs::File::options().write(true).open(found.path()).unwrap();
        }
        assert!(!writing.is_finished(), "it has ended before its end came");
        std::thread::sleep(std::time::Duration::from_millis(1));
    };
    partial.write_all_at(b"other", 1000).unwrap();
    sender.blocking_send(end).unwrap();
    let error = writing.join().unwrap().err().expect("it is taken for good");
    let error = format!("{error:#}");
    assert!(error.contains("its digest differs"), "{error}");
    let found = halite_backup::Directory::new(dir.path()).list().unwrap();
    let paths: Vec<&Path> = found
        .iter()
        .map(|one| one.file.as_ref().unwrap().path())
        .collect();
    assert_eq!(paths, [good.path.as_path()]);
}

#[test]
fn a_trial_gets_the_snapshot_that_is_encrypted() {
    let dir = tempfile::tempdir().unwrap();
    let key = Identity::generate().unwrap();
    let head = head(&[key.recipient().to_string()]);
    let copy = dir.path().join("snapshot.db");
    let (sender, receiver) = mpsc::channel(parts().len());
    for part in parts() {
        sender.try_send(part).unwrap();
    }
    let file = fs::File::create(&copy).unwrap();
    let backups = dir.path().join("backups");
    let header = header(&head).unwrap();
    write(
        &backups,
        header,
        None,
        BackupStream::new(receiver),
        Some(file),
    )
    .unwrap();
    assert_eq!(fs::read(&copy).unwrap(), empty_etcd_snapshot());
}

#[test]
fn a_standby_that_did_not_follow_says_since_when() {
    let with = |following: bool| {
        let followed = StreamReport {
            master: "10.0.0.11:4550".to_owned(),
            since: Time::from_millis(0),
            following,
            alive: None,
            missed: None,
        };
        let standby = SavedStandby {
            name: Some("cp-2".to_owned()),
            followed: Some(followed),
        };
        behind(&BackupHead {
            standby: Some(standby),
            ..head(&[])
        })
    };
    assert_eq!(behind(&head(&[])), None);
    assert_eq!(with(true), None);
    assert_eq!(with(false), Some(Time::from_millis(0)));
    let dir = tempfile::tempdir().unwrap();
    let mut created = written(dir.path(), &head(&[]), parts()).unwrap();
    created.behind = with(false);
    let text = super::report(&created, &Paint { colour: false });
    assert!(
        text.contains("has not followed the master since 1970-01-01T00:00:00.000Z"),
        "{text}"
    );
}

#[test]
fn a_snapshot_that_was_changed_on_the_way_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut changed = parts();
    let Part::Data(piece) = &mut changed[5] else {
        panic!("not the snapshot")
    };
    piece[500] ^= 1;
    let error = written(dir.path(), &head(&[]), changed).err().unwrap();
    assert!(
        format!("{error:#}").contains("its hash does not"),
        "{error:#}"
    );
    assert_eq!(entries(dir.path()), 0);
}

/// The disk of the backups is too small for the reserve, and then for the file itself, which no
/// check could foresee. The test reruns itself in a mount namespace that has such a disk.
#[test]
fn a_disk_without_room_keeps_what_it_has() {
    const DISK: &str = "HALITE_TEST_DISK";
    const NAME: &str = "a_disk_without_room_keeps_what_it_has";
    if let Some(disk) = std::env::var_os(DISK) {
        return on_a_small_disk(Path::new(&disk));
    }
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("tmp")).unwrap();
    written(&dir.path().join("good"), &head(&[]), parts()).unwrap();
    let (_, module) = module_path!().split_once("::").unwrap();
    let own = std::env::current_exe().unwrap();
    let line = format!(
        "mkdir disk && mount -t tmpfs -o size=4m none disk && cp good/* disk/\n\
         {DISK}=\"$PWD/disk\" \"$CTL\" --exact {module}::{NAME} --nocapture"
    );
    let said = done(script(dir.path(), own.to_str().unwrap(), &line));
    assert!(said.contains("1 passed"), "{said}");
}

fn on_a_small_disk(disk: &Path) {
    let files = || -> Vec<_> {
        let entries = fs::read_dir(disk).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    };
    let [good] = files().try_into().unwrap();
    let mut more = parts();
    let large = File {
        path: "state/large".to_owned(),
        mode: 0o600,
        size: 8 << 20,
    };
    more.splice(..0, [Part::File(large), Part::Data(vec![7; 8 << 20])]);
    for (parts, reason) in [
        (parts(), "must stay free; make room"),
        (more, "cannot write the backup: No space left on device"),
    ] {
        let error = written(disk, &head(&[]), parts).err().unwrap();
        let error = format!("{error:#}");
        let cannot = format!("cannot make a backup in {}: ", disk.display());
        assert!(error.starts_with(&cannot), "{error}");
        assert!(error.contains(reason), "{error}");
        assert_eq!(files(), std::slice::from_ref(&good), "{error}");
        BackupFile::open(&good).unwrap().check().unwrap();
    }
}

/// A directory in which the user of the test's thread cannot remove root's backups: it has the
/// sticky bit, like /tmp.
#[test]
fn a_backup_stays_made_when_older_ones_cannot_be_removed() {
    use std::os::unix::fs::PermissionsExt as _;
    const NOBODY: u32 = 65534;
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_owned();
    let mut more = head(&[]);
    more.backup.keep = 9;
    for _ in 0..3 {
        written(&path, &more, parts()).unwrap();
    }
    for entry in fs::read_dir(&path).unwrap() {
        mode(&entry.unwrap().path(), 0o644);
    }
    mode(&path, 0o1777);
    // On Linux, this changes the user of this thread only.
    let other_user = std::thread::spawn(move || {
        let nobody = rustix::process::Uid::from_raw(NOBODY);
        let became = rustix::thread::set_thread_res_uid(nobody, nobody, nobody);
        if became.is_err() {
            // Only root can.
            return;
        }
        let created = written(&path, &head(&[]), parts()).unwrap();
        let file = BackupFile::open(&created.path).unwrap();
        file.check().unwrap();
        // Two are kept; a failure to remove one of the older two does not save the other.
        assert_eq!(problems(&created).len(), 2, "{:?}", problems(&created));
        assert_eq!(created.pruned.removed, Vec::<String>::new());
        assert_eq!(exit_code(&created, Ok(())), INCOMPLETE);
        let text = super::report(&created, &Paint { colour: false });
        assert!(text.starts_with("✓ backup "), "{text}");
        let line = "✗ the backup was made, but older ones stay: cannot remove ";
        assert_eq!(text.matches(line).count(), 2, "{text}");
        assert_eq!(entries(&path), 4);
    });
    other_user.join().unwrap();
}

#[test]
fn a_backup_stays_made_when_it_cannot_be_reported() {
    let dir = tempfile::tempdir().unwrap();
    let created = written(dir.path(), &head(&[]), parts()).unwrap();
    let closed = Err(anyhow::anyhow!("cannot write the answer: Broken pipe"));
    assert_eq!(exit_code(&created, closed), INCOMPLETE);
    // The link to the master was lost after the last part.
    let lost = || Err(anyhow::anyhow!("the connection is closed"));
    assert!(outcome(Ok(created), lost()).is_ok());
    let cut = written(dir.path(), &head(&[]), parts()[..3].to_vec());
    let error = outcome(cut, lost()).err().unwrap();
    assert!(format!("{error:#}").contains("the connection is closed"));
}

#[test]
fn a_backup_says_which_ca_has_signed_it_or_that_none_has() {
    let dir = tempfile::tempdir().unwrap();
    let report = |parts| {
        let created = written(dir.path(), &head(&[]), parts).unwrap();
        super::report(&created, &Paint { colour: false })
    };
    assert!(report(parts()).contains("✗ it is not signed"));
    let (mut signed, ca) = (parts(), BackupCa::new());
    let files = [
        ("config/cluster.yaml", 0o600, b"abcd".to_vec()),
        ("state/empty", 0o600, Vec::new()),
        ("etcd/snapshot.db", 0o600, empty_etcd_snapshot()),
    ];
    let mut head = head(&[]);
    head.cluster_id = ca.hash();
    let facts = serde_json::to_value(&head).unwrap();
    let text = ca.sign(&BackupCa::statement(&facts, &files)).to_string();
    let file = File {
        path: SIGNATURE.to_owned(),
        mode: 0o600,
        size: text.len() as u64,
    };
    let end = signed.len() - 1;
    signed.splice(end..end, [Part::File(file), Part::Data(text.into())]);
    let created = written(dir.path(), &head, signed).unwrap();
    let text = super::report(&created, &Paint { colour: false });
    assert!(
        text.contains(&format!("signed by the CA {}", ca.hash())),
        "{text}"
    );
    // The master's data and the written file agree.
    let file = BackupFile::open(&created.path).unwrap();
    assert!(file.read(&[], &mut |_, _, _| Ok(())).unwrap().is_signed);
}

#[test]
fn a_backup_without_recipients_is_warned_about() {
    let dir = tempfile::tempdir().unwrap();
    let report = |head: &BackupHead| {
        let created = written(dir.path(), head, parts()).unwrap();
        super::report(&created, &Paint { colour: false })
    };
    assert!(report(&head(&[])).contains("it is not encrypted"));
    let key = Identity::generate().unwrap().recipient().to_string();
    assert!(!report(&head(&[key])).contains("it is not encrypted"));
}
