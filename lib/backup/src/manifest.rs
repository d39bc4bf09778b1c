//! The list of the files in a backup.

use std::collections::BTreeMap;

use halite_durable::Digest;
use serde::{Deserialize, Serialize};

use crate::header::Header;

/// The list of the files of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// A copy of the header: the unencrypted one can be replaced.
    pub header: Header,
    /// The files, by path.
    pub files: BTreeMap<String, BackupEntry>,
    /// `true` if the CA that the header names has signed this. The reader must compare that CA with
    /// the one it trusts.
    #[serde(skip)]
    pub is_signed: bool,
}

/// A file of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupEntry {
    /// SHA-256 of its content.
    pub sha256: Digest,
    /// Its size in bytes.
    pub size: u64,
    /// The permissions.
    pub mode: u32,
}
