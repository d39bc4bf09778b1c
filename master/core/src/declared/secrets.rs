//! The encrypted file of secrets: its recipients, and what is refused while it cannot be decrypted.

use std::sync::Arc;

use halite_errors::chain;
use halite_names::AgeRecipient;
use halite_secret_file::RecipientAudit;

use super::{Declarations, Snapshot, in_background};
use crate::refusal::Refusal;

impl Declarations {
    /// The standbys that cannot decrypt the secrets, and changed recipients to which the secrets
    /// are not encrypted yet, for operators.
    pub async fn secret_problems(&self, snapshot: &Arc<Snapshot>) -> Vec<String> {
        let audit = match self.audit_secrets(snapshot).await {
            Ok(audit) => audit,
            Err(refusal) => return vec![refusal.message],
        };
        let missing = audit.missing.iter();
        let mut problems: Vec<String> = missing.map(|name| cannot_decrypt(name)).collect();
        // Without the right identity, the reason is that of the refused documents.
        if audit.outdated && !snapshot.has_unknown_secrets() {
            problems.push(format!(
                "{} is not encrypted to the recipients that are declared now, such as those of `backup.recipients`: \
                 run `ctl certs rotate secrets` on the master's host; `ctl secrets recipients` lists the present ones",
                self.reader.secret_file().path().display()
            ));
        }
        problems
    }

    /// The reason why a standby could not apply the secrets as the master; `None` if it can decrypt
    /// them, or there are none.
    ///
    /// # Errors
    /// The recipients cannot be read.
    pub async fn secret_problem_of(
        &self,
        snapshot: &Arc<Snapshot>,
        standby: &str,
    ) -> Result<Option<String>, Refusal> {
        let audit = self.audit_secrets(snapshot).await?;
        let is_missing = audit.missing.iter().any(|name| name == standby);
        Ok(is_missing.then(|| cannot_decrypt(standby)))
    }

    /// Compares the recipients of the secrets with the declared ones; without a file there is
    /// nothing to compare.
    async fn audit_secrets(&self, snapshot: &Arc<Snapshot>) -> Result<RecipientAudit, Refusal> {
        let (file, snapshot) = (self.reader.secret_file().clone(), Arc::clone(snapshot));
        let audit = in_background(move || {
            if !file.exists() {
                return Ok(RecipientAudit::default());
            }
            let audit = file.audit(snapshot.declaration());
            audit.map_err(|error| Refusal::internal(chain(&error)))
        });
        audit.await
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

fn cannot_decrypt(standby: &str) -> String {
    format!("{standby} cannot decrypt the secrets: it could not apply them as the master")
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
