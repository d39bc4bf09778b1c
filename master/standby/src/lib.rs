//! Standbys, that is, hosts that have the master's data and can replace it.
//!
//! The master feeds each of them ([`feed`]) with the write-ahead log of its store and the files
//! beside it; a standby keeps a copy ([`copy`]), which it follows ([`follow`]) until an operator
//! promotes it ([`promote`]), or the master hands over to it ([`hand_over`], [`take_over`]). It
//! shares its knowledge of the masters ([`knowledge`]) with each host that asks ([`listener`]). See
//! docs/decisions/0021-standby-masters.md and 0036-the-master-is-handed-over.md.

mod beside;
pub mod compare;
pub mod copy;
pub mod declared;
pub mod disk;
pub mod export;
pub mod feed;
pub mod follow;
pub mod hand_over;
pub mod knowledge;
pub mod listener;
pub mod promote;
pub mod receiver;
pub mod report;
pub mod session;
pub mod take_over;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use halite_core::config::Config;
use halite_pillar::masters::{STANDBY_OF, WAS_STANDBY_OF};

/// The file that makes this host a standby.
#[must_use]
pub fn mark(config: &Config) -> PathBuf {
    config.state_dir.join(STANDBY_OF)
}

/// The file with the addresses of the previous masters, which a promotion leaves: `ctl` does not
/// wait for the minion of a host that is gone.
#[must_use]
pub fn mark_before(config: &Config) -> PathBuf {
    config.state_dir.join(WAS_STANDBY_OF)
}

/// The directory of a standby's copy.
#[must_use]
pub fn directory(config: &Config) -> PathBuf {
    config.state_dir.join("standby")
}

/// The addresses in the file that makes this host a standby; `None` if this is the master's host.
///
/// # Errors
/// The file exists but cannot be read.
pub fn masters(mark: &Path) -> std::io::Result<Option<Vec<String>>> {
    match std::fs::read_to_string(mark) {
        Ok(text) => Ok(Some(
            text.lines()
                .map(str::trim)
                .filter(|line| !line.is_empty() && !line.starts_with('#'))
                .map(str::to_owned)
                .collect(),
        )),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
