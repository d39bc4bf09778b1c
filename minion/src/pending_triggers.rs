//! Pending triggers, kept across runs: changes on which a `watch`, `onchanges` or `listen` has not
//! acted yet. Example: a unit's file was written, but power failed before the restart.
//!
//! One directory, one file for each pair of a changed state and a state that it triggers, each
//! written atomically and fsynced: written before the first state changes anything, and removed
//! after the second has succeeded.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use halite_durable::digest::sha256;
use halite_states::low::Chunk;

use crate::host::HostResult;
use crate::journal::RecordStore;

/// The pending triggers of this host.
pub struct PendingTriggers {
    store: Box<dyn RecordStore>,
    names: Mutex<BTreeSet<String>>,
}

impl PendingTriggers {
    /// Reads the names of the stored records.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn open(store: impl RecordStore + 'static) -> HostResult<Self> {
        let names = Mutex::new(store.names()?.into_iter().collect());
        Ok(Self {
            store: Box::new(store),
            names,
        })
    }

    fn names(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that `watcher` must act on the change that `chunk` is about to make, durably before
    /// it returns.
    ///
    /// # Errors
    /// The disk fails.
    pub fn record(&self, chunk: &Chunk, watcher: &Chunk) -> HostResult<()> {
        let (name, mut names) = (name(chunk, watcher), self.names());
        if !names.contains(&name) {
            // Only for people who look into the directory.
            let text = format!(
                "{} in {} triggers {}\n",
                chunk.tag(),
                chunk.sls,
                watcher.tag()
            );
            self.store.put(&name, text.as_bytes())?;
            names.insert(name);
        }
        Ok(())
    }

    /// Returns whether `watcher` still has to act on a change of `chunk`.
    pub fn contains(&self, chunk: &Chunk, watcher: &Chunk) -> bool {
        let names = self.names();
        !names.is_empty() && names.contains(&name(chunk, watcher))
    }

    /// Removes the record, if it exists.
    ///
    /// # Errors
    /// The disk fails.
    pub fn clear(&self, chunk: &Chunk, watcher: &Chunk) -> HostResult<()> {
        let (name, mut names) = (name(chunk, watcher), self.names());
        if names.contains(&name) {
            self.store.remove(&name)?;
            names.remove(&name);
        }
        Ok(())
    }
}

/// The name of a record: a digest of both tags, which may contain any character and are the same
/// in each low state.
fn name(chunk: &Chunk, watcher: &Chunk) -> String {
    sha256(format!("{}\n{}", chunk.tag(), watcher.tag()).as_bytes())
}
