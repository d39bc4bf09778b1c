//! The hand-over of the master to a standby, on the master's host.
//!
//! One record on its disk decides. With the phase `offered` the daemon restarts and serves only its
//! standbys, so nothing changes the store any more. Once the standby has everything, the phase is
//! `decided`, and only then does the standby receive the master: this host does not serve again. If
//! no standby accepts the offer in time, the phase is `failed`, and the host continues as the
//! master.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use halite_core::config::Config;
use halite_proto::v1::TakeOver;
use serde::{Deserialize, Serialize};

use super::disk::{CopyError, read_json, remove, write_json};

/// The progress of a hand-over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The standby is being brought up to date.
    Offered,
    /// The standby has everything and is the next master.
    Decided,
    /// The standby did not connect in time, or made no progress: this host still has the master.
    Failed,
}

/// The record of a hand-over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandOver {
    /// The master's current host.
    pub from: String,
    /// The standby.
    pub to: String,
    /// `true` if `from` leaves the cluster afterwards.
    pub leaves: bool,
    /// The epoch of the next master.
    pub epoch: u64,
    /// The addresses of the other masters, starting with the address of `to`.
    pub masters: Vec<String>,
    /// The names of their hosts.
    pub hosts: Vec<String>,
    /// The time at which it started.
    pub since: String,
    /// Its progress.
    pub phase: Phase,
    /// The reason of the failure; otherwise empty.
    #[serde(default)]
    pub reason: String,
}

fn path(config: &Config) -> PathBuf {
    config.state_dir.join("hand-over.json")
}

/// Reads the record; `None` if this host has not handed the master over since it became the master.
///
/// # Errors
/// The record cannot be read.
pub fn read(config: &Config) -> Result<Option<HandOver>, CopyError> {
    read_json(&path(config))
}

/// Reads the record of a hand-over that is under way: this host serves only its standbys.
///
/// # Errors
/// The record cannot be read.
pub fn under_way(config: &Config) -> Result<Option<HandOver>, CopyError> {
    Ok(read(config)?.filter(|note| note.phase != Phase::Failed))
}

/// Writes the record; it is on disk when this returns.
///
/// # Errors
/// The record cannot be written.
pub fn write(config: &Config, note: &HandOver) -> Result<(), CopyError> {
    write_json(&path(config), note)
}

/// Removes the record, because this host is now a standby, or the master again.
///
/// # Errors
/// The record cannot be removed.
pub fn forget(config: &Config) -> Result<(), CopyError> {
    remove(&path(config))
}

/// A hand-over that is under way. Exactly one of two events decides it: the standby has everything,
/// or its time is up.
pub struct Decision {
    config: Config,
    note: Mutex<HandOver>,
}

impl Decision {
    /// Creates the hand-over of this record.
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

    /// The current record.
    #[must_use]
    pub fn note(&self) -> HandOver {
        self.lock().clone()
    }

    /// Decides that the standby, which has everything, is the next master.
    ///
    /// # Errors
    /// The hand-over has already failed, or the record cannot be written.
    pub fn decide(&self) -> Result<TakeOver, CopyError> {
        let mut note = self.lock();
        match note.phase {
            Phase::Failed => {
                return Err(CopyError::Unexpected("a hand-over that has already failed"));
            }
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

    /// Cancels the hand-over, unless it is decided; returns whether this host still has the master.
    ///
    /// # Errors
    /// The record cannot be written.
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
