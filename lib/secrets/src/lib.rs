//! Secrets: texts that do not print themselves, references that are filled in late, and redaction.
//!
//! A declaration holds a secret as [`SecretText`]. Everything that is compiled, stored or displayed
//! contains a reference instead ([`mod@reference`]); the master fills it in when it sends a job to
//! a minion that may have the secret. [`redact()`] removes secrets from what a minion returns.
//!
//! This crate stores no secret, reads no file, and does not decide which minion may have which
//! secret: the pillar decides that.

mod redact;
pub mod reference;
mod text;
pub mod yaml;

pub use redact::{HIDDEN, Redactor, redact};
pub use text::SecretText;
