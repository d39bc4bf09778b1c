//! A standby's copy of what the master has, on disk: the store's file, its log byte for byte, and the
//! files beside it, all for root only.
//!
//! Each copy is a directory with a number. It counts from the moment in which it has `copy.json`,
//! which is written last; the newest that has it is the copy, and the others are removed. So a base
//! that was interrupted leaves the copy before it as it was.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};
use std::{fs, io};

use halite_proto::v1::{LogPiece, StandbyFile};
use serde::{Deserialize, Serialize};

use crate::saved::{CONFIG_PLACE, STATE_PLACE};
use crate::store::wal::{Chain, HEADER, Position, WalError};
use crate::store::{StoreError, fold_log};

const STORE: &str = "store.db";
const LOG: &str = "store.db-wal";
const FACTS: &str = "copy.json";
const MODES: &str = "modes.json";
const FILES: &str = "files";
const PRIVATE: u32 = 0o600;

/// A copy that cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// A file.
    #[error("cannot {action} {}", path.display())]
    File {
        /// A verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// What came does not follow what is there.
    #[error(transparent)]
    Log(#[from] WalError),
    /// The copy's database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file of another place.
    #[error("a standby takes no file {0:?}")]
    Place(String),
    /// A record that does not fit.
    #[error("the master sent {0}")]
    Unexpected(&'static str),
    /// A record of the copy cannot be read.
    #[error("cannot use {}", path.display())]
    Facts {
        /// The file.
        path: PathBuf,
        /// The mistake.
        source: serde_json::Error,
    },
    /// A master that was replaced.
    #[error(
        "the master has the epoch {master}, and this host has heard of {seen}: that master was replaced"
    )]
    Epoch {
        /// The master's.
        master: u64,
        /// The highest that this host has heard of.
        seen: u64,
    },
}

/// The error of an action on a file.
pub(super) fn file_error(
    action: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> CopyError + use<> {
    let path = path.to_owned();
    move |source| CopyError::File {
        action,
        path,
        source,
    }
}

/// The facts about a copy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Facts {
    /// The epoch of the master that sent it.
    epoch: u64,
    /// The end of the log that went into the store's file; it counts while there is no other log.
    #[serde(default)]
    log: Option<Place>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    salt: [u8; 8],
    frames: u32,
    checksum: [u8; 8],
}

/// A copy.
#[derive(Debug)]
pub struct Copy {
    directory: PathBuf,
    facts: Facts,
    modes: BTreeMap<String, u32>,
    /// The log as far as it is written; none while there is none.
    chain: Option<Chain>,
    /// The store's file, while a base comes.
    base: Option<File>,
    log: Option<File>,
}

impl Copy {
    /// Opens the newest whole copy, and removes the others.
    ///
    /// # Errors
    /// A file cannot be read or removed.
    pub fn open(root: &Path) -> Result<Option<Self>, CopyError> {
        let numbers = numbers(root)?;
        let whole = |number: &&u64| name(root, **number).join(FACTS).exists();
        let newest = numbers.iter().rev().find(whole).copied();
        for number in numbers.iter().filter(|number| Some(**number) != newest) {
            let other = name(root, *number);
            fs::remove_dir_all(&other).map_err(file_error("remove", &other))?;
        }
        let Some(newest) = newest else {
            return Ok(None);
        };
        let directory = name(root, newest);
        let chain = Chain::read(&directory.join(LOG))?;
        if let Some(chain) = &chain {
            // What is behind the last commit was on its way when this process ended.
            let path = directory.join(LOG);
            let file = OpenOptions::new().write(true).open(&path);
            file.and_then(|file| file.set_len(chain.offset()))
                .map_err(file_error("write", &path))?;
        }
        Ok(Some(Self {
            facts: read_json(&directory.join(FACTS))?.unwrap_or_default(),
            modes: read_json(&directory.join(MODES))?.unwrap_or_default(),
            chain,
            base: None,
            log: None,
            directory,
        }))
    }

    /// Begins a base beside the copies that there are.
    ///
    /// # Errors
    /// A file cannot be made.
    pub fn begin(root: &Path, epoch: u64) -> Result<Self, CopyError> {
        let number = numbers(root)?.last().map_or(1, |last| last + 1);
        let directory = name(root, number);
        make_directory(&directory)?;
        let path = directory.join(STORE);
        let base = new_file(&path)?;
        Ok(Self {
            directory,
            facts: Facts { epoch, log: None },
            modes: BTreeMap::new(),
            chain: None,
            base: Some(base),
            log: None,
        })
    }

    /// Removes all other copies.
    ///
    /// # Errors
    /// One cannot be removed.
    pub fn remove_others(&self) -> Result<(), CopyError> {
        let root = self.directory.parent().unwrap_or(Path::new("."));
        for number in numbers(root)? {
            let other = name(root, number);
            if other != self.directory {
                fs::remove_dir_all(&other).map_err(file_error("remove", &other))?;
            }
        }
        Ok(())
    }

    /// The place in the master's log up to which this copy has everything.
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        let log = self.facts.log.as_ref().map(|log| Position {
            salt: log.salt,
            frames: log.frames,
            checksum: log.checksum,
        });
        self.chain.as_ref().and_then(Chain::committed).or(log)
    }

    /// The epoch of the master that sent it.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.facts.epoch
    }

    /// The store's file. Its log is beside it.
    #[must_use]
    pub fn store(&self) -> PathBuf {
        self.directory.join(STORE)
    }

    /// Takes the next bytes of the store's file.
    ///
    /// # Errors
    /// No base is under way, or the file cannot be written.
    pub fn take_base(&mut self, bytes: &[u8]) -> Result<(), CopyError> {
        let path = self.store();
        let base = self.base.as_mut();
        let base = base.ok_or(CopyError::Unexpected("a base that it has not announced"))?;
        base.write_all(bytes).map_err(file_error("write", &path))
    }

    /// Takes a piece of the log, which must follow what is there.
    ///
    /// # Errors
    /// It does not follow, or cannot be written.
    pub async fn take_log(&mut self, piece: &LogPiece) -> Result<(), CopyError> {
        let mut frames = piece.data.as_slice();
        let path = self.directory.join(LOG);
        let mut chain = if piece.offset == 0 {
            let chain = Chain::begin(frames)?;
            frames = frames.get(HEADER..).unwrap_or_default();
            self.finish_log().await?;
            chain
        } else {
            let follows =
                |chain: &&Chain| chain.salt() == *piece.salt && chain.offset() == piece.offset;
            let chain = self.chain.as_ref().filter(follows).cloned();
            chain.ok_or(CopyError::Unexpected(
                "a piece of the log that does not follow",
            ))?
        };
        chain.add(frames)?;
        let file = match &mut self.log {
            Some(file) => file,
            none => none.insert(open_log(&path)?),
        };
        file.write_all_at(&piece.data, piece.offset)
            .map_err(file_error("write", &path))?;
        self.chain = Some(chain);
        Ok(())
    }

    /// Writes a log that is complete into the store's file.
    async fn finish_log(&mut self) -> Result<(), CopyError> {
        self.log = None;
        let path = self.directory.join(LOG);
        let Some(chain) = self.chain.take() else {
            // A part of a log that has no commit yet.
            return match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    Err(file_error("remove", &path)(error))
                }
                _ => Ok(()),
            };
        };
        if !chain.is_whole() {
            return Err(CopyError::Unexpected(
                "another log before the end of a commit",
            ));
        }
        // Noted first: afterwards the log is gone.
        self.facts.log = chain.committed().map(|end| Place {
            salt: end.salt,
            frames: end.frames,
            checksum: end.checksum,
        });
        write_json(&self.directory.join(FACTS), &self.facts)?;
        Ok(fold_log(&self.store()).await?)
    }

    /// Takes a file beside the store. It is on disk when this returns.
    ///
    /// # Errors
    /// Its place is not among those that a master sends, or it cannot be written.
    pub fn take_file(&mut self, file: &StandbyFile) -> Result<(), CopyError> {
        let path = self.file(&file.path)?;
        if file.removed {
            return self.remove_file(&file.path);
        }
        make_directory(path.parent().unwrap_or(Path::new(".")))?;
        write_private(&path, &file.data)?;
        self.modes.insert(file.path.clone(), file.mode);
        Ok(())
    }

    /// Removes a file beside the store.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove_file(&mut self, place: &str) -> Result<(), CopyError> {
        let path = self.file(place)?;
        self.modes.remove(place);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(file_error("remove", &path)(error))
            }
            _ => Ok(()),
        }
    }

    /// The place of a file beside the store in this copy.
    fn file(&self, place: &str) -> Result<PathBuf, CopyError> {
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

    /// The files beside the store, with the modes that they have on the master.
    pub fn files(&self) -> impl Iterator<Item = (&str, PathBuf, u32)> {
        let root = self.directory.join(FILES);
        self.modes
            .iter()
            .map(move |(place, mode)| (place.as_str(), root.join(place), *mode))
    }

    /// Has all that was taken on disk. A base is whole then: it is the copy from now on.
    ///
    /// # Errors
    /// It cannot be written, or it ends within a commit.
    pub fn sync(&mut self) -> Result<(), CopyError> {
        if self.chain.as_ref().is_some_and(|chain| !chain.is_whole()) {
            return Err(CopyError::Unexpected("a part of a commit"));
        }
        write_json(&self.directory.join(MODES), &self.modes)?;
        if let Some(log) = &self.log {
            let path = self.directory.join(LOG);
            log.sync_all().map_err(file_error("write", &path))?;
        }
        if let Some(base) = self.base.take() {
            base.sync_all()
                .map_err(file_error("write", &self.store()))?;
            sync_directory(&self.directory)?;
            write_json(&self.directory.join(FACTS), &self.facts)?;
        }
        Ok(())
    }

    /// Notes the epoch of the master that continues the copy.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn set_epoch(&mut self, epoch: u64) -> Result<(), CopyError> {
        if self.facts.epoch != epoch {
            self.facts.epoch = epoch;
            write_json(&self.directory.join(FACTS), &self.facts)?;
        }
        Ok(())
    }
}

fn name(root: &Path, number: u64) -> PathBuf {
    root.join(format!("copy-{number}"))
}

/// The numbers of all copies, whole or not.
fn numbers(root: &Path) -> Result<Vec<u64>, CopyError> {
    let entries = match fs::read_dir(root) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(file_error("read", root)(error)),
    };
    let mut numbers = Vec::new();
    for entry in entries {
        let name = entry.map_err(file_error("read", root))?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("copy-"));
        numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

fn new_file(path: &Path) -> Result<File, CopyError> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(PRIVATE)
        .open(path)
        .map_err(file_error("write", path))
}

/// Opens the log as it is; a new one is in its directory when this returns.
fn open_log(path: &Path) -> Result<File, CopyError> {
    let is_new = !path.exists();
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(PRIVATE)
        .open(path)
        .map_err(file_error("write", path))?;
    if is_new {
        sync_directory(path.parent().unwrap_or(Path::new(".")))?;
    }
    Ok(file)
}

/// Makes a directory for root only, with those above it.
pub(super) fn make_directory(path: &Path) -> Result<(), CopyError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(file_error("make", path))
}

fn sync_directory(path: &Path) -> Result<(), CopyError> {
    File::open(path)
        .and_then(|directory| directory.sync_all())
        .map_err(file_error("write", path))
}

/// Writes a file for root only, whole or not at all.
pub(super) fn write_private(path: &Path, bytes: &[u8]) -> Result<(), CopyError> {
    write(path, bytes, PRIVATE)
}

/// Writes a file whole or not at all; it is on disk when this returns.
pub(super) fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<(), CopyError> {
    use std::os::unix::fs::PermissionsExt as _;
    let parent = path.parent().unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = parent.join(format!(".{name}.new"));
    let mut file = new_file(&new)?;
    let written = file
        .set_permissions(fs::Permissions::from_mode(mode))
        .and_then(|()| file.write_all(bytes))
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&new, path));
    written.map_err(file_error("write", path))?;
    sync_directory(parent)
}

/// Reads a record; none when there is none.
pub(super) fn read_json<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<Option<T>, CopyError> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(file_error("read", path)(error)),
    };
    let parsed = serde_json::from_slice(&text);
    parsed.map(Some).map_err(|source| CopyError::Facts {
        path: path.to_owned(),
        source,
    })
}

/// Writes a record, whole or not at all.
pub(super) fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<(), CopyError> {
    let text = serde_json::to_vec(value).map_err(|source| CopyError::Facts {
        path: path.to_owned(),
        source,
    })?;
    write_private(path, &text)
}
