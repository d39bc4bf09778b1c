//! The rotation of this host's identity. Each step may be interrupted, and repeated.

use halite_pillar::declaration::Declaration;

use crate::error::SecretFileError;
use crate::file::SecretFile;
use crate::recipients::RecipientList;

/// A step of a rotation, after which the file can be decrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RotationStep {
    /// The next identity is beside the present one.
    Made,
    /// The file is encrypted to the next one, and no longer to the present one.
    Encrypted,
    /// The next one has replaced the present one.
    Replaced,
}

impl SecretFile {
    /// Replaces this host's identity. A rotation that was interrupted is continued.
    ///
    /// # Errors
    /// The file cannot be decrypted, or a file cannot be written: another call continues.
    pub fn rotate(&self, declaration: &Declaration) -> Result<(), SecretFileError> {
        self.rotate_up_to(declaration, RotationStep::Replaced)
    }

    /// Ends after a step.
    pub(crate) fn rotate_up_to(
        &self,
        declaration: &Declaration,
        last: RotationStep,
    ) -> Result<(), SecretFileError> {
        let _lock = self.lock()?;
        // First: what cannot be decrypted now must not be lost with the present identity.
        let plain = self.read()?;
        let next = self.identities.next_or_new()?.recipient();
        if last < RotationStep::Encrypted {
            return Ok(());
        }
        if let Some(plain) = plain {
            let required = RecipientList::required(declaration, next, &self.recipients()?);
            self.seal(plain.reveal(), &required)?;
        }
        if last < RotationStep::Replaced {
            return Ok(());
        }
        self.identities.replace()
    }
}
