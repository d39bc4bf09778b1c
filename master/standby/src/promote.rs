//! `halite-master promote`, which makes this standby's host the master's.
//!
//! Each step may be repeated, and its result is found on disk: a promotion that was interrupted
//! anywhere resumes when it is started again. The record of the promotion is written before the
//! first change and removed after the last; the file that makes this host a standby is removed only
//! once everything is in place.

mod boundary;
mod copy_check;
mod error;
mod masters_check;
mod preview;
mod take_over;

use std::path::{Path, PathBuf};
use std::{fs, io};

use halite_core::clock::Clock;
use halite_core::config::Config;
use halite_core::init::init;
use halite_core::isolation;
use halite_core::saved;
use halite_core::saved::{CONFIG_PLACE, STATE_PLACE};
use halite_core::succession;
use halite_core::succession::NotStarted;
use halite_store::epoch::{HIGHEST, next};
use halite_store::{fold_log, note_epoch, noted_epoch, raise_epoch};
use serde::{Deserialize, Serialize};

use super::compare::StandsBy;
use super::copy::Copy;
use super::disk::{
    CopyError, PRIVATE, file_error, make_directory, read_json, remove, sync_directory, write,
    write_json,
};
use super::receiver::{heard_epoch, note_heard};
use super::{directory, hand_over, mark, mark_before, masters};

pub use self::boundary::Boundary;
pub use self::error::{CheckError, PromoteError};
pub use self::preview::{PromotionEffect, PromotionPreview};

/// The store's file in the master's directory.
const STORE: &str = "store.db";
/// Files left by the previous store.
const OF_STORE: [&str; 7] = [
    "", "-wal", "-shm", ".epoch", ".backup", ".suspect", ".revoked",
];

/// The daemon's unit.
pub trait Unit {
    /// Stops the unit, and waits until it has stopped.
    ///
    /// # Errors
    /// The unit is still running.
    fn stop(&self) -> io::Result<()>;
    /// Starts the unit.
    ///
    /// # Errors
    /// The unit does not start.
    fn start(&self) -> io::Result<()>;
}

/// The options of the operator.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PromotionRequest {
    /// `true` to promote even while a master answers.
    pub force: bool,
    /// The name of the cluster, which `force` requires.
    pub cluster: Option<String>,
}

/// The result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Promoted {
    /// This host is the master's, with this epoch.
    Done(u64),
    /// This host already was the master's.
    WasMaster,
}

/// The record of a promotion that is under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    epoch: u64,
}

/// A promotion.
pub struct Promotion<'a> {
    config: &'a Config,
    minion: &'a Path,
    clock: &'a dyn Clock,
    unit: &'a dyn Unit,
    /// Notifies the operator of waits and of unreachable hosts.
    note: fn(&str),
    /// The boundary at which a test interrupts the promotion.
    #[cfg(test)]
    pub(super) end_at: Option<Boundary>,
}

impl<'a> Promotion<'a> {
    /// Creates the promotion of the host with this configuration of a master. `minion` is the
    /// directory of the identity of its minion.
    #[must_use]
    pub fn new(
        config: &'a Config,
        minion: &'a Path,
        clock: &'a dyn Clock,
        unit: &'a dyn Unit,
    ) -> Self {
        Self {
            config,
            minion,
            clock,
            unit,
            note: |_| {},
            #[cfg(test)]
            end_at: None,
        }
    }

    /// Sets the function that notifies the operator.
    #[must_use]
    pub fn with_notes(self, note: fn(&str)) -> Self {
        Self { note, ..self }
    }

    /// Makes this host the master's.
    ///
    /// # Errors
    /// A master answers, there is no copy, a newer program has changed it, or a step fails: then
    /// the next start resumes.
    pub async fn run(&self, wanted: &PromotionRequest) -> Result<Promoted, PromoteError> {
        let note = self.note_file();
        let mark = mark(self.config);
        let found: Option<Note> = read_json(&note)?;
        let addresses = masters(&mark).map_err(file_error("read", &mark))?;
        match (&found, &addresses) {
            (None, None) if self.config.state_dir.join(STORE).exists() => {
                return self.take_back(wanted).await;
            }
            (None, None) => return Err(PromoteError::NoStandby(mark)),
            (_, Some(addresses)) => {
                let standbys = self.check_masters(addresses, wanted).await?;
                self.hear(&standbys)?;
                // A standby that is not promoted continues: nothing queries its copy in a way that
                // changes it.
                if !Copy::is_there(&directory(self.config))? {
                    return Err(PromoteError::NoCopy);
                }
                if found.is_none() {
                    self.check_age(wanted, &standbys)?;
                }
            }
            (Some(_), None) if self.obstacle()?.is_some() => {
                // The master of this host has started since that promotion: only this is left of
                // it.
                remove(&directory(self.config))?;
                remove(&note)?;
                return self.take_back(wanted).await;
            }
            (Some(_), None) => {}
        }
        self.stop()?;
        self.reach(Boundary::Stopped)?;
        let checked = match &addresses {
            Some(_) => self.check_copy(wanted).await,
            None => Ok(()),
        };
        let epoch = checked.and_then(|()| self.epoch(found, addresses.is_some(), &note));
        let epoch = match epoch {
            Ok(epoch) => epoch,
            Err(error) => {
                // Nothing has changed yet: the standby follows again.
                self.start()?;
                return Err(error);
            }
        };
        self.reach(Boundary::Noted)?;
        if addresses.is_some() {
            self.install(epoch).await?;
        }
        let root = directory(self.config);
        remove(&root)?;
        self.reach(Boundary::Removed)?;
        self.start()?;
        self.reach(Boundary::Started)?;
        // Last: until then another start resumes.
        remove(&note)?;
        Ok(Promoted::Done(epoch))
    }

    /// The file with the record of a promotion that is under way.
    fn note_file(&self) -> PathBuf {
        self.config.state_dir.join("promotion.json")
    }

    /// The epoch of this promotion, which is recorded when this returns.
    fn epoch(
        &self,
        found: Option<Note>,
        is_standby: bool,
        note: &Path,
    ) -> Result<u64, PromoteError> {
        match found {
            // A promotion that was abandoned, and whose host became the standby of a later master,
            // starts again.
            Some(found) if !is_standby || found.epoch > self.heard()? => Ok(found.epoch),
            _ => self.note(note),
        }
    }

    /// The reason why the master of this host does not act, with the highest epoch of which it has
    /// heard.
    fn obstacle(&self) -> Result<Option<(u64, PromoteError)>, PromoteError> {
        let own = noted_epoch(&self.config.state_dir.join(STORE))?;
        Ok(match succession::check(&self.config.state_dir, own) {
            Err(NotStarted::Replaced(replaced)) => {
                Some((replaced.heard, PromoteError::from(replaced)))
            }
            Err(unknown) => return Err(PromoteError::from(unknown)),
            Ok(()) => match hand_over::under_way(self.config)? {
                Some(note) => Some((note.epoch, PromoteError::HandedOver(note.to))),
                None => isolation::is_noted(&self.config.state_dir)
                    .then_some((own, PromoteError::Isolated)),
            },
        })
    }

    /// Makes a replaced master the master again, and an isolated one act alone; in any other case
    /// the host already has the acting master.
    async fn take_back(&self, wanted: &PromotionRequest) -> Result<Promoted, PromoteError> {
        let Some((heard, reason)) = self.obstacle()? else {
            // A previous start may have ended before its last step.
            self.start()?;
            return Ok(Promoted::WasMaster);
        };
        if !wanted.force {
            return Err(reason);
        }
        self.check_cluster(wanted)?;
        let store = self.config.state_dir.join(STORE);
        self.stop()?;
        self.reach(Boundary::Stopped)?;
        let epoch = next(heard)?;
        let starts = raise_epoch(&store, epoch).await?;
        self.reach(Boundary::Raised)?;
        // Before the epoch is recorded: from then on the host is the master's, and another start
        // only starts the unit.
        isolation::act_alone(&self.config.state_dir)?;
        note_epoch(&store, epoch, starts)?;
        self.reach(Boundary::Epoch)?;
        self.forget_replacement()?;
        self.reach(Boundary::Master)?;
        self.start()?;
        self.reach(Boundary::Started)?;
        Ok(Promoted::Done(epoch))
    }

    fn check_cluster(&self, wanted: &PromotionRequest) -> Result<(), PromoteError> {
        if wanted.cluster.as_deref() == Some(self.config.cluster.as_str()) {
            Ok(())
        } else {
            Err(PromoteError::Cluster(self.config.cluster.clone()))
        }
    }

    fn stop(&self) -> Result<(), PromoteError> {
        let stopped = self.unit.stop();
        stopped.map_err(|source| PromoteError::Unit {
            action: "stop",
            source,
        })
    }

    fn start(&self) -> Result<(), PromoteError> {
        let started = self.unit.start();
        started.map_err(|source| PromoteError::Unit {
            action: "start",
            source,
        })
    }

    fn forget_replacement(&self) -> Result<(), CopyError> {
        hand_over::forget(self.config)?;
        let forgotten = succession::forget(&self.config.state_dir);
        forgotten.map_err(file_error(
            "remove",
            &self.config.state_dir.join("replaced"),
        ))
    }

    /// The highest epoch of which this standby has heard.
    fn heard(&self) -> Result<u64, PromoteError> {
        let copy = Copy::open(&directory(self.config))?.ok_or(PromoteError::NoCopy)?;
        let heard = heard_epoch(&directory(self.config))?;
        Ok(copy.epoch().max(heard.number))
    }

    /// Records the highest epoch of which another standby has evidence, so that this promotion
    /// exceeds it.
    fn hear(&self, standbys: &[StandsBy]) -> Result<(), PromoteError> {
        let shown = standbys
            .iter()
            .filter_map(|standby| standby.epoch.evidence());
        let highest = shown.max_by(|one, other| one.rank().cmp(&other.rank()));
        if let Some(highest) = highest.filter(|highest| highest.number <= HIGHEST) {
            note_heard(&directory(self.config), &highest)?;
        }
        Ok(())
    }

    /// Chooses an epoch above each that this host has heard of.
    fn note(&self, note: &Path) -> Result<u64, PromoteError> {
        let own = noted_epoch(&self.config.state_dir.join(STORE))?;
        let epoch = next(self.heard()?.max(own))?;
        write_json(note, &Note { epoch })?;
        Ok(epoch)
    }

    /// Puts the copy in the master's place.
    async fn install(&self, epoch: u64) -> Result<(), PromoteError> {
        let mut copy = Copy::open(&directory(self.config))?.ok_or(PromoteError::NoCopy)?;
        // First: a standby that starts before this promotion resumes needs a new base.
        copy.touch()?;
        let (from, to) = (copy.store(), self.config.state_dir.join(STORE));
        // Once the store is in place, the copy no longer contains it.
        if from.exists() {
            fold_log(&from).await?;
            let starts = raise_epoch(&from, epoch).await?;
            write_json(&directory(self.config).join("starts"), &starts)?;
            self.reach(Boundary::Raised)?;
            self.install_files(&copy, epoch)?;
            self.reach(Boundary::Files)?;
            self.clear_store()?;
            self.reach(Boundary::Cleared)?;
            self.install_revocations(&copy)?;
            fs::rename(&from, &to).map_err(file_error("move the copy to", &to))?;
            sync_directory(&self.config.state_dir)?;
        }
        self.reach(Boundary::Store)?;
        let starts: Option<i64> = read_json(&directory(self.config).join("starts"))?;
        note_epoch(&to, epoch, starts.unwrap_or_default())?;
        self.reach(Boundary::Epoch)?;
        // There may be no other standby to follow this master.
        isolation::act_alone(&self.config.state_dir)?;
        init(self.config, self.clock.now())?;
        self.reach(Boundary::Identities)?;
        self.forget_replacement()?;
        let mark = mark(self.config);
        if let Ok(addresses) = fs::read(&mark) {
            write(&mark_before(self.config), &addresses, PRIVATE)?;
        }
        remove(&mark)?;
        self.reach(Boundary::Master)?;
        Ok(())
    }

    /// Writes the files beside the store, and sets aside those that the master did not have.
    fn install_files(&self, copy: &Copy, epoch: u64) -> Result<(), PromoteError> {
        let files: Vec<(String, PathBuf, u32)> = copy
            .files()
            .map(|(place, path, mode)| (place.to_owned(), path, mode))
            .collect();
        make_directory(&self.config.config_dir)?;
        for (place, path, mode) in &files {
            if *place == format!("{STATE_PLACE}/{}", saved::REVOKED) {
                continue;
            }
            let to = self.place(place);
            make_directory(to.parent().unwrap_or(Path::new("/")))?;
            let content = match fs::read(path) {
                // A damaged copy that the operator promotes nevertheless may lack the file.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                read => read.map_err(file_error("read", path))?,
            };
            write(&to, &content, *mode)?;
        }
        let aside = self.config.state_dir.join(format!("before-epoch-{epoch}"));
        for (place, path) in saved::files(self.config)? {
            let known = files.iter().any(|(other, _, _)| *other == place);
            if known || place == format!("{STATE_PLACE}/{}", saved::REVOKED) {
                continue;
            }
            let to = aside.join(&place);
            make_directory(to.parent().unwrap_or(Path::new("/")))?;
            let content = fs::read(&path).map_err(file_error("read", &path))?;
            write(&to, &content, 0o600)?;
            remove(&path)?;
        }
        Ok(())
    }

    /// Installs the record of revocations, which belongs to its store.
    fn install_revocations(&self, copy: &Copy) -> Result<(), PromoteError> {
        let place = format!("{STATE_PLACE}/{}", saved::REVOKED);
        let found = copy.files().find(|(other, _, _)| *other == place);
        // A damaged copy may lack it.
        if let Some((_, path, _)) = found.filter(|(_, path, _)| path.exists()) {
            let content = fs::read(&path).map_err(file_error("read", &path))?;
            write(&self.place(&place), &content, 0o600)?;
        }
        Ok(())
    }

    fn place(&self, place: &str) -> PathBuf {
        match place.split_once('/') {
            Some((CONFIG_PLACE, rest)) => self.config.config_dir.join(rest),
            Some((_, rest)) => self.config.state_dir.join(rest),
            None => self.config.state_dir.join(place),
        }
    }

    /// Removes the store of an earlier master of this host: the copy is newer.
    fn clear_store(&self) -> Result<(), PromoteError> {
        for suffix in OF_STORE {
            remove(&self.config.state_dir.join(format!("{STORE}{suffix}")))?;
        }
        Ok(())
    }

    #[cfg(test)]
    fn reach(&self, boundary: Boundary) -> Result<(), PromoteError> {
        if self.end_at == Some(boundary) {
            return Err(PromoteError::Ended(boundary));
        }
        Ok(())
    }

    #[cfg(not(test))]
    #[expect(
        clippy::unused_self,
        clippy::unnecessary_wraps,
        reason = "a test interrupts a promotion here"
    )]
    fn reach(&self, boundary: Boundary) -> Result<(), PromoteError> {
        tracing::debug!(number = boundary as u32, "{boundary:?}");
        Ok(())
    }
}
