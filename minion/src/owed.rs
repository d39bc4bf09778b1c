//! What this host has changed and not everybody has acted on who should, across runs: a service's file was written, and the
//! power went before the service was restarted.
//!
//! One directory, one file a state, each atomic and fsynced: written before the state changes anything, removed when all
//! that `watch` it or have it in `onchanges` or `listen` have succeeded.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use halite_states::low::Chunk;

use crate::blobs::sha256;
use crate::host::HostResult;
use crate::journal::Shelf;

/// The notes.
pub struct Owed {
    shelf: Box<dyn Shelf>,
    notes: Mutex<BTreeSet<String>>,
}

impl Owed {
    /// Reads what is there.
    ///
    /// # Errors
    /// The shelf cannot be read.
    pub fn open(shelf: impl Shelf + 'static) -> HostResult<Self> {
        let notes = Mutex::new(shelf.names()?.into_iter().collect());
        Ok(Self { shelf: Box::new(shelf), notes })
    }

    fn notes(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a state, durably before it returns.
    ///
    /// # Errors
    /// The disk fails.
    pub fn add(&self, chunk: &Chunk) -> HostResult<()> {
        let (name, mut notes) = (name(chunk), self.notes());
        if !notes.contains(&name) {
            // For whoever looks into the directory.
            self.shelf.put(&name, format!("{} in {}\n", called(chunk), chunk.sls).as_bytes())?;
            notes.insert(name);
        }
        Ok(())
    }

    /// Whether a state was noted.
    pub fn has(&self, chunk: &Chunk) -> bool {
        self.notes().contains(&name(chunk))
    }

    /// Removes the note of a state, if there is one.
    ///
    /// # Errors
    /// The disk fails.
    pub fn remove(&self, chunk: &Chunk) -> HostResult<()> {
        let (name, mut notes) = (name(chunk), self.notes());
        if notes.contains(&name) {
            self.shelf.remove(&name)?;
            notes.remove(&name);
        }
        Ok(())
    }
}

/// What stays the same of a state from one low state to the next, as in the keys of Salt's returns.
fn called(chunk: &Chunk) -> String {
    format!("{}_|-{}_|-{}_|-{}", chunk.state, chunk.id, chunk.name, chunk.fun)
}

/// The name of a note: any name can be a state's.
fn name(chunk: &Chunk) -> String {
    sha256(called(chunk).as_bytes())
}
