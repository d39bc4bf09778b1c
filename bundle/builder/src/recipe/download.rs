//! Files that a recipe takes from an address.

use std::path::PathBuf;

use halite_durable::Digest;

/// A file that is stored in the cache under its own path after it is fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Download {
    /// Its address.
    pub url: String,
    /// Its SHA-256, if the recipe states it; otherwise the lock has it.
    pub sha256: Option<Digest>,
    /// The path of the file in the archive, if the address is an archive's (tar, possibly
    /// compressed with gzip, xz or Zstandard).
    pub member: Option<String>,
    /// Its licence.
    pub licence: Option<String>,
    /// Its path after it is fetched.
    pub path: PathBuf,
    /// Its purpose.
    pub why: String,
}
