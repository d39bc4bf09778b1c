//! Names as types: each has one grammar, which is checked once, where a name enters a program.
//!
//! Names come from the operator's documents, the command line, messages, rows of a store and names
//! of files. They become paths, URLs, names in Kubernetes and subjects of certificates, so none is
//! repaired here: a text is a name or is refused with the rule.
//!
//! The crate has the types that crates of both sides of the wire hold, and [`text_id!`], with which
//! other crates make theirs.

mod age_recipient;
pub mod bech32;
mod bundle_version;
mod node_name;
mod subdomain;
mod text_id;

pub use age_recipient::{AgeRecipient, AgeRecipientError};
pub use bundle_version::{BundleVersion, BundleVersionError};
pub use node_name::{MASTER, NodeName, NodeNameError};
pub use subdomain::{LABEL_MAX, Misnomer, NAME_MAX, NameError, check_subdomain};

/// The number of characters of a refused text that an error repeats: a hostile text must not flood
/// a log.
const REPEATED: usize = 80;
