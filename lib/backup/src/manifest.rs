//! The list of the files in a backup.

use std::collections::BTreeMap;

use halite_durable::Digest;
use serde::{Deserialize, Serialize};

use crate::header::Header;

/// The list of the files of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The header again: that outside of the encryption can be replaced.
    pub header: Header,
    /// The files, by path.
    pub files: BTreeMap<String, Entry>,
    /// True when the CA that the header names has signed this. Which CA that is has to be compared
    /// with what the reader trusts.
    #[serde(skip)]
    pub is_signed: bool,
}

/// A file of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// SHA-256 of its content.
    pub sha256: Digest,
    /// Its size in bytes.
    pub size: u64,
    /// The permissions.
    pub mode: u32,
}
