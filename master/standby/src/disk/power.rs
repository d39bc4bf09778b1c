//! Simulates a power cut in a test: of each file that this crate writes, only the synced part
//! remains.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

thread_local! {
    /// The contents of files at their last sync in this test.
    static SYNCED: RefCell<BTreeMap<PathBuf, Vec<u8>>> = const { RefCell::new(BTreeMap::new()) };
}

/// Records that the current content of a file is on disk.
pub(super) fn synced(path: &Path) {
    let content = fs::read(path).unwrap();
    SYNCED.with_borrow_mut(|synced| synced.insert(path.to_owned(), content));
}

/// Reduces the files below a directory to their state after a power cut. SQLite's files, which it
/// syncs itself, stay unchanged.
pub fn cut(directory: &Path, by_sqlite: &[&str]) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            cut(&path, by_sqlite);
            continue;
        }
        let name = path.file_name().unwrap().to_str().unwrap();
        if by_sqlite.contains(&name) {
            continue;
        }
        let content = SYNCED.with_borrow(|synced| synced.get(&path).cloned());
        match content {
            Some(content) => fs::write(&path, content).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
    }
}
