//! Names as types: each has one grammar, which is checked once, where a name enters a program.
//!
//! Names come from the operator's documents, the command line, messages, rows of a store and names
//! Names come from the operator's documents, the command line, messages, rows of a store and file
//! names. They become paths, URLs, names in Kubernetes and subjects of certificates. So no name is
//! repaired here: an invalid text is refused with the rule that it breaks.
//!
//! This crate has the types that crates on both sides of the wire use, and [`text_id!`], with which
//! other crates define theirs.

mod age_recipient;
pub mod bech32;
mod bundle_version;
mod node_name;
mod subdomain;
mod text_id;

pub use age_recipient::{AgeRecipient, AgeRecipientError};
pub use bundle_version::{BundleVersion, BundleVersionError};
pub use node_name::{LONGEST as NODE_NAME_MAX, MASTER, NodeName, NodeNameError, NodeNameTooLong};
pub use subdomain::{LABEL_MAX, Misnomer, NAME_MAX, NameError, check_subdomain};

/// The number of characters of a refused text that an error quotes: a hostile text must not flood a
/// log.
const REPEATED: usize = 80;
