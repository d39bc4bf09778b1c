//! A new backup is read from its disk.

use std::fs::File;
use std::io::IoSliceMut;
use std::path::Path;

use halite_backup::{BackupFile, Directory, SNAPSHOT};
use halite_testkit::empty_etcd_snapshot;
use rustix::fs::{Advice, fadvise};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use crate::support::header;

/// Returns whether the first page of a file is in the page cache: a read that may not wait for a
/// disk is refused if it is not there.
fn is_cached(path: &Path) -> bool {
    let file = File::open(path).unwrap();
    let mut byte = [0];
    let buffers = &mut [IoSliceMut::new(&mut byte)];
    match preadv2(&file, buffers, 0, ReadWriteFlags::NOWAIT) {
        Ok(count) => count == 1,
        Err(Errno::AGAIN) => false,
        Err(error) => panic!("{}: cannot ask the page cache: {error}", path.display()),
    }
}

/// A backup of some megabytes, whose size is not a multiple of a sector. Not in `/tmp`, which may
/// not be on a disk.
fn backup(directory: &Path) -> BackupFile {
    let header = header("a", 0, vec![]);
    let mut pending = Directory::new(directory).begin(header).unwrap();
    let large = vec![7; 3_000_001];
    for (path, content) in [("state/large", large), (SNAPSHOT, empty_etcd_snapshot())] {
        let size = content.len() as u64;
        let added = pending
            .writer
            .file(path, 0o600, size, &mut content.as_slice());
        added.unwrap();
    }
    pending.finish().unwrap()
}

#[test]
fn a_new_backup_is_read_again_from_its_disk_and_not_from_the_page_cache() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let made = backup(dir.path());
    let file = File::open(made.path()).unwrap();
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    // The cache is queried afterwards: a query for an uncached page makes the kernel read it.
    made.check_on_disk().unwrap();
    assert!(
        !is_cached(made.path()),
        "it was read through the page cache, or {} is on no disk",
        dir.path().display()
    );
    made.check().unwrap();
    assert!(
        is_cached(made.path()),
        "the test cannot see what is in the page cache"
    );
    // Pages that are already cached do not replace the read from the disk either.
    made.check_on_disk().unwrap();
    assert!(!is_cached(made.path()), "it was read from the page cache");
}

#[test]
fn a_changed_byte_is_found_on_the_disk() {
    use std::os::unix::fs::FileExt as _;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let made = backup(dir.path());
    let file = File::options().write(true).open(made.path()).unwrap();
    for place in [200, 1_500_000, made.size() - 100] {
        file.write_all_at(&[1], place).unwrap();
        made.check_on_disk().unwrap_err();
        file.write_all_at(&[7], place).unwrap();
    }
}
