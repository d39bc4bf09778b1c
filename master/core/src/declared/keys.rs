//! The steps of the keys that encrypt objects in etcd.

use std::sync::Arc;

use halite_errors::chain;
use halite_pillar::encryption_keys::{EncryptionKeys, KeyNames};

use super::{Declarations, Snapshot, in_background};
use crate::encryption::{KeyFile, new_secret};
use crate::refusal::{Refusal, RefusalKind};

/// A step of a key, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyStep {
    /// A new key, which only decrypts.
    Next,
    /// The newest key encrypts.
    Write,
    /// The older key leaves.
    Only,
}

impl Snapshot {
    /// The names of the keys; `None` if there are none.
    #[must_use]
    pub fn encryption_keys(&self) -> Option<KeyNames> {
        self.pki.encryption.clone()
    }
}

impl Declarations {
    /// Takes the keys one step further. Compiled states have the new form from now on. Returns the
    /// snapshot, and `false` if the step had been taken already.
    ///
    /// # Errors
    /// No encryption is declared, or the file of the keys cannot be read or written.
    pub async fn step_keys(&self, step: KeyStep) -> Result<(Arc<Snapshot>, bool), Refusal> {
        let _writing = self.writing.lock().await;
        // Makes the first key.
        let snapshot = self.load().await?;
        if snapshot.declaration().cluster.encryption().is_none() {
            return Err(Refusal::new(
                RefusalKind::Conflict,
                "cannot change the encryption keys: the cluster document declares no encryption; add `apiServer: {encryption: {}}`, \
                 then run the command again",
            ));
        }
        let file = self.key_file().clone();
        let changed = in_background(move || change(&file, step)).await?;
        Ok((self.load().await?, changed))
    }
}

fn change(file: &KeyFile, step: KeyStep) -> Result<bool, Refusal> {
    let cannot = |error| {
        let because = chain(&error);
        Refusal::internal(format!("cannot change the encryption keys: {because}"))
    };
    let before = file.read_or_make(false).map_err(cannot)?;
    let after: EncryptionKeys = match step {
        KeyStep::Next => before.clone().with_next(new_secret().map_err(cannot)?),
        KeyStep::Write => before.clone().written_by_newest(),
        KeyStep::Only => before.clone().without_older(),
    };
    if after == before {
        return Ok(false);
    }
    file.write(&after).map_err(cannot)?;
    Ok(true)
}
