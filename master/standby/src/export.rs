//! Exports a standby's copy for a backup, while the daemon continues to use it.
//!
//! No lock delays the daemon, because commits of the master wait for it. The daemon appends to the
//! log of the store, and writes only complete logs into the store's file, after recording that
//! beside it ([`super::copy`]). So a log and a file that were read between two equal states of
//! these belong together: anything that the daemon may have been writing into the file is in the
//! log as well.

use std::collections::BTreeMap;
use std::fs;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use halite_core::saved;
use halite_core::saved::Files;
use halite_store::finish_copy;

use super::copy::Copy;
use super::disk::{CopyError, file_error, make_directory, new_file};

/// The number of attempts to read a copy that the daemon keeps changing.
const TRIALS: u32 = 20;
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(500);
/// The length of a log's header, which differs for each log.
const HEADER: u64 = 32;

/// The exported copy.
#[derive(Debug)]
pub struct Exported {
    /// The store, marked as a copy.
    pub store: PathBuf,
    /// The files beside it, with their modes on the master.
    pub files: Files,
    /// The directory of these files.
    pub root: PathBuf,
    /// The epoch of the master that sent the copy.
    pub epoch: u64,
}

/// Exports the newest whole copy below a standby's directory into an empty directory.
///
/// # Errors
/// There is no copy, it is damaged or changes faster than it can be read, or a file cannot be read
/// or written.
pub async fn export(root: &Path, to: &Path) -> Result<Exported, CopyError> {
    for _ in 0..TRIALS {
        clear(to)?;
        if let Some(exported) = once(root, to)? {
            finish_copy(&exported.store).await?;
            return Ok(exported);
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err(CopyError::Busy(root.to_owned()))
}

/// Returns whether a standby's copy still has the CAs and keys of these exported files.
///
/// # Errors
/// The standby has no complete copy, or a file cannot be read.
pub fn has_same_keys(root: &Path, exported: &Files) -> Result<bool, CopyError> {
    let copy = newest(root)?.ok_or_else(|| CopyError::None(root.to_owned()))?;
    same_keys(&copy, exported)
}

/// The newest copy; another one may have replaced it while they were listed.
fn newest(root: &Path) -> Result<Option<Copy>, CopyError> {
    match Copy::peek(root)? {
        None => Copy::peek(root),
        found => Ok(found),
    }
}

fn same_keys(copy: &Copy, exported: &Files) -> Result<bool, CopyError> {
    let content = |path: &Path| match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        read => read.map(Some).map_err(file_error("read", path)),
    };
    let mut present = BTreeMap::new();
    for (place, path, _) in copy.files().filter(|(place, ..)| saved::has_key(place)) {
        present.insert(place.to_owned(), content(&path)?);
    }
    present.retain(|_, content| content.is_some());
    let mut before = BTreeMap::new();
    for (place, path) in exported.iter().filter(|(place, _)| saved::has_key(place)) {
        before.insert(place.clone(), content(path)?);
    }
    Ok(present == before)
}

/// Reads the copy once; `None` if it has changed in the meantime.
fn once(root: &Path, to: &Path) -> Result<Option<Exported>, CopyError> {
    let listed = newest(root)?.ok_or_else(|| CopyError::None(root.to_owned()))?;
    let Some(before) = state(&listed)? else {
        return Ok(None);
    };
    // Between the two equal states: acknowledged data are in the log, or recorded as being in the
    // file.
    let copy = Copy::peek(root)?.filter(|copy| copy.store() == listed.store());
    let Some(copy) = copy else {
        return Ok(None);
    };
    // The log first: all data that the file receives afterwards are in the log, or recorded.
    let store = to.join("store.db");
    let mut gone = false;
    for (from, to) in [
        (copy.log(), to.join("store.db-wal")),
        (copy.store(), store.clone()),
    ] {
        gone |= !read_into(&from, &to)? && from == copy.store();
    }
    let (mut files, root_of_files) = (Files::new(), to.join("files"));
    for (place, from, mode) in copy.files() {
        let path = root_of_files.join(place);
        make_directory(path.parent().unwrap_or(to))?;
        // A file that is gone was removed on the master.
        if read_into(&from, &path)? {
            let permissions = fs::Permissions::from_mode(mode);
            fs::set_permissions(&path, permissions).map_err(file_error("write", &path))?;
            files.push((place.to_owned(), path));
        }
    }
    let after = Copy::peek(root)?;
    let same = match &after {
        Some(after) => {
            after.store() == copy.store()
                && state(after)? == Some(before)
                && same_keys(after, &files)?
        }
        None => false,
    };
    if !same || gone {
        return Ok(None);
    }
    if let Some(damage) = copy.damage_of_log(&to.join("store.db-wal")) {
        return Err(CopyError::Damaged {
            root: root.to_owned(),
            damage: Box::new(damage),
        });
    }
    Ok(Some(Exported {
        store,
        files,
        root: root_of_files,
        epoch: copy.epoch(),
    }))
}

/// The state that changes before the store's file does, and when a log ends.
#[derive(Debug, PartialEq, Eq)]
struct State {
    facts: Vec<u8>,
    header: Vec<u8>,
}

/// The state of a copy; `None` if the copy is gone.
fn state(copy: &Copy) -> Result<Option<State>, CopyError> {
    let facts = copy.facts_file();
    let facts = match fs::read(&facts) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        read => read.map_err(file_error("read", &facts))?,
    };
    let log = copy.log();
    let mut header = Vec::new();
    match File::open(&log) {
        Ok(file) => {
            let read = file.take(HEADER).read_to_end(&mut header);
            read.map_err(file_error("read", &log))?;
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(file_error("read", &log)(error)),
    }
    Ok(Some(State { facts, header }))
}

/// Copies a file for root only; returns `false` if it does not exist.
fn read_into(from: &Path, to: &Path) -> Result<bool, CopyError> {
    let mut source = match File::open(from) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(file_error("read", from)(error)),
    };
    let mut target = new_file(to)?;
    std::io::copy(&mut source, &mut target).map_err(file_error("read", from))?;
    Ok(true)
}

/// Empties a directory, or creates it.
///
/// # Errors
/// An entry cannot be removed.
pub fn clear(directory: &Path) -> Result<(), CopyError> {
    make_directory(directory)?;
    let list = |error| file_error("read", directory)(error);
    for entry in fs::read_dir(directory).map_err(list)? {
        let path = entry.map_err(list)?.path();
        let removed = if path.is_dir() {
            fs::remove_dir_all(&path)
        } else {
            fs::remove_file(&path)
        };
        removed.map_err(file_error("remove", &path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_that_is_gone_is_read_again_and_no_error() {
        let dir = tempfile::tempdir().unwrap();
        let mut base = Copy::begin(dir.path(), 1).unwrap();
        base.sync().unwrap();
        let copy = Copy::peek(dir.path()).unwrap().unwrap();
        assert!(state(&copy).unwrap().is_some());
        fs::remove_dir_all(copy.store().parent().unwrap()).unwrap();
        assert_eq!(state(&copy).unwrap(), None);
    }
}
