//! The directories of the lab on the machine.

use std::path::PathBuf;

pub use halite_launch::{cache, source_root};

/// Directory of the hosts of running labs: `HALITE_LAB_RUN`, or `/var/lib/halite-lab`.
#[must_use]
pub fn run_dir() -> PathBuf {
    std::env::var_os("HALITE_LAB_RUN").map_or_else(|| "/var/lib/halite-lab".into(), PathBuf::from)
}
