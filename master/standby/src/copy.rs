//! A standby's copy of the master's data on disk: the store's file, its log byte for byte, and the
//! files beside it, all for root only.
//!
//! Each copy is a numbered directory. It is complete once it contains `copy.json`, which is written
//! last; the newest complete one is the copy, and the others are removed. So an interrupted base
//! leaves the previous copy unchanged.

mod acknowledged;
mod files;

use std::fs;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use halite_proto::v1::{LogPiece, StandbyFile};
use halite_store::fold_log;
use halite_store::wal::{Chain, HEADER, Position};
use serde::{Deserialize, Serialize};

use self::acknowledged::LogPosition;
use self::files::Files;
use super::disk::{
    CopyDamage, CopyError, Large, file_error, make_directory, new_file, open_log, read_json,
    sync_directory, sync_file, write_json, write_private,
};

const STORE: &str = "store.db";
const LOG: &str = "store.db-wal";
const FACTS: &str = "copy.json";
/// The mark of a copy that a promotion has started to change.
const TOUCHED: &str = "promoted";

/// The facts about a copy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Facts {
    /// The epoch of the master that sent it.
    epoch: u64,
    /// The end of the log that was written to the store's file; valid while there is no other log.
    #[serde(default)]
    log: Option<LogPosition>,
}

/// A copy.
#[derive(Debug)]
pub struct Copy {
    directory: PathBuf,
    facts: Facts,
    files: Files,
    /// The position that was acknowledged last.
    acknowledged: Option<LogPosition>,
    damage: Vec<CopyDamage>,
    /// The log as far as it is written; `None` while there is no log.
    chain: Option<Chain>,
    /// The store's file, while a base is received.
    base: Option<Large>,
    log: Option<File>,
    /// `true` once a promotion has started to change the copy, so that it no longer equals a
    /// master's data.
    touched: bool,
}

impl Copy {
    /// Returns whether there is a whole copy. It changes nothing, so a standby may follow at the
    /// same time.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn is_there(root: &Path) -> Result<bool, CopyError> {
        let numbers = numbers(root)?;
        Ok(numbers
            .iter()
            .any(|number| name(root, *number).join(FACTS).exists()))
    }

    /// The current state of the newest whole copy, unless a promotion has started to change it,
    /// while the daemon continues to use it. Changes nothing, and does not read its log.
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
                files: Files::read(&directory)?,
                acknowledged: acknowledged::read(&directory)?,
                damage: Vec::new(),
                chain: None,
                base: None,
                log: None,
                touched,
                directory,
            }));
        }
        Ok(None)
    }

    /// Opens the newest whole copy, and removes the others. A damaged copy is opened too, but
    /// cannot be continued: see [`Copy::damage`].
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
        let mut copy = Self {
            facts: read_json(&directory.join(FACTS))?.unwrap_or_default(),
            files: Files::read(&directory)?,
            acknowledged: acknowledged::read(&directory)?,
            damage: Vec::new(),
            chain: None,
            base: None,
            log: None,
            touched: directory.join(TOUCHED).exists(),
            directory,
        };
        // The content of a touched copy's log comes from the promotion.
        if !copy.touched {
            copy.read_log()?;
            copy.damage.extend(copy.files.damage());
        }
        Ok(Some(copy))
    }

    fn read_log(&mut self) -> Result<(), CopyError> {
        let path = self.log();
        let (acknowledged, folded) = (self.acknowledged.as_ref(), self.facts.log.as_ref());
        let (chain, damage) = acknowledged::compare(&path, acknowledged, folded);
        if let Some(chain) = chain.as_ref().filter(|_| damage.is_none()) {
            // The data after the last commit was being received when this process ended.
            let file = OpenOptions::new().write(true).open(&path);
            file.and_then(|file| file.set_len(chain.offset()))
                .map_err(file_error("write", &path))?;
        }
        self.chain = chain;
        self.damage.extend(damage);
        Ok(())
    }

    /// The parts of the copy that differ from what this standby has acknowledged.
    #[must_use]
    pub fn damage(&self) -> &[CopyDamage] {
        &self.damage
    }

    /// The parts of the newest whole copy that differ from what this standby has acknowledged,
    /// unless a promotion has started to change it. Changes nothing. The daemon may run, but must
    /// not receive anything: a copy that changes at the same time may look damaged.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn damage_at_rest(root: &Path) -> Result<Vec<CopyDamage>, CopyError> {
        let Some(copy) = Self::peek(root)? else {
            return Ok(Vec::new());
        };
        let log = copy.damage_of_log(&copy.log());
        Ok(log.into_iter().chain(copy.files.damage()).collect())
    }

    /// Compares the exported log of this copy at this path with what this standby had acknowledged
    /// when the copy was opened.
    #[must_use]
    pub fn damage_of_log(&self, log: &Path) -> Option<CopyDamage> {
        let (acknowledged, folded) = (self.acknowledged.as_ref(), self.facts.log.as_ref());
        acknowledged::compare(log, acknowledged, folded).1
    }

    /// Starts a base beside the existing copies.
    ///
    /// # Errors
    /// A file cannot be created.
    pub fn begin(root: &Path, epoch: u64) -> Result<Self, CopyError> {
        let number = numbers(root)?.last().map_or(1, |last| last + 1);
        let directory = name(root, number);
        make_directory(&directory)?;
        let path = directory.join(STORE);
        let base = Large::new(new_file(&path)?);
        Ok(Self {
            files: Files::new(&directory),
            acknowledged: None,
            damage: Vec::new(),
            directory,
            facts: Facts { epoch, log: None },
            chain: None,
            base: Some(base),
            log: None,
            touched: false,
        })
    }

    /// Removes all other copies.
    ///
    /// # Errors
    /// A copy cannot be removed.
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

    /// Records that a promotion changes the copy from now on, so that no master's log can continue
    /// it.
    ///
    /// # Errors
    /// The record cannot be written.
    pub fn touch(&mut self) -> Result<(), CopyError> {
        write_private(&self.directory.join(TOUCHED), b"")?;
        self.touched = true;
        self.chain = None;
        Ok(())
    }

    /// The position in the master's log up to which this copy is complete; `None` if it cannot be
    /// continued.
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        if self.touched || !self.damage.is_empty() {
            return None;
        }
        let log = self.facts.log.as_ref().map(Position::from);
        self.chain.as_ref().and_then(Chain::committed).or(log)
    }

    /// The epoch of the master that sent the copy.
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

    /// The file with the facts about the copy, which is written before a log is written into the
    /// store's file.
    #[must_use]
    pub fn facts_file(&self) -> PathBuf {
        self.directory.join(FACTS)
    }

    /// Appends bytes to the store's file.
    ///
    /// # Errors
    /// No base is under way, or the file cannot be written.
    pub fn take_base(&mut self, bytes: &[u8]) -> Result<(), CopyError> {
        let path = self.store();
        let base = self.base.as_mut();
        let base = base.ok_or(CopyError::Unexpected("an unannounced base"))?;
        base.write(bytes).map_err(file_error("write", &path))
    }

    /// Appends a piece of the log, which must follow the existing one.
    ///
    /// # Errors
    /// The piece does not follow, or cannot be written.
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

    /// Writes a complete log into the store's file.
    async fn finish_log(&mut self) -> Result<(), CopyError> {
        self.log = None;
        let path = self.directory.join(LOG);
        let Some(chain) = self.chain.take() else {
            // This is a part of a log that has no commit yet.
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
        // Recorded first: afterwards the log is gone.
        self.facts.log = chain.committed().map(LogPosition::from);
        write_json(&self.directory.join(FACTS), &self.facts)?;
        Ok(fold_log(&self.store()).await?)
    }

    /// Stores a file beside the store. It is on disk when this returns; a removal takes effect with
    /// [`Copy::sync`].
    ///
    /// # Errors
    /// Its path is not one that a master sends, or it cannot be written.
    pub fn take_file(&mut self, file: &StandbyFile) -> Result<(), CopyError> {
        self.files.take(file)
    }

    /// Removes a file beside the store, with the next [`Copy::sync`].
    pub fn remove_file(&mut self, place: &str) {
        self.files.remove(place);
    }

    /// The files beside the store, with their modes on the master.
    pub fn files(&self) -> impl Iterator<Item = (&str, PathBuf, u32)> {
        self.files.iter()
    }

    /// The directory of the files beside the store.
    #[must_use]
    pub fn root_of_files(&self) -> PathBuf {
        self.files.root()
    }

    /// Syncs all received data and their record to disk, so that they may be acknowledged. A base
    /// is complete then: it is the copy from now on.
    ///
    /// # Errors
    /// The data cannot be written, or ends within a commit.
    pub fn sync(&mut self) -> Result<(), CopyError> {
        if self.chain.as_ref().is_some_and(|chain| !chain.is_whole()) {
            return Err(CopyError::Unexpected("an incomplete commit"));
        }
        self.files.sync()?;
        if let Some(log) = &self.log {
            let path = self.directory.join(LOG);
            sync_file(log, &path).map_err(file_error("write", &path))?;
        }
        // After the log: a record beyond the end of the log would count as damage.
        let end = self.position().map(LogPosition::from);
        if let Some(end) = end.filter(|end| self.acknowledged.as_ref() != Some(end)) {
            acknowledged::write(&self.directory, &end)?;
            self.acknowledged = Some(end);
        }
        if let Some(base) = self.base.take() {
            let path = self.store();
            base.end(&path).map_err(file_error("write", &path))?;
            sync_directory(&self.directory)?;
            write_json(&self.directory.join(FACTS), &self.facts)?;
        }
        Ok(())
    }

    /// Records the epoch of the master that continues the copy.
    ///
    /// # Errors
    /// The epoch cannot be written.
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

/// The numbers of all copies, complete or not.
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
