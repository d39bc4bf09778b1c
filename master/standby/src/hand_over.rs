//! The hand-over of the master to a standby, on the master's host.
//!
//! One record on its disk decides. With the phase `offered` the daemon restarts and serves only its
//! standbys, so nothing changes the store any more. Once the standby has everything, the phase is
//! `decided`, and only then does the standby receive the master: this host does not serve again. If
//! no standby accepts the offer in time, the phase is `failed`, and the host continues as the
//! master.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use halite_api::{HandOver, HandOverPhase};
use halite_core::config::Config;
use halite_proto::v1::TakeOver;

use super::disk::{CopyError, read_json, remove, write_json};

fn path(config: &Config) -> PathBuf {
    config.state_dir.join(HandOver::FILE)
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
    Ok(read(config)?.filter(|note| note.phase != HandOverPhase::Failed))
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
            HandOverPhase::Failed => {
                return Err(CopyError::Unexpected("a hand-over that has already failed"));
            }
            HandOverPhase::Decided => {}
            HandOverPhase::Offered => {
                let decided = HandOver {
                    phase: HandOverPhase::Decided,
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
        if note.phase == HandOverPhase::Offered {
            let failed = HandOver {
                phase: HandOverPhase::Failed,
                reason: reason.to_owned(),
                ..note.clone()
            };
            write(&self.config, &failed)?;
            *note = failed;
        }
        Ok(note.phase == HandOverPhase::Failed)
    }
}
