//! A standby's copy of what the master has, on disk: the store's file, its log byte for byte, and the
//! files beside it, all for root only.
//!
//! Each copy is a directory with a number. It counts from the moment in which it has `copy.json`,
//! which is written last; the newest that has it is the copy, and the others are removed. So a base
//! that was interrupted leaves the copy before it as it was.

use std::collections::BTreeMap;
use std::fs;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt as _;
use std::path::{Component, Path, PathBuf};

use halite_proto::v1::{LogPiece, StandbyFile};
use serde::{Deserialize, Serialize};

use super::disk::{
    CopyError, Large, PRIVATE, file_error, make_directory, new_file, open_log, read_json,
    sync_directory, write_by, write_json, write_private,
};
use crate::saved::{CONFIG_PLACE, STATE_PLACE};
use crate::store::fold_log;
use crate::store::wal::{Chain, HEADER, Position};

const STORE: &str = "store.db";
const LOG: &str = "store.db-wal";
const FACTS: &str = "copy.json";
const MODES: &str = "modes.json";
/// The mark of a copy that a promotion has begun to change.
const TOUCHED: &str = "promoted";
/// A file beside the store while it is written: beside the others it could have the name of one.
const COMING: &str = "file.new";
const FILES: &str = "files";

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
    base: Option<Large>,
    log: Option<File>,
    /// A promotion has begun to change it: it is no longer what a master had.
    touched: bool,
}

impl Copy {
    /// Says whether there is a whole copy. It changes nothing, so a standby may follow.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn is_there(root: &Path) -> Result<bool, CopyError> {
        let numbers = numbers(root)?;
        Ok(numbers
            .iter()
            .any(|number| name(root, *number).join(FACTS).exists()))
    }

    /// The newest whole copy that no promotion has begun to change, as it is at this moment, while
    /// the daemon goes on with it. Nothing is changed, and its log is not read.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn peek(root: &Path) -> Result<Option<Self>, CopyError> {
        for number in numbers(root)?.into_iter().rev() {
            let directory = name(root, number);
            let Some(facts) = read_json(&directory.join(FACTS))? else {
                continue;
            };
            let touched = directory.join(TOUCHED).exists();
            return Ok((!touched).then_some(Self {
                facts,
                modes: read_json(&directory.join(MODES))?.unwrap_or_default(),
                chain: None,
                base: None,
                log: None,
                touched,
                directory,
            }));
        }
        Ok(None)
    }

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
        let touched = directory.join(TOUCHED).exists();
        // What is in the log then comes from the promotion.
        let chain = if touched {
            None
        } else {
            Chain::read(&directory.join(LOG))?
        };
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
            touched,
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
        let base = Large::new(new_file(&path)?);
        Ok(Self {
            directory,
            facts: Facts { epoch, log: None },
            modes: BTreeMap::new(),
            chain: None,
            base: Some(base),
            log: None,
            touched: false,
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

    /// Notes that a promotion changes the copy from now on: no master's log continues it any more.
    ///
    /// # Errors
    /// The note cannot be written.
    pub fn touch(&mut self) -> Result<(), CopyError> {
        write_private(&self.directory.join(TOUCHED), b"")?;
        self.touched = true;
        self.chain = None;
        Ok(())
    }

    /// The place in the master's log up to which this copy has everything; none when it cannot be
    /// continued.
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        if self.touched {
            return None;
        }
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

    /// The log of the store.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.directory.join(LOG)
    }

    /// The file with the facts about the copy, which is written before a log goes into the store's
    /// file.
    #[must_use]
    pub fn facts_file(&self) -> PathBuf {
        self.directory.join(FACTS)
    }

    /// Takes the next bytes of the store's file.
    ///
    /// # Errors
    /// No base is under way, or the file cannot be written.
    pub fn take_base(&mut self, bytes: &[u8]) -> Result<(), CopyError> {
        let path = self.store();
        let base = self.base.as_mut();
        let base = base.ok_or(CopyError::Unexpected("a base that it has not announced"))?;
        base.write(bytes).map_err(file_error("write", &path))
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
        write_by(&self.directory.join(COMING), &path, &file.data, PRIVATE)?;
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
            base.end().map_err(file_error("write", &self.store()))?;
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
