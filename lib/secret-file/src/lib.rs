//! The encrypted file with the values of the operator's secrets ([`SecretFile`]).
//!
//! `/etc/halite/secrets.yaml.age` is an age file. Its plain text is a mapping of names to values;
//! the cluster document names the hosts that get each. The identity that decrypts it is below the
//! master's directory, and the list of recipients beside the file. See
//! docs/decisions/0110-secrets-at-rest.md.
//!
//! Input: the directories of a master, and its declaration. Output: the plain text in memory, or
//! files on the disk that are written completely or not at all. Plain text is never written.

mod audit;
mod error;
mod file;
mod identity;
mod recipients;
mod rotation;
#[cfg(test)]
mod tests;

pub use audit::RecipientAudit;
pub use error::SecretFileError;
pub use file::SecretFile;
pub use recipients::{RECIPIENTS_FILE, RecipientList, SecretRecipient};
pub use rotation::RotationStep;
