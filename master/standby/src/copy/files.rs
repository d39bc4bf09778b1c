//! The files beside the store in a copy, with a record of their modes and digests.
//!
//! The record is written when a state of the master is complete; files that the master has removed
//! are deleted after that. So each file of the record exists, wherever this process ends.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use halite_core::saved::{CONFIG_PLACE, STATE_PLACE};
use halite_proto::v1::StandbyFile;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::super::disk::{
    CopyDamage, CopyError, PRIVATE, file_error, make_directory, read_json, remove, write_by,
    write_json,
};

/// The record.
const RECORD: &str = "files.json";
/// The record of an earlier version, which contains only the modes.
const MODES: &str = "modes.json";
/// A file beside the store while it is being written: among the others its name could collide.
const COMING: &str = "file.new";
const FILES: &str = "files";

/// A file of the record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    /// Its mode on the master.
    mode: u32,
    /// The digest of its content; `None` from an earlier version.
    #[serde(default)]
    sha256: Option<String>,
}

/// The files beside the store in one copy.
#[derive(Debug)]
pub(super) struct Files {
    directory: PathBuf,
    kept: BTreeMap<String, Kept>,
    /// Files that the master has removed but that still exist.
    gone: BTreeSet<String>,
    /// `true` if the record on disk has an earlier state.
    is_changed: bool,
}

impl Files {
    /// Creates the list without any file.
    pub(super) fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            kept: BTreeMap::new(),
            gone: BTreeSet::new(),
            is_changed: true,
        }
    }

    /// Reads the record in this directory of a copy.
    pub(super) fn read(directory: &Path) -> Result<Self, CopyError> {
        let kept = match read_json(&directory.join(RECORD))? {
            Some(kept) => kept,
            None => earlier(directory)?,
        };
        Ok(Self {
            kept,
            is_changed: false,
            ..Self::new(directory)
        })
    }

    /// Stores a file. It is on disk when this returns; a removal takes effect with [`Files::sync`].
    pub(super) fn take(&mut self, file: &StandbyFile) -> Result<(), CopyError> {
        let path = self.path(&file.path)?;
        if file.removed {
            self.remove(&file.path);
            return Ok(());
        }
        make_directory(path.parent().unwrap_or(Path::new(".")))?;
        write_by(&self.directory.join(COMING), &path, &file.data, PRIVATE)?;
        let kept = Kept {
            mode: file.mode,
            sha256: Some(digest(&file.data)),
        };
        self.gone.remove(&file.path);
        self.kept.insert(file.path.clone(), kept);
        self.is_changed = true;
        Ok(())
    }

    /// Removes a file with the next [`Files::sync`].
    pub(super) fn remove(&mut self, place: &str) {
        if self.kept.remove(place).is_some() {
            self.gone.insert(place.to_owned());
            self.is_changed = true;
        }
    }

    /// Writes the record to disk, and deletes the files that are not in it.
    pub(super) fn sync(&mut self) -> Result<(), CopyError> {
        if self.is_changed {
            write_json(&self.directory.join(RECORD), &self.kept)?;
            self.is_changed = false;
        }
        for place in std::mem::take(&mut self.gone) {
            remove(&self.path(&place)?)?;
        }
        Ok(())
    }

    /// The path of a file in this copy.
    fn path(&self, place: &str) -> Result<PathBuf, CopyError> {
        let mut parts = Path::new(place).components();
        let first = parts.next();
        let ours = [CONFIG_PLACE, STATE_PLACE]
            .iter()
            .any(|known| first == Some(Component::Normal(known.as_ref())));
        let mut inside = parts.clone().peekable();
        let plain =
            inside.peek().is_some() && inside.all(|part| matches!(part, Component::Normal(_)));
        if ours && plain {
            Ok(self.directory.join(FILES).join(place))
        } else {
            Err(CopyError::Place(place.to_owned()))
        }
    }

    /// The files by path in the record, with their paths on disk and modes.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, PathBuf, u32)> {
        let root = self.directory.join(FILES);
        self.kept
            .iter()
            .map(move |(place, kept)| (place.as_str(), root.join(place), kept.mode))
    }

    /// The directory of all files.
    pub(super) fn root(&self) -> PathBuf {
        self.directory.join(FILES)
    }

    /// The files that differ from those that the master sent.
    pub(super) fn damage(&self) -> Vec<CopyDamage> {
        let found = self.kept.iter().filter_map(|(place, kept)| {
            let path = self.directory.join(FILES).join(place);
            match fs::read(&path) {
                Ok(data) if kept.sha256.as_ref().is_none_or(|sum| *sum == digest(&data)) => None,
                Ok(_) => Some(CopyDamage::Changed(place.clone())),
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    Some(CopyDamage::Gone(place.clone()))
                }
                Err(error) => Some(CopyDamage::Unreadable(file_error("read", &path)(error))),
            }
        });
        found.collect()
    }
}

fn earlier(directory: &Path) -> Result<BTreeMap<String, Kept>, CopyError> {
    let modes: Option<BTreeMap<String, u32>> = read_json(&directory.join(MODES))?;
    let kept = modes.unwrap_or_default().into_iter();
    Ok(kept
        .map(|(place, mode)| (place, Kept { mode, sha256: None }))
        .collect())
}

fn digest(data: &[u8]) -> String {
    let digest = Sha256::digest(data);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
