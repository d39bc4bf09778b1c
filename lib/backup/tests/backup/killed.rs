//! Kill points of a backup, and the retention of backups.

use std::fs;
use std::path::Path;

use halite_backup::{Directory, Header};
use halite_errors::chain;

use crate::support::{contents, files, header, make};

fn names(directory: &Path) -> Vec<String> {
    let found = Directory::new(directory).list().unwrap();
    found.into_iter().map(|found| found.name).collect()
}

/// The number of all entries in a directory.
fn entries(directory: &Path) -> usize {
    fs::read_dir(directory).unwrap().count()
}

/// Writes the first files of a backup and dies: no destructor runs.
fn killed_after(directory: &Path, header: Header, count: usize) {
    let mut pending = Directory::new(directory).begin(header).unwrap();
    for (path, mode, content) in files().into_iter().take(count) {
        let content = &mut content.as_slice();
        pending
            .writer
            .file(path, mode, content.len() as u64, content)
            .unwrap();
    }
    let partial = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let partial = partial.map(|name| name.into_string().unwrap());
    let partial: Vec<String> = partial.filter(|name| name.ends_with(".new")).collect();
    assert_eq!(partial.len(), 1, "{partial:?}");
    let copy = fs::read(directory.join(&partial[0])).unwrap();
    drop(pending);
    // A process that is killed leaves the file, and the kernel releases its lock.
    fs::write(directory.join(&partial[0]), copy).unwrap();
}

#[test]
fn a_killed_backup_leaves_no_half_one() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), header("a", 0, vec![])).unwrap();
    let before = names(dir.path());
    for count in 0..=files().len() {
        killed_after(dir.path(), header("a", 1, vec![]), count);
        assert_eq!(names(dir.path()), before, "killed after {count} files");
        // The next one removes the leftovers and is complete.
        let path = make(dir.path(), header("a", 1, vec![])).unwrap();
        contents(&path, &[]).unwrap();
        assert_eq!(entries(dir.path()), 2, "killed after {count} files");
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn a_failed_backup_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for count in 0..files().len() {
        let mut pending = Directory::new(dir.path())
            .begin(header("a", 0, vec![]))
            .unwrap();
        for (path, mode, content) in files().into_iter().take(count) {
            let content = &mut content.as_slice();
            pending
                .writer
                .file(path, mode, content.len() as u64, content)
                .unwrap();
        }
        drop(pending);
        assert_eq!(entries(dir.path()), 0, "failed after {count} files");
    }
}

/// A disk that returns data other than was written.
#[test]
fn a_backup_that_is_not_what_was_written_gets_no_name_and_keeps_the_older_ones() {
    use std::os::unix::fs::FileExt as _;
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), header("a", 0, vec![])).unwrap();
    let before = names(dir.path());
    let directory = Directory::new(dir.path());
    let mut pending = directory.begin(header("a", 1, vec![])).unwrap();
    // More than the write buffer holds.
    let large = ("state/large", 0o600, vec![1; 50_000]);
    for (path, mode, content) in files().into_iter().chain([large]) {
        let content = &mut content.as_slice();
        pending
            .writer
            .file(path, mode, content.len() as u64, content)
            .unwrap();
    }
    let mut entries = fs::read_dir(dir.path()).unwrap().map(Result::unwrap);
    let partial = entries.find(|entry| entry.path().extension().is_some_and(|end| end == "new"));
    let partial = fs::File::options()
        .read(true)
        .write(true)
        .open(partial.unwrap().path())
        .unwrap();
    let (mut byte, place) = ([0], 2000);
    partial.read_exact_at(&mut byte, place).unwrap();
    partial.write_all_at(&[byte[0] ^ 1], place).unwrap();
    let error = chain(&pending.finish().unwrap_err());
    assert!(
        error.starts_with("cannot make the backup ") && error.contains("its digest differs"),
        "{error}"
    );
    assert_eq!(names(dir.path()), before);
    drop(partial);
    make(dir.path(), header("a", 1, vec![])).unwrap();
    assert_eq!(self::entries(dir.path()), 2, "nothing of it is left");
}

#[test]
fn two_at_a_time_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let first = Directory::new(dir.path())
        .begin(header("a", 0, vec![]))
        .unwrap();
    assert!(
        Directory::new(dir.path())
            .begin(header("a", 0, vec![]))
            .is_err()
    );
    drop(first);
    assert!(
        Directory::new(dir.path())
            .begin(header("a", 0, vec![]))
            .is_ok()
    );
}

#[test]
fn the_newest_are_kept_and_others_are_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    let directory = Directory::new(dir.path());
    let mut newest = String::new();
    for number in [3, 1, 2, 2, 4] {
        let path = make(dir.path(), header("own", number, vec![])).unwrap();
        newest = path.file_name().unwrap().to_str().unwrap().to_owned();
    }
    let foreign = make(dir.path(), header("foreign", 0, vec![])).unwrap();
    let cut = dir.path().join("prod-20270101T000000Z.halite-backup");
    fs::write(&cut, "halite-backup 1\n{").unwrap();
    fs::write(dir.path().join("notes.txt"), "mine").unwrap();
    let pruned = directory.prune("own", 3, &newest);
    assert_eq!(pruned.removed.len(), 2, "{pruned:?}");
    assert!(pruned.failures.is_empty(), "{pruned:?}");
    let left: Vec<i64> = directory
        .list()
        .unwrap()
        .into_iter()
        .filter_map(|found| found.file.ok())
        .filter(|file| file.header().cluster_id == "own")
        .map(|file| file.header().created.as_second() - 1_800_000_000)
        .collect();
    assert_eq!(left, [2, 3, 4]);
    assert!(foreign.exists() && cut.exists() && dir.path().join("notes.txt").exists());
    assert!(directory.prune("own", 3, &newest).removed.is_empty());
}

#[test]
fn backups_that_cannot_be_listed_are_a_failure() {
    let dir = tempfile::tempdir().unwrap();
    let pruned = Directory::new(&dir.path().join("gone")).prune("own", 1, "made");
    assert_eq!((pruned.removed.len(), pruned.failures.len()), (0, 1));
}

#[test]
fn of_backups_of_one_second_the_last_one_stays() {
    let dir = tempfile::tempdir().unwrap();
    let mut newest = String::new();
    for _ in 0..11 {
        let path = make(dir.path(), header("own", 0, vec![])).unwrap();
        newest = path.file_name().unwrap().to_str().unwrap().to_owned();
        assert_eq!(names(dir.path()).last(), Some(&newest));
    }
    assert!(newest.contains("Z-11."), "{newest}");
    let pruned = Directory::new(dir.path()).prune("own", 1, &newest);
    assert_eq!(pruned.removed.len(), 10);
    assert_eq!(names(dir.path()), [newest]);
}
