//! A directory of made items, each under a key that is the hash of all its inputs.
//!
//! An item is made in a temporary directory and renamed into place, so that an existing item is
//! complete. Size and time of every file are recorded next to it: a file that was changed in place
//! (by a test that damages a bundle in which files are hard links) invalidates the item, and it is
//! made again. If several processes want the same item, one makes it, and the others wait.

use std::collections::BTreeMap;
use std::fs;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, Result};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

/// The folder of a store with a file for each name: the holder of the file's lock makes items of
/// that name.
const CLAIMS: &str = ".claims";

/// The hash of a description of how an item is made, shortened to 64 bits: enough for a cache on
/// one machine.
pub fn key(description: &impl Serialize) -> Result<String> {
    let text = serde_json::to_vec(description)?;
    Ok(hex(&Sha256::digest(&text))[..16].to_owned())
}

/// Bytes as lower-case hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A directory of made items.
#[derive(Debug, Clone)]
pub struct Store {
    root: PathBuf,
}

impl Store {
    /// The store in a directory, which is made if it is missing.
    pub fn new(root: PathBuf) -> Result<Self> {
        fs::create_dir_all(&root).with_context(|| format!("cannot make {}", root.display()))?;
        Ok(Self { root })
    }

    /// Directory of an item, if it exists and is unchanged since it was made.
    #[must_use]
    pub fn find(&self, name: &str, key: &str) -> Option<PathBuf> {
        let dir = self.path(name, key);
        let record = record(&dir);
        let recorded: Stamps = serde_json::from_slice(&fs::read(&record).ok()?).ok()?;
        if stamps(&dir).ok()? != recorded {
            return None;
        }
        // The time of the last use, for `prune`. If it cannot be set, the item is at worst made
        // again later.
        let _ = File::options()
            .append(true)
            .open(&record)
            .and_then(|file| file.set_modified(SystemTime::now()));
        Some(dir)
    }

    /// The item of that name and key; if it is missing, `make` fills an empty directory with it.
    pub fn get(
        &self,
        name: &str,
        key: &str,
        make: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        if let Some(dir) = self.find(name, key) {
            return Ok(dir);
        }
        let _claim = self.claim(name)?;
        if let Some(dir) = self.find(name, key) {
            return Ok(dir);
        }
        let dir = self.path(name, key);
        let parent = dir.parent().unwrap_or(&self.root);
        fs::create_dir_all(parent)?;
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
        }
        let work = tempfile::Builder::new()
            .prefix(".making-")
            .tempdir_in(parent)?;
        make(work.path())?;
        // The directory was made for one user; its contents are public.
        set_mode(work.path(), 0o755)?;
        let made = work.keep();
        fs::rename(&made, &dir)
            .with_context(|| format!("cannot move {} to {}", made.display(), dir.display()))?;
        // Last: an item without a record is made again.
        fs::write(record(&dir), serde_json::to_vec(&stamps(&dir)?)?)?;
        Ok(dir)
    }

    /// Removes all items of a name except the `kept` ones that were used last: every change of a
    /// program or state makes another bundle, and a full disk stops all work.
    pub fn prune(&self, name: &str, kept: usize) -> Result<()> {
        let _claim = self.claim(name)?;
        let mut made = Vec::new();
        for entry in fs::read_dir(&self.root)? {
            let record = entry?.path();
            let is_of_name = record
                .file_name()
                .and_then(|file| file.to_str()?.strip_suffix(".stamps")?.rsplit_once('-'))
                .is_some_and(|(of, _)| of == name);
            if is_of_name {
                made.push((fs::metadata(&record)?.modified()?, record));
            }
        }
        made.sort_unstable();
        let old = made.len().saturating_sub(kept);
        for (_, record) in made.into_iter().take(old) {
            let dir = record.with_extension("");
            let cannot = |path: &Path| format!("cannot remove {}", path.display());
            // The record last: a run that was killed resumes by it.
            if dir.exists() {
                fs::remove_dir_all(&dir).with_context(|| cannot(&dir))?;
            }
            fs::remove_file(&record).with_context(|| cannot(&record))?;
        }
        Ok(())
    }

    /// The right to make items of a name, until it is dropped; waits while another process has it.
    pub fn claim(&self, name: &str) -> Result<File> {
        let dir = self.root.join(CLAIMS);
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let path = dir.join(name.replace('/', "_"));
        let file =
            File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
        file.lock()
            .with_context(|| format!("cannot lock {}", path.display()))?;
        Ok(file)
    }

    fn path(&self, name: &str, key: &str) -> PathBuf {
        self.root.join(format!("{name}-{key}"))
    }
}

/// File with size and time of every file of an item: next to it, so that the item contains nothing
/// else.
fn record(dir: &Path) -> PathBuf {
    dir.with_extension("stamps")
}

/// Relative path to (size, modification time in nanoseconds).
type Stamps = BTreeMap<String, (u64, i128)>;

fn stamps(dir: &Path) -> Result<Stamps> {
    let mut found = Stamps::new();
    for file in files(dir)? {
        let name = file.strip_prefix(dir)?.to_string_lossy().into_owned();
        let status = fs::symlink_metadata(&file)?;
        let time = i128::from(status.mtime()) * 1_000_000_000 + i128::from(status.mtime_nsec());
        found.insert(name, (status.len(), time));
    }
    Ok(found)
}

/// Every file and symbolic link below a directory, sorted.
pub fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut waiting = vec![dir.to_owned()];
    while let Some(next) = waiting.pop() {
        for entry in
            fs::read_dir(&next).with_context(|| format!("cannot list {}", next.display()))?
        {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                waiting.push(entry.path());
            } else {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Sets the permission bits of a file or directory.
pub fn set_mode(path: &Path, mode: u32) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .with_context(|| format!("cannot set the mode of {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_thing_is_made_once_and_again_when_somebody_changed_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().join("store")).unwrap();
        let mut made = 0;
        let mut get = || {
            store
                .get("thing", "0123", |out| {
                    made += 1;
                    fs::write(out.join("file"), format!("{made}")).map_err(Into::into)
                })
                .unwrap()
        };
        let first = get();
        assert_eq!(get(), first);
        assert_eq!(fs::read_to_string(first.join("file")).unwrap(), "1");
        fs::write(first.join("file"), "changed").unwrap();
        get();
        assert_eq!(fs::read_to_string(first.join("file")).unwrap(), "2");
    }

    #[test]
    fn the_things_that_were_used_last_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().to_owned()).unwrap();
        let make = |out: &Path| fs::write(out.join("file"), "").map_err(Into::into);
        for (name, key) in [
            ("thing", "a"),
            ("thing", "b"),
            ("thing", "c"),
            ("other", "d"),
        ] {
            store.get(name, key, make).unwrap();
        }
        // Used again: `b` is the oldest now.
        assert!(store.find("thing", "a").is_some());
        store.prune("thing", 2).unwrap();
        let kept = |name, key| store.find(name, key).is_some();
        assert!(kept("thing", "a") && kept("thing", "c") && kept("other", "d"));
        assert!(!kept("thing", "b") && !dir.path().join("thing-b").exists());
    }

    #[test]
    fn those_who_want_a_thing_at_once_get_it_from_one() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().to_owned()).unwrap();
        let again = |_: &Path| anyhow::bail!("it is already made");
        thread::scope(|scope| {
            let mut other = None;
            let make = |out: &Path| {
                let held = File::open(dir.path().join(CLAIMS).join("thing"))?;
                assert!(held.try_lock().is_err(), "another run would make it too");
                other = Some(scope.spawn(|| store.get("thing", "0123", again)));
                fs::write(out.join("file"), "").map_err(Into::into)
            };
            let made = store.get("thing", "0123", make).unwrap();
            assert_eq!(other.unwrap().join().unwrap().unwrap(), made);
        });
    }

    #[test]
    fn a_failure_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().to_owned()).unwrap();
        assert!(store.get("thing", "0123", |_| anyhow::bail!("no")).is_err());
        let left: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        assert_eq!(left, [CLAIMS]);
    }
}
