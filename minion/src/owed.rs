//! What this host has changed and not everybody has acted on who should, across runs: a service's
//! file was written, and the power went before the service was restarted.
//!
//! One directory, one file for each state and each that acts on its changes (`watch`, `onchanges`,
//! `listen`), all atomic and fsynced: written before the state changes anything, removed when the
//! other has succeeded.

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
        Ok(Self {
            shelf: Box::new(shelf),
            notes,
        })
    }

    fn notes(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that somebody has to act on what a state is about to change, durably before it
    /// returns.
    ///
    /// # Errors
    /// The disk fails.
    pub fn add(&self, chunk: &Chunk, hearer: &Chunk) -> HostResult<()> {
        let (name, mut notes) = (name(chunk, hearer), self.notes());
        if !notes.contains(&name) {
            // For whoever looks into the directory.
            let text = format!(
                "{} in {} is heard by {}\n",
                chunk.tag(),
                chunk.sls,
                hearer.tag()
            );
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

/// The name of a note, which any names of states can be in: from the tags, which stay from one low
/// state to the next.
fn name(chunk: &Chunk, hearer: &Chunk) -> String {
    sha256(format!("{}\n{}", chunk.tag(), hearer.tag()).as_bytes())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use halite_states::engine::RunOptions;
    use halite_states::low::{FORMAT, LowState};
    use halite_states::run::run;
    use serde_json::{Value, json};

    use super::*;
    use crate::host::fake::FakeHost;
    use crate::journal::Directory;
    use crate::runner::{Runner, Stop};

    fn chunk(state: &str, fun: &str, name: &str, args: Value) -> Chunk {
        let source = json!({"file": "test.sls", "line": 1, "column": 1});
        let all = json!({"state": state, "fun": fun, "id": name, "name": name, "sls": "test", "source": source,
            "args": args});
        serde_json::from_value(all).unwrap()
    }

    #[tokio::test]
    async fn a_service_restarts_in_the_next_run_when_this_one_ends_after_its_file() {
        let host = FakeHost::new();
        host.state().put_unit("a.service", true, true);
        let mut service = chunk("service", "running", "a", json!({}));
        service.requisites.watch = vec![0];
        let file = chunk("file", "managed", "/etc/a", json!({"contents": "new"}));
        let low = LowState {
            format: FORMAT,
            minion: "m".into(),
            chunks: vec![file, service],
        };
        let dir = tempfile::tempdir().unwrap();
        let notes = Directory(dir.path().join("owed"));
        let runner = || Runner::new(&host).owing(Some(Owed::open(notes.clone()).unwrap()));
        let starts = || {
            host.state()
                .starts
                .get("a.service")
                .copied()
                .unwrap_or_default()
        };
        let stop = Arc::new(Stop::default());
        let first = runner().stoppable(Arc::clone(&stop));
        let cut = run(&low, &first, RunOptions::default(), |_| {
            stop.ask("the power goes")
        })
        .await;
        assert!(!cut.succeeded() && host.text("/etc/a").is_some());
        assert_eq!(starts(), 0);
        let [name] = &notes.names().unwrap()[..] else {
            panic!("one note")
        };
        let wanted =
            "file_|-/etc/a_|-/etc/a_|-managed in test is heard by service_|-a_|-a_|-running\n";
        assert_eq!(notes.get(name).unwrap().unwrap(), wanted.as_bytes());
        for wanted in [1, 1] {
            let again = run(&low, &runner(), RunOptions::default(), |_| {}).await;
            assert!(again.succeeded());
            assert_eq!(starts(), wanted);
        }
        assert!(notes.names().unwrap().is_empty());
    }
}
