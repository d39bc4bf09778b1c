//! The encrypted file of secrets: its recipients, and what is refused while it cannot be decrypted.

use std::sync::Arc;

use halite_errors::chain;
use halite_names::AgeRecipient;

use super::{Declarations, Snapshot, in_background};
use crate::refusal::Refusal;

impl Declarations {
    /// The standbys that cannot decrypt the secrets, and changed recipients to which the secrets are
    /// not encrypted yet, for operators.
    pub async fn secret_problems(&self, snapshot: &Arc<Snapshot>) -> Vec<String> {
        let (file, snapshot) = (self.reader.secret_file().clone(), Arc::clone(snapshot));
        let found = in_background(move || {
            if !file.exists() {
                return Ok(Vec::new());
            }
            let audit = file.audit(snapshot.declaration());
            let audit = audit.map_err(|error| Refusal::internal(chain(&error)))?;
            let text = |name: String| {
                format!("{name} cannot decrypt the secrets: it could not apply them as the master")
            };
            let mut problems: Vec<String> = audit.missing.into_iter().map(text).collect();
            // Without the right identity, the reason is that of the refused documents.
            if audit.outdated && !snapshot.has_unknown_secrets() {
                problems.push(format!(
                    "{} is not encrypted to the recipients that are declared now, such as those of `backup.recipients`: \
                     run `ctl certs rotate secrets` on the master's host; `ctl secrets recipients` lists the present ones",
                    file.path().display()
                ));
            }
            Ok(problems)
        });
        found.await.unwrap_or_else(|refusal| vec![refusal.message])
    }

    /// Returns whether the values of all secrets are known.
    pub async fn knows_secrets(&self) -> bool {
        let in_force = self.in_force().await;
        in_force.is_ok_and(|snapshot| !snapshot.has_unknown_secrets())
    }

    /// Records the recipient of a standby, and encrypts the secrets also to it, before the standby
    /// gets any file.
    ///
    /// # Errors
    /// No declaration is in force, or the file cannot be decrypted or written.
    pub async fn add_secret_recipient(
        &self,
        standby: &str,
        recipient: AgeRecipient,
    ) -> Result<(), Refusal> {
        let _writing = self.writing.lock().await;
        let snapshot = self.in_force().await?;
        let file = self.reader.secret_file().clone();
        let name = standby.to_owned();
        let added = in_background(move || {
            let added = file.add_host(&name, recipient, snapshot.declaration());
            added.map_err(|error| Refusal::internal(chain(&error)))
        });
        if added.await? {
            tracing::info!(standby, %recipient, "the standby can decrypt the secrets");
        }
        Ok(())
    }
}

impl Snapshot {
    /// Returns whether a pillar path is that of a secret whose value is unknown.
    pub(super) fn is_unknown(&self, path: &str) -> bool {
        let name = path.strip_prefix("secrets.");
        let mut unknown = self.declaration().cluster.unknown_secrets();
        name.is_some_and(|name| unknown.any(|other| other == name))
    }

    /// Returns whether the values of secrets are unknown, because this master cannot decrypt them.
    pub(super) fn has_unknown_secrets(&self) -> bool {
        self.declaration()
            .cluster
            .unknown_secrets()
            .next()
            .is_some()
    }
}
