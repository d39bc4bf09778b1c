//! What this host has changed and not everybody has acted on who should, across runs: a service's file was written, and the
//! power went before the service was restarted.
//!
//! One directory, one file for each state and each that acts on its changes (`watch`, `onchanges`, `listen`), all atomic and
//! fsynced: written before the state changes anything, removed when the other has succeeded.

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

    /// Notes that somebody has to act on what a state is about to change, durably before it returns.
    ///
    /// # Errors
    /// The disk fails.
    pub fn add(&self, chunk: &Chunk, hearer: &Chunk) -> HostResult<()> {
        let (name, mut notes) = (name(chunk, hearer), self.notes());
        if !notes.contains(&name) {
            // For whoever looks into the directory.
            let text = format!("{} in {} is heard by {}\n", chunk.tag(), chunk.sls, hearer.tag());
            self.shelf.put(&name, text.as_bytes())?;
            notes.insert(name);
        }
        Ok(())
    }

    /// Whether that was noted.
    pub fn has(&self, chunk: &Chunk, hearer: &Chunk) -> bool {
        self.notes().contains(&name(chunk, hearer))
    }

    /// Removes the note, if there is one.
    ///
    /// # Errors
    /// The disk fails.
    pub fn remove(&self, chunk: &Chunk, hearer: &Chunk) -> HostResult<()> {
        let (name, mut notes) = (name(chunk, hearer), self.notes());
        if notes.contains(&name) {
            self.shelf.remove(&name)?;
            notes.remove(&name);
        }
        Ok(())
    }
}

/// The name of a note, which any names of states can be in: from the tags, which stay from one low state to the next.
fn name(chunk: &Chunk, hearer: &Chunk) -> String {
    sha256(format!("{}\n{}", chunk.tag(), hearer.tag()).as_bytes())
}
