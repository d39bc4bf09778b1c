//! Directories that the launcher shares with the lab.

use std::path::{Path, PathBuf};

/// Directory for everything that is slow to make, outside the source tree: `HALITE_LAB_CACHE`, or
/// `/var/cache/halite-lab`.
#[must_use]
pub fn cache() -> PathBuf {
    std::env::var_os("HALITE_LAB_CACHE")
        .map_or_else(|| "/var/cache/halite-lab".into(), PathBuf::from)
}

/// The root of the source tree.
#[must_use]
pub fn source_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap_or(Path::new("."))
        .to_owned()
}
