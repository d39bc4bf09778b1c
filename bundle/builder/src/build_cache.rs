//! Parts of a bundle that are stored between builds: the image layout and the apt repository are
//! large and seldom change.
//!
//! A part is a directory named by the hash of everything from which it was made. A record beside it
//! contains the digest, size and time of each file, so that a file is hashed only once; a part with
//! a changed file is made again. A bundle has hard links to its parts where the file system allows
//! that. A part that no build has used for a month is removed, and so is a part after which a dozen
//! others of its kind were used: images and packages take hundreds of megabytes each.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use halite_durable::{FileLock, digest, files};
use halite_manifest::ManifestEntry;
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Revision of the procedure that makes parts; increased with each change that is not visible in
/// the inputs.
const REVISION: u32 = 3;

/// The kinds of parts.
const KINDS: &[&str] = &["images", "apt", "rpm", "contents"];

/// Age at which an unused part is removed.
const KEPT: Duration = Duration::from_secs(30 * 86_400);

/// Number of parts of a kind that are kept. One build uses one of each; a computer that repeatedly
/// builds several bundles uses a few of them in turn.
const KEPT_OF_A_KIND: usize = 12;

/// The kind whose parts are too small to count: one for each package or chart.
const SMALL: &str = "contents";

/// A part in the cache.
pub struct CachedArtifact {
    dir: PathBuf,
    record: Record,
}

#[derive(Serialize, Deserialize)]
struct Record {
    /// Notes of the code that made the part.
    note: BTreeMap<String, String>,
    files: BTreeMap<String, Recorded>,
}

#[derive(Serialize, Deserialize)]
struct Recorded {
    #[serde(flatten)]
    entry: ManifestEntry,
    time: (i64, i64),
}

/// A directory of parts.
pub struct BuildCache {
    root: PathBuf,
}

/// Claims the directory of the parts and archives, and removes the leftovers of a killed build.
pub fn claim(root: &Path, progress: &mut dyn FnMut(&str)) -> Result<FileLock, Error> {
    let claim = FileLock::wait(&root.join("parts"), progress)?;
    for entry in fs::read_dir(root).map_err(Error::file("list", root))? {
        let entry = entry.map_err(Error::file("list", root))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name
            .strip_prefix('.')
            .and_then(|name| name.strip_suffix(".new"))
            .is_some_and(is_part)
        {
            files::remove_dir(&entry.path())?;
        }
    }
    Ok(claim)
}

/// Removes the parts that no build has used for a month, and all but the most recently used of each
/// kind. The caller must have claimed the directory.
pub fn prune(root: &Path) -> Result<(), Error> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(root).map_err(Error::file("list", root))? {
        let name = entry
            .map_err(Error::file("list", root))?
            .file_name()
            .to_string_lossy()
            .into_owned();
        names.insert(name.strip_suffix(".json").unwrap_or(&name).to_owned());
    }
    let mut parts: Vec<(SystemTime, &str)> = names
        .iter()
        .filter(|name| is_part(name))
        .filter_map(|name| Some((used(&root.join(name))?, name.as_str())))
        .collect();
    parts.sort_unstable_by(|one, other| other.cmp(one));
    let mut kept: BTreeMap<&str, usize> = BTreeMap::new();
    for (used, name) in parts {
        let kind = name.rsplit_once('-').map_or(name, |(kind, _)| kind);
        let newer = kept.entry(kind).or_default();
        // A time in the future does not count as old.
        let old = used.elapsed().is_ok_and(|age| age > KEPT);
        if old || (kind != SMALL && *newer >= KEPT_OF_A_KIND) {
            let dir = root.join(name);
            files::remove_any(&record_of(&dir))?;
            files::remove_dir(&dir)?;
        } else {
            *newer += 1;
        }
    }
    Ok(())
}

/// The record beside the directory of a part.
fn record_of(dir: &Path) -> PathBuf {
    dir.with_extension("json")
}

/// The time at which a part was last used. A part without a record was never finished; its
/// directory has the time.
fn used(dir: &Path) -> Option<SystemTime> {
    fs::metadata(record_of(dir))
        .or_else(|_| fs::metadata(dir))
        .and_then(|status| status.modified())
        .ok()
}

/// Returns `true` if a name is the name of a part: its kind and a hash.
fn is_part(name: &str) -> bool {
    name.rsplit_once('-').is_some_and(|(kind, hash)| {
        KINDS.contains(&kind)
            && hash.len() == 16
            && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

impl BuildCache {
    pub fn new(root: &Path) -> Result<Self, Error> {
        files::make_dir(root)?;
        Ok(Self {
            root: root.to_owned(),
        })
    }

    /// Returns the part for a name and inputs. If it does not exist, `make` fills an empty
    /// directory with it, and the notes that `make` returns are stored with it.
    pub fn get(
        &self,
        name: &str,
        inputs: &str,
        make: impl FnOnce(&Path) -> Result<BTreeMap<String, String>, Error>,
    ) -> Result<CachedArtifact, Error> {
        let key = digest::sha256(format!("{REVISION}\n{inputs}").as_bytes());
        let dir = self.root.join(format!("{name}-{}", &key[..16]));
        let record_file = record_of(&dir);
        if let Some(record) = load(&dir, &record_file) {
            // The time of the last use, for `prune`. If it cannot be set, the part is at worst made
            // again later.
            let _ = File::options()
                .append(true)
                .open(&record_file)
                .and_then(|file| file.set_modified(SystemTime::now()));
            return Ok(CachedArtifact { dir, record });
        }
        let work = files::sibling(&dir, "new");
        files::remove_dir(&work)?;
        files::make_dir(&work)?;
        let made = make(&work).and_then(|note| {
            files::settle(&work)?;
            Ok(note)
        });
        if made.is_err() {
            // Best effort: the first error is the one that matters. Without the removal, a full
            // disk would stay full.
            let _ = files::remove_dir(&work);
        }
        let note = made?;
        files::remove_dir(&dir)?;
        fs::rename(&work, &dir).map_err(Error::file("make", &dir))?;
        let mut record = Record {
            note,
            files: BTreeMap::new(),
        };
        for file in files::walk(&dir)? {
            let path = dir.join(&file);
            let (sha256, size) = files::digest(&path)?;
            let time = time(&path)
                .ok_or_else(|| Error::content(&path, "it changed during the build"))?
                .0;
            record.files.insert(
                file,
                Recorded {
                    entry: ManifestEntry { sha256, size },
                    time,
                },
            );
        }
        let bytes = serde_json::to_vec(&record)
            .map_err(|error| Error::content(&record_file, error.to_string()))?;
        files::replace(&record_file, 0o644, &bytes)?;
        Ok(CachedArtifact { dir, record })
    }
}

impl CachedArtifact {
    /// The notes that were stored when the part was made.
    pub fn note(&self) -> &BTreeMap<String, String> {
        &self.record.note
    }

    /// The path of one of its files, and its SHA-256 at the time when the part was made.
    pub fn file(&self, file: &str) -> Result<(PathBuf, &str), Error> {
        let path = self.dir.join(file);
        match self.record.files.get(file) {
            Some(recorded) => Ok((path, &recorded.entry.sha256)),
            None => Err(Error::content(path, "it is missing")),
        }
    }

    /// Places its files below a directory of a bundle and adds them to the bundle's list of files.
    pub fn place(
        &self,
        root: &Path,
        below: &str,
        list: &mut BTreeMap<String, ManifestEntry>,
    ) -> Result<(), Error> {
        for (file, recorded) in &self.record.files {
            let name = format!("{below}/{file}");
            files::link(&self.dir.join(file), &root.join(&name))?;
            list.insert(name, recorded.entry.clone());
        }
        Ok(())
    }
}

fn load(dir: &Path, record: &Path) -> Option<Record> {
    let record: Record = serde_json::from_slice(&fs::read(record).ok()?).ok()?;
    let there = files::walk(dir).ok()?;
    let same = |file: &String| {
        let recorded = record.files.get(file)?;
        (time(&dir.join(file))? == (recorded.time, recorded.entry.size)).then_some(())
    };
    (there.len() == record.files.len() && there.iter().all(|file| same(file).is_some()))
        .then_some(record)
}

/// The time of the last change, and the size.
fn time(path: &Path) -> Option<((i64, i64), u64)> {
    let status = fs::symlink_metadata(path).ok()?;
    Some(((status.mtime(), status.mtime_nsec()), status.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_large_kind_the_parts_that_were_used_last_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let cache = BuildCache::new(dir.path()).unwrap();
        let make = |out: &Path| {
            fs::write(out.join("file"), "").map_err(Error::file("write", out))?;
            Ok(BTreeMap::new())
        };
        let count = KEPT_OF_A_KIND + 3;
        for kind in ["apt", SMALL] {
            for number in 0..count {
                let part = cache.get(kind, &number.to_string(), make).unwrap();
                // An hour between any two; the first is the oldest.
                let age = Duration::from_secs(3600 * (count - number) as u64);
                let record = File::options().append(true).open(record_of(&part.dir));
                let used = SystemTime::now().checked_sub(age).unwrap();
                record.unwrap().set_modified(used).unwrap();
            }
        }
        // The first is used again.
        cache.get("apt", "0", make).unwrap();
        prune(dir.path()).unwrap();
        let made_again = |kind: &str, number: usize| {
            let mut made = false;
            let mut note = |out: &Path| {
                made = true;
                make(out)
            };
            cache.get(kind, &number.to_string(), &mut note).unwrap();
            made
        };
        let gone: Vec<usize> = (0..count).filter(|n| made_again("apt", *n)).collect();
        assert_eq!(gone, [1, 2, 3]);
        assert!((0..count).all(|number| !made_again(SMALL, number)));
    }
}
