//! The files beside the store that have changed since they were sent.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::{fs, io};

use halite_proto::v1::StandbyFile;

use crate::config::Config;
use crate::refusal::Refusal;
use crate::saved;
use crate::saved::{REVOKED, STATE_PLACE};

/// The largest file: a message has a limit, and documents are small.
const LARGEST: u64 = 32 << 20;

/// A file beside the store that cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum BesideError {
    /// It cannot be read.
    #[error(transparent)]
    File(#[from] Refusal),
    /// It is no document.
    #[error("{} is too large for a standby: at most 32 MiB", .0.display())]
    Large(PathBuf),
}

/// What a file looked like when it was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp(u64, u64, i64, i64, u32);

/// The files beside the store, as they were sent.
pub struct Beside {
    config: Config,
    sent: BTreeMap<String, Stamp>,
}

impl Beside {
    /// No file was sent yet.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            sent: BTreeMap::new(),
        }
    }

    /// The files that have changed since the last call, whole, and those that are gone.
    ///
    /// # Errors
    /// A file or directory cannot be read.
    pub fn changes(&mut self) -> Result<Vec<StandbyFile>, BesideError> {
        let files = saved::files(&self.config)?;
        let mut changes = Vec::new();
        let gone = |name: &&String| !files.iter().any(|(file, _)| file == *name);
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

    /// The record of revocations, if it has changed: it must be on a standby before the store has
    /// what it says.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn revocations(&mut self) -> Result<Vec<StandbyFile>, BesideError> {
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
            // Gone since it was listed: the next call says so.
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
