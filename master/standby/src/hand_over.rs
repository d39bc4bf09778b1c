//! The hand-over of the master to a standby, on the host that has the master.
//!
//! One note on its disk decides. With the note `offered` the daemon starts again and serves nothing
//! but its standbys; so nothing changes the store any more. When the standby has everything, the note
//! is `decided`, and only then the standby is given the master: this host does not serve again. An
//! offer that is not taken in time has `failed`, and the host goes on as the master.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use halite_core::config::Config;
use halite_proto::v1::TakeOver;
use serde::{Deserialize, Serialize};

use super::disk::{CopyError, read_json, remove, write_json};

/// How far a hand-over is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The standby is brought up to date.
    Offered,
    /// The standby has everything and is the next master.
    Decided,
    /// The standby was not there in time, or made no progress: this host has the master still.
    Failed,
}

/// The note of a hand-over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandOver {
    /// The host that has the master.
    pub from: String,
    /// The standby.
    pub to: String,
    /// `from` leaves the cluster afterwards.
    pub leaves: bool,
    /// The epoch of the next master.
    pub epoch: u64,
    /// The addresses of the other masters, that of `to` first.
    pub masters: Vec<String>,
    /// The names of their hosts.
    pub hosts: Vec<String>,
    /// The time at which it began.
    pub since: String,
    /// How far it is.
    pub phase: Phase,
    /// Why it failed; otherwise empty.
    #[serde(default)]
    pub reason: String,
}

fn path(config: &Config) -> PathBuf {
    config.state_dir.join("hand-over.json")
}

/// The note; none while the master was never handed over since this host has it.
///
/// # Errors
/// It cannot be read.
pub fn read(config: &Config) -> Result<Option<HandOver>, CopyError> {
    read_json(&path(config))
}

/// The note of a hand-over that is under way: this host serves nothing but its standbys.
///
/// # Errors
/// It cannot be read.
pub fn under_way(config: &Config) -> Result<Option<HandOver>, CopyError> {
    Ok(read(config)?.filter(|note| note.phase != Phase::Failed))
}

/// Writes the note; it is on disk when this returns.
///
/// # Errors
/// It cannot be written.
pub fn write(config: &Config, note: &HandOver) -> Result<(), CopyError> {
    write_json(&path(config), note)
}

/// Removes the note: this host is a standby now, or the master again.
///
/// # Errors
/// It cannot be removed.
pub fn forget(config: &Config) -> Result<(), CopyError> {
    remove(&path(config))
}

/// A hand-over that is under way. Between the standby that has everything and the end of the time for
/// it only one decides.
pub struct Decision {
    config: Config,
    note: Mutex<HandOver>,
}

impl Decision {
    /// The hand-over of this note.
    #[must_use]
    pub fn new(config: Config, note: HandOver) -> Self {
        Self {
            config,
            note: Mutex::new(note),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HandOver> {
        self.note.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The note as it is now.
    #[must_use]
    pub fn note(&self) -> HandOver {
        self.lock().clone()
    }

    /// Decides that the standby, which has everything, is the next master.
    ///
    /// # Errors
    /// The hand-over has failed before, or the note cannot be written.
    pub fn decide(&self) -> Result<TakeOver, CopyError> {
        let mut note = self.lock();
        match note.phase {
            Phase::Failed => return Err(CopyError::Unexpected("a standby that comes too late")),
            Phase::Decided => {}
            Phase::Offered => {
                let decided = HandOver {
                    phase: Phase::Decided,
                    ..note.clone()
                };
                write(&self.config, &decided)?;
                *note = decided;
            }
        }
        Ok(TakeOver {
            epoch: note.epoch,
            from: note.from.clone(),
            leaves: note.leaves,
        })
    }

    /// Gives the hand-over up, unless it is decided; answers with whether this host has the master
    /// still.
    ///
    /// # Errors
    /// The note cannot be written.
    pub fn give_up(&self, reason: &str) -> Result<bool, CopyError> {
        let mut note = self.lock();
        if note.phase == Phase::Offered {
            let failed = HandOver {
                phase: Phase::Failed,
                reason: reason.to_owned(),
                ..note.clone()
            };
            write(&self.config, &failed)?;
            *note = failed;
        }
        Ok(note.phase == Phase::Failed)
    }
}
