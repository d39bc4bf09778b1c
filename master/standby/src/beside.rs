//! The files beside the store that have changed since they were sent.
//!
//! A commit is answered once the standby has the documents that were written before it. So each
//! commit asks the kernel whether one has changed, which costs one call; only then is each file
//! inspected.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::{fs, io};

use halite_core::config::Config;
use halite_core::declared::{Changes, Generation};
use halite_core::refusal::Refusal;
use halite_core::saved;
use halite_core::saved::{ENCRYPTION, Listing, REVOKED, STATE_PLACE};
use halite_proto::v1::StandbyFile;

/// Size limit of a file: messages have a limit, and documents are small.
const LARGEST: u64 = 32 << 20;

/// A file beside the store that cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum BesideError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] Refusal),
    /// The file is too large for a document.
    #[error("{} is too large for a standby: at most 32 MiB", .0.display())]
    Large(PathBuf),
}

/// Size, times and mode of a file when it was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp(u64, u64, i64, i64, u32);

/// The files beside the store, as last sent.
pub struct Beside {
    config: Config,
    sent: BTreeMap<String, Stamp>,
    /// The kernel's list of changes in the directories found last.
    watch: Changes,
    directories: Vec<PathBuf>,
    /// The generation of the directories that was sent; `None` if a change might be missed.
    as_of: Option<Generation>,
}

impl Beside {
    /// Creates the list without any sent file.
    pub fn new(config: Config) -> Self {
        Self {
            directories: directories(&config, &[]),
            config,
            sent: BTreeMap::new(),
            watch: Changes::open(),
            as_of: None,
        }
    }

    /// The files that have changed since the last call, with their whole content, and the removed
    /// ones.
    ///
    /// # Errors
    /// A file or directory cannot be read.
    pub fn changes(&mut self) -> Result<Vec<StandbyFile>, BesideError> {
        // In this order: changes after the query belong to a later generation, and changes before
        // it are found. A directory that was replaced is watched again.
        self.watch.watch(&self.directories);
        let as_of = self.watch.generation();
        let Listing { files, directories } = saved::list(&self.config)?;
        self.watch
            .found(files.iter().map(|(_, path)| path.as_path()));
        let directories = self::directories(&self.config, &directories);
        // A new directory is watched from the next call on.
        self.as_of = as_of.filter(|_| directories == self.directories);
        self.directories = directories;
        let mut changes = Vec::new();
        let names: BTreeSet<&String> = files.iter().map(|(name, _)| name).collect();
        let gone = |name: &&String| !names.contains(name);
        let gone: Vec<String> = self.sent.keys().filter(gone).cloned().collect();
        for path in gone {
            self.sent.remove(&path);
            changes.push(StandbyFile {
                path,
                removed: true,
                ..StandbyFile::default()
            });
        }
        for (name, path) in files {
            self.add(name, &path, &mut changes)?;
        }
        Ok(changes)
    }

    /// The changed files that a commit may depend on: documents, CAs and encryption keys, and the
    /// record of revocations, which must be on a standby before the store has the revocations.
    ///
    /// # Errors
    /// A file or directory cannot be read.
    pub fn before_commit(&mut self) -> Result<Vec<StandbyFile>, BesideError> {
        let now = self.watch.generation();
        if now.is_some() && now == self.as_of {
            self.revocations()
        } else {
            self.changes()
        }
    }

    fn revocations(&mut self) -> Result<Vec<StandbyFile>, BesideError> {
        let mut changes = Vec::new();
        let path = self.config.state_dir.join(REVOKED);
        self.add(format!("{STATE_PLACE}/{REVOKED}"), &path, &mut changes)?;
        Ok(changes)
    }

    fn add(
        &mut self,
        name: String,
        path: &Path,
        changes: &mut Vec<StandbyFile>,
    ) -> Result<(), BesideError> {
        let unreadable = |error: io::Error| BesideError::from(saved::unreadable(path, &error));
        let found = match fs::metadata(path) {
            Ok(found) => found,
            // Removed since it was listed: the next call reports it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(unreadable(error)),
        };
        let stamp = Stamp(
            found.ino(),
            found.len(),
            found.mtime(),
            found.mtime_nsec(),
            found.mode(),
        );
        if self.sent.get(&name) == Some(&stamp) {
            return Ok(());
        }
        if found.len() > LARGEST {
            return Err(BesideError::Large(path.to_owned()));
        }
        let data = match fs::read(path) {
            Ok(data) => data,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(unreadable(error)),
        };
        self.sent.insert(name.clone(), stamp);
        changes.push(StandbyFile {
            path: name,
            mode: found.permissions().mode() & 0o777,
            data,
            removed: false,
        });
        Ok(())
    }
}

/// The directories that contain or may contain documents, CAs and encryption keys, the operator's
/// first, chosen from the listed ones. Includes directories without a file, whose first file may
/// arrive before the next commit.
fn directories(config: &Config, listed: &[PathBuf]) -> Vec<PathBuf> {
    let documents = config.config_dir.as_path();
    let [cas, keys] = ["ca", ENCRYPTION].map(|name| config.state_dir.join(name));
    // Not the master's own directory: each commit changes it. What rotates has a directory below
    // it.
    let is_watched = |directory: &Path| {
        let watched = [documents, &cas, &keys];
        watched.iter().any(|watched| directory.starts_with(watched))
    };
    let mut found: BTreeSet<&Path> = listed
        .iter()
        .map(PathBuf::as_path)
        .filter(|directory| is_watched(directory))
        .collect();
    let nodes = documents.join("nodes");
    found.extend([nodes.as_path(), cas.as_path(), keys.as_path()]);
    found.remove(documents);
    let others = found.into_iter().map(Path::to_owned);
    std::iter::once(documents.to_owned())
        .chain(others)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(files: &[StandbyFile]) -> Vec<&str> {
        files.iter().map(|file| file.path.as_str()).collect()
    }

    /// Creates the configuration of a master with these directories.
    fn config(directory: &Path) -> Config {
        let shown = directory.display();
        let text = format!(
            "cluster: prod\nadvertise: [127.0.0.1]\nstate_dir: {shown}/state\nconfig_dir: {shown}/etc\n"
        );
        Config::parse(&text).unwrap()
    }

    #[test]
    fn the_first_file_of_an_empty_directory_is_found_by_the_commit_behind_it() {
        let directory = tempfile::tempdir().unwrap();
        let config = config(directory.path());
        let (etc, state) = (config.config_dir.clone(), config.state_dir.clone());
        for new in [etc.join("states/a/b"), etc.join("nodes"), state.join("ca")] {
            fs::create_dir_all(new).unwrap();
        }
        let mut beside = Beside::new(config);
        assert!(beside.changes().unwrap().is_empty());
        for (new, place) in [("a/b", "b"), ("a", "a"), ("", "top")] {
            // A new directory is watched from the next commit on.
            for _ in 0..2 {
                assert!(beside.before_commit().unwrap().is_empty());
            }
            assert!(beside.as_of.is_some(), "{place}: nothing is inspected");
            let name = format!("{place}.sls");
            fs::write(etc.join("states").join(new).join(&name), "a").unwrap();
            let changed = beside.before_commit().unwrap();
            assert_eq!(changed.len(), 1, "{place}: {:?}", paths(&changed));
            assert!(changed[0].path.ends_with(&name), "{:?}", paths(&changed));
        }
        fs::create_dir_all(etc.join("states/new/below")).unwrap();
        for _ in 0..2 {
            assert!(beside.before_commit().unwrap().is_empty());
        }
        assert!(beside.as_of.is_some());
        fs::write(etc.join("states/new/below/init.sls"), "a").unwrap();
        let changed = beside.before_commit().unwrap();
        assert_eq!(paths(&changed), ["config/states/new/below/init.sls"]);
    }

    #[test]
    fn a_commit_inspects_the_files_only_when_a_document_has_changed() {
        let directory = tempfile::tempdir().unwrap();
        let config = config(directory.path());
        let (etc, state) = (config.config_dir.clone(), config.state_dir.clone());
        for new in [etc.join("states/a/b"), state.join("ca")] {
            fs::create_dir_all(new).unwrap();
        }
        fs::write(etc.join("cluster.yaml"), "a").unwrap();
        fs::write(etc.join("states/a/b/init.sls"), "a").unwrap();
        let mut beside = Beside::new(config);
        assert_eq!(
            paths(&beside.changes().unwrap()),
            ["config/cluster.yaml", "config/states/a/b/init.sls"]
        );
        // The directories of the states are now known and watched.
        assert!(beside.before_commit().unwrap().is_empty());
        fs::write(state.join("sa.pub"), "a").unwrap();
        fs::write(state.join("store.db-wal"), "a").unwrap();
        assert!(beside.before_commit().unwrap().is_empty(), "not inspected");
        fs::write(state.join(REVOKED), "a").unwrap();
        let changed = beside.before_commit().unwrap();
        assert_eq!(paths(&changed), ["state/store.db.revoked"]);
        fs::write(etc.join("states/a/b/init.sls"), "other").unwrap();
        let changed = beside.before_commit().unwrap();
        assert_eq!(
            paths(&changed),
            ["config/states/a/b/init.sls", "state/sa.pub"]
        );
        fs::create_dir(etc.join("states/a/c")).unwrap();
        fs::write(etc.join("states/a/c/init.sls"), "a").unwrap();
        fs::write(state.join("ca/etcd.crt"), "a").unwrap();
        let changed = beside.before_commit().unwrap();
        assert_eq!(
            paths(&changed),
            ["config/states/a/c/init.sls", "state/ca/etcd.crt"]
        );
        fs::write(etc.join("states/a/c/init.sls"), "other").unwrap();
        let changed = beside.before_commit().unwrap();
        assert_eq!(paths(&changed), ["config/states/a/c/init.sls"]);
        fs::rename(etc.join("states/a/c"), etc.join("states/a/d")).unwrap();
        let changed = beside.before_commit().unwrap();
        assert_eq!(
            paths(&changed),
            ["config/states/a/c/init.sls", "config/states/a/d/init.sls"]
        );
        assert!(changed[0].removed);
    }

    /// A step of a rotation ends with its commit: without the keys, a promoted standby could not
    /// read the objects that API servers have encrypted since.
    #[test]
    fn a_commit_sends_the_encryption_keys_that_were_written_before_it() {
        let directory = tempfile::tempdir().unwrap();
        let config = config(directory.path());
        let (etc, state) = (config.config_dir.clone(), config.state_dir.clone());
        for new in [etc, state.join("ca"), state.join(ENCRYPTION)] {
            fs::create_dir_all(new).unwrap();
        }
        let mut beside = Beside::new(config);
        assert!(beside.changes().unwrap().is_empty());
        for keys in ["first", "first and second", "second"] {
            // The directory is watched from the next commit on.
            for _ in 0..2 {
                assert!(beside.before_commit().unwrap().is_empty());
            }
            assert!(beside.as_of.is_some(), "nothing is inspected");
            let new = state.join(ENCRYPTION).join("new");
            fs::write(&new, keys).unwrap();
            fs::rename(new, state.join(ENCRYPTION).join("keys.json")).unwrap();
            let changed = beside.before_commit().unwrap();
            assert_eq!(paths(&changed), ["state/encryption/keys.json"], "{keys}");
            assert_eq!(changed[0].data, keys.as_bytes());
        }
    }
}
