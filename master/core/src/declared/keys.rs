//! The steps of the keys that encrypt objects in etcd.

use std::sync::Arc;

use halite_errors::chain;
use halite_pillar::declaration::Declaration;
use halite_pillar::encryption_keys::{EncryptionKeys, KeyNames};

use super::last_valid::LastValid;
use super::{Declarations, Snapshot, in_background};
use crate::ca::CaError;
use crate::encryption::{ClusterAge, KeyFile, new_key};
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
    /// All API servers have reached the last stage: the next rotation takes a new key.
    End,
}

impl Snapshot {
    /// The names of the keys; `None` if there are none.
    #[must_use]
    pub fn encryption_keys(&self) -> Option<KeyNames> {
        self.pki.encryption.clone()
    }

    /// The difference between the declared and the actual encryption of objects in etcd, for
    /// operators; `None` if there is none.
    #[must_use]
    pub fn encryption_problem(&self) -> Option<String> {
        let keys = self.pki.encryption.as_ref()?;
        if keys.rotates {
            let (stage, names) = (keys.stage, keys.names.join(" and "));
            return Some(format!(
                "a rotation of the encryption key has not ended (stage {stage}, {names}); `ctl certs rotate encryption` continues it, or \
                 shows the one that runs"
            ));
        }
        let declared = self.declaration().cluster.encryption()?;
        let resources = declared.resources.join(" and ");
        (keys.writer.is_none() && !resources.is_empty()).then(|| {
            format!(
                "encryption of {resources} is declared, but the API servers still write plain text; `ctl certs rotate encryption` \
                 begins to encrypt"
            )
        })
    }
}

impl Declarations {
    /// Takes the keys one step further. Compiled states have the new form from now on. Returns the
    /// snapshot, and `false` if the step had been taken already.
    ///
    /// # Errors
    /// No encryption is declared, hosts have different bundles, or the file of the keys is missing
    /// or cannot be read or written.
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
        let rotates = snapshot.encryption_keys().is_some_and(|keys| keys.rotates);
        if step == KeyStep::Next && !rotates {
            snapshot.refuse_two_bundles("the encryption key")?;
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
    // The declaration was read before this, which makes the first key.
    let before = file.read_or_make(ClusterAge::Encrypted).map_err(cannot)?;
    let after: EncryptionKeys = match step {
        KeyStep::Next => before.clone().with_next(new_key().map_err(cannot)?),
        KeyStep::Write => before.clone().written_by_newest(),
        KeyStep::Only => before.clone().without_older(),
        KeyStep::End => before.clone().rotated(),
    };
    if after == before {
        return Ok(false);
    }
    file.write(&after).map_err(cannot)?;
    Ok(true)
}

/// The keys of a declaration. The first one is made when encryption is declared. If no valid
/// documents were known before, the cluster is new, and no API server runs yet. If the last valid
/// documents declare encryption already, there was a key, and a new one must not take its place.
pub(super) fn keys_for(
    declaration: &Declaration,
    file: &KeyFile,
    last_valid: &LastValid,
) -> Result<Option<EncryptionKeys>, CaError> {
    if declaration.cluster.encryption().is_none() {
        return file.read();
    }
    if let Some(keys) = file.read()? {
        return Ok(Some(keys));
    }
    let age = match (last_valid.exists(), last_valid.declaration()) {
        (false, _) => ClusterAge::New,
        (true, Some(before)) if before.cluster.encryption().is_some() => ClusterAge::Encrypted,
        (true, _) => ClusterAge::Running,
    };
    file.read_or_make(age).map(Some)
}

/// The refusal of keys that cannot be used.
pub(super) fn unusable_keys(error: &CaError) -> Refusal {
    Refusal::internal(format!("cannot use the encryption keys: {}", chain(error)))
}
